"""Compiler driver of cuTile: compiles kernels for any arch of tileiras, without a GPU.

cuTile's front end turns the Python function into TileIR bytecode; tileiras turns that into a cubin
and remarks; the disassemblers read the cubin. Results are cached on disk.
"""

from __future__ import annotations

import errno
import io
import json
import math
import os
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mla_var3.cache import Cache, key_of
from mla_var3.errors import PlanError, ToolchainError
from mla_var3.evidence import StaticFacts
from mla_var3.languages.base import Compiled
from mla_var3.languages.base import CompileJob as KernelJob
from mla_var3.languages.cutile import toolchain
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.languages.cutile.kernel import CtKernel
from mla_var3.languages.cutile.remarks import parse_remarks
from mla_var3.static import sass, tools
from mla_var3.static.lines import line_facts
from mla_var3.static.source import relative_source
from mla_var3.static.steps import step_mix

#: Part of the cache key: raise it when facts change their meaning or gain a field.
FACTS_VERSION = 6

#: Seconds one compile may take. The largest tiling of the project's kernels takes about 20 s on
#: one core; a 512 x 512 accumulator keeps tileiras busy for many minutes and never pays.
TIMEOUT_S = 240.0

#: cuTile's front end is not written for several threads.
_FRONT_END = threading.Lock()

_NO_ROOM = os.strerror(errno.ENOSPC)

_ENTRY = re.compile(r"^entry @[^(]*\(", re.MULTILINE)
_MMA_OP = re.compile(r"= mma[a-z_]* ")
_TILE_SHAPE = re.compile(r"tile<(\d+(?:x\d+)+)x")
_HINTS = ("num_ctas", "occupancy", "num_worker_warps")

#: File names of the artefacts.
BYTECODE, TILEIR, CUBIN, SASS, REMARKS, FACTS = (
    "kernel.tileirbc", "kernel.tileir", "kernel.cubin", "kernel.sass", "remarks.yaml", "facts.json",
)  # fmt: skip


@dataclass(frozen=True)
class TileJob:
    """One kernel to compile.

    Attributes:
        kernel: A ``@ct.kernel`` function with its hints.
        args: Launch arguments; tensors may be on the CPU, a GPU or the meta device.
        arch: Such as ``sm_90``.
    """

    kernel: Any
    args: tuple[Any, ...]
    arch: str


class _RefusedError(Exception):
    """The kernel cannot be compiled; the message becomes the facts' error."""


class _CutShortError(_RefusedError):
    """The compiler did not get to its end: the machine's fault as much as the kernel's.

    Such a failure is not cached.
    """


def compile_kernel(
    kernel: Any,
    args: Sequence[Any],
    arch: str,
    *,
    cache_dir: Path | None = None,
    timeout: float | None = None,
) -> CutileFacts:
    """Compile one kernel for one arch and read the result.

    Args:
        kernel: A ``@ct.kernel`` function, with its hints applied.
        args: Launch arguments: torch tensors (meta ones do), Python scalars, tuples.
        arch: Such as ``sm_90``; one of :func:`mla_var3.languages.cutile.toolchain.known_archs`.
        cache_dir: Cache folder; ``$HYPERMLA_CACHE_DIR`` or the user's cache folder by default.
        timeout: Seconds the compiler may take; ``TIMEOUT_S`` by default.

    Returns:
        The facts; ``error`` is set when the compiler refuses the kernel.

    Raises:
        UnknownNameError: tileiras does not know the arch.
        ToolchainError: A tool is missing, of the wrong version, or the cache cannot be written.
        InterpreterError: ``kernel`` is not a cuTile kernel, or ``args`` do not fit it.
    """
    job = TileJob(kernel, tuple(args), arch)
    facts = compile_many([job], workers=1, cache_dir=cache_dir, timeout=timeout)[0].facts
    assert isinstance(facts, CutileFacts)
    return facts


def compile_many(
    jobs: Iterable[TileJob],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float | None = None,
    progress: Callable[[TileJob, StaticFacts], None] = lambda _job, _facts: None,
) -> list[Compiled]:
    """Compile jobs side by side.

    An interrupt ends every compiler that runs and leaves nothing half-written.

    Args:
        jobs: What to compile; equal ones are compiled once.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: As for :func:`compile_kernel`.
        timeout: Seconds each compile may take; ``TIMEOUT_S`` by default.
        progress: Told of each job as it ends, in this thread.

    Returns:
        Results in the order of the jobs.

    Raises:
        HyperMlaError: As :func:`compile_kernel`, for the first job that raises.
    """
    jobs = list(jobs)
    for arch in dict.fromkeys(job.arch for job in jobs):
        toolchain.require_arch(arch)
    cache = Cache(cache_dir)
    runner = tools.Runner()
    started: dict[str, Future[Compiled]] = {}
    order: list[Future[Compiled]] = []
    pool = ThreadPoolExecutor(max_workers=workers or os.cpu_count() or 1)
    try:
        for job in jobs:
            task = _prepare(job)
            if task.key not in started:
                started[task.key] = pool.submit(_finish, task, cache, runner, timeout or TIMEOUT_S)
            order.append(started[task.key])
        # Told from here, so that a progress that cannot be written ends the compile.
        for future in as_completed(started.values()):
            facts = future.result().facts
            for job, its in zip(jobs, order, strict=True):
                if its is future:
                    progress(job, facts)
        results = [future.result() for future in order]
    except BaseException:
        runner.stop()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
    cache.trim()
    return results


def compile_jobs(
    jobs: Sequence[KernelJob],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float | None = None,
    progress: Callable[[KernelJob, StaticFacts], None] = lambda _job, _facts: None,
) -> list[Compiled]:
    """Compile bound kernels: see ``languages.base.Language.compile_many``."""
    by_tile: dict[int, KernelJob] = {}
    tiles = []
    for job in jobs:
        assert isinstance(job.kernel, CtKernel)
        tile = TileJob(job.kernel.kernel, job.kernel.args(), job.arch)
        by_tile[id(tile)] = job
        tiles.append(tile)
    return compile_many(
        tiles, workers=workers, cache_dir=cache_dir, timeout=timeout,
        progress=lambda tile, facts: progress(by_tile[id(tile)], facts),
    )  # fmt: skip


@dataclass(frozen=True)
class _Task:
    """A job behind the front end: its key, what is known of it, and bytecode or an error."""

    key: str
    base: CutileFacts
    opt_level: int
    bytecode: bytes
    error: str | None


def _prepare(job: TileJob) -> _Task:
    """Run the front end; a kernel it refuses gives a task that has its error."""
    from mla_var3.interpreter.signature import annotated_function, kernel_signature

    signature = kernel_signature(job.kernel, job.args)
    options = job.kernel._compiler_options
    opt_level = options.opt_level_for_target(job.arch)
    hints = {"opt_level": opt_level}
    for name in _HINTS:
        by_target = options.hints_by_target()
        value = by_target.get(job.arch, {}).get(name, by_target["default"].get(name))
        if value is not None:
            hints[name] = value
    base = CutileFacts(
        kernel=annotated_function(job.kernel).pyfunc.__name__,
        arch=job.arch,
        hints=hints,
        toolchain=toolchain.versions(),
    )
    try:
        bytecode, error = _bytecode(job, signature), None
    except _RefusedError as refused:
        bytecode, error = b"", str(refused)
    key = key_of(
        {
            "facts": FACTS_VERSION,
            "base": base.model_dump(mode="json"),
            "bytecode": bytecode.hex(),
            "error": error,
        }
    )
    return _Task(key, base, opt_level, bytecode, error)


def _bytecode(job: TileJob, signature: Any) -> bytes:
    from cuda.tile._exception import TileError
    from cuda.tile.compilation import export_kernel

    buffer = io.BytesIO()
    try:
        with _FRONT_END:
            export_kernel(
                job.kernel,
                [signature],
                buffer,
                gpu_code=job.arch,
                output_format="tileir_bytecode",
                bytecode_version=toolchain.bytecode_version(),
            )
    except TileError as error:
        raise _RefusedError(_sentence(error)) from error
    return buffer.getvalue()


def intermediate(job: TileJob, cache_dir: Path | None = None) -> str:
    """The kernel as tileiras takes it, with its hints, without its name and places in the source.

    Args:
        job: The kernel.
        cache_dir: As for :func:`compile_kernel`.

    Raises:
        PlanError: The front end refuses the kernel.
    """
    task = _prepare(job)
    if task.error is not None:
        raise PlanError(task.error)
    with Cache(cache_dir).scratch() as folder:
        (folder / BYTECODE).write_bytes(task.bytecode)
        done = tools.Runner().run(toolchain.find("tileirdisasm"), [folder / BYTECODE])
    if done.returncode:
        raise ToolchainError(f"tileirdisasm failed: {tools.one_line(done.stderr)}")
    return f"{sorted(task.base.hints.items())}\n{_ENTRY.sub('entry @(', done.stdout)}"


def _sentence(error: Any) -> str:
    """The front end's message in one line, with the place named as the project names it."""
    text = tools.one_line(str(error.message))
    location = error.loc
    if location.filename is None or location.line is None:
        return text
    return f"{relative_source(location.filename)}:{location.line}: {text}"


def _finish(task: _Task, cache: Cache, runner: tools.Runner, timeout: float) -> Compiled:
    if task.error is not None:
        return Compiled(_failed(task, task.error), {})
    if (files := cache.get(task.key)) is not None:
        try:
            return Compiled(CutileFacts.model_validate_json(files[FACTS]), files)
        except (KeyError, ValidationError):
            cache.discard(task.key)
    try:
        result = _compile(task, cache, runner, timeout)
    except _CutShortError as cut:
        return Compiled(_failed(task, str(cut)), {})
    except _RefusedError as refused:
        result = Compiled(_failed(task, str(refused)), {})
    facts = json.dumps(result.facts.model_dump(mode="json"), indent=1).encode()
    result = Compiled(result.facts, {**result.files, FACTS: facts})
    cache.put(task.key, result.files)
    return result


def _failed(task: _Task, error: str) -> CutileFacts:
    return task.base.model_copy(update={"error": error})


def _compile(task: _Task, cache: Cache, runner: tools.Runner, timeout: float) -> Compiled:
    with cache.scratch() as folder:
        source, cubin, remarks = folder / BYTECODE, folder / CUBIN, folder / REMARKS
        source.write_bytes(task.bytecode)
        try:
            done = runner.run(
                toolchain.find("tileiras"),
                [
                    source, "-o", cubin, "--gpu-name", task.base.arch, f"-O{task.opt_level}",
                    "--lineinfo", "--remark-format=yaml", "--remarks=all",
                    f"--remarks-output-file={remarks}",
                ],
                timeout=timeout,
            )  # fmt: skip
        except TimeoutError as error:
            raise _CutShortError(f"{error}; smaller tiles compile faster") from error
        if done.returncode < 0:
            raise _CutShortError(
                f"tileiras was ended by signal {-done.returncode} (9 is what a machine out of "
                "memory sends)"
            )
        if _NO_ROOM in done.stderr:  # No answer about the kernel, and so nothing to keep.
            raise ToolchainError(
                f"tileiras could not write ({_NO_ROOM}), in {cache.folder} or the folder for "
                "temporary files"
            )
        if done.returncode != 0 or not cubin.is_file():
            raise _RefusedError(_refusal(done))

        def read(tool: str, *args: str | Path) -> str:
            listing = runner.run(toolchain.find(tool), args)
            if listing.returncode != 0:
                raise ToolchainError(f"{tool} failed: {tools.one_line(listing.stderr)}")
            return listing.stdout

        tileir = read("tileirdisasm", source)
        listing = read("nvdisasm", "--print-line-info", "--print-code", cubin)
        image = cubin.read_bytes()
        yaml = remarks.read_text(encoding="utf-8") if remarks.is_file() else ""
        facts = read_facts(
            task.base,
            tileir=tileir,
            listing=listing,
            usage=read("cuobjdump", "--dump-resource-usage", cubin),
            elf=read("cuobjdump", "--dump-elf", cubin),
            remarks=yaml,
            cubin=image,
        )
        files = {
            BYTECODE: task.bytecode,
            TILEIR: tileir.encode(),
            CUBIN: image,
            SASS: listing.encode(),
            REMARKS: yaml.encode(),
        }
        return Compiled(facts, files)


def _refusal(done: tools.Completed) -> str:
    text = done.stderr or done.stdout
    # loc("/path/kernel.py":12:4): error: ... -> kernels/.../kernel.py:12: ...
    text = re.sub(
        r'loc\((?:[^")]*\[)?"([^"]+)":(\d+):\d+\]?\)',
        lambda match: f"{relative_source(match[1])}:{match[2]}",
        text,
    )
    text = re.sub(r"/\S*/\.work-[^/\s]+/", "", text)
    said = tools.one_line(text) or f"exit status {done.returncode}"
    return f"tileiras refuses the kernel: {said}"


def read_facts(
    base: CutileFacts,
    *,
    tileir: str,
    listing: str,
    usage: str,
    elf: str,
    remarks: str,
    cubin: bytes,
) -> CutileFacts:
    """Facts from what the tools printed; a pure function.

    Args:
        base: Kernel, arch, hints and toolchain.
        tileir: ``tileirdisasm`` of the bytecode.
        listing: ``nvdisasm --print-line-info --print-code`` of the cubin.
        usage: ``cuobjdump --dump-resource-usage``.
        elf: ``cuobjdump --dump-elf``.
        remarks: The remarks file of tileiras.
        cubin: The cubin itself.

    Raises:
        ToolchainError: A tool printed something else than this release does.
    """
    instructions = sass.parse_listing(listing)
    resources = sass.parse_resources(usage)[0]
    attributes = sass.parse_attributes(elf)
    mix = sass.instruction_mix(instructions)
    threads = sass.block_threads(attributes)
    reserved = sass.reserved_shared(elf, resources)
    loads = [i for i in instructions if i.base == "LDL"]
    stores = [i for i in instructions if i.base == "STL"]
    mma_ops, mma_flops = mma_work(tileir)
    mma = sass.mma_instructions(instructions)
    found = parse_remarks(remarks)
    on_fma = any(r.category == "tensor-core" and r.kind != "passed" for r in found)
    path = sass.mma_path(mma, on_cuda_cores=on_fma or (mma_ops > 0 and not mma))
    return base.model_copy(
        update={
            "registers": resources.registers,
            "stack_bytes": resources.stack_bytes,
            "spill_loads": len(loads),
            "spill_stores": len(stores),
            "spill_load_bytes": sum(i.bytes_per_thread for i in loads),
            "spill_store_bytes": sum(i.bytes_per_thread for i in stores),
            "shared_bytes": resources.shared_bytes - reserved,
            "tensor_memory_columns": sass.tensor_memory_columns(cubin),
            "threads_per_block": threads,
            "warps_per_block": -(-threads // 32),
            "blocks_per_cluster": sass.cluster_blocks(attributes),
            "barriers": attributes.get("NUM_BARRIERS", (0,))[0],
            "instructions": len(instructions),
            "instruction_mix": mix,
            "step_mix": step_mix(listing),
            "mma_ops": mma_ops,
            "mma_tile_flops": mma_flops,
            "mma_path": path,
            "mma_instructions": mma,
            "tma_loads": sum(mix.get(name, 0) for name in sass.TMA_LOADS),
            "tma_stores": sum(mix.get(name, 0) for name in sass.TMA_STORES),
            "async_copies": mix.get("LDGSTS", 0),
            "remarks": tuple(found),
            "wgmma_waits": sass.wgmma_waits(instructions),
            "ring": sass.ring_depth(listing),
            "lines": tuple(line_facts(instructions)),
        }
    )


def mma_work(tileir: str) -> tuple[int, int]:
    """Matrix multiplications in TileIR text, and their FLOPs per block if each runs once.

    Raises:
        ToolchainError: A multiplication's operand types cannot be read.
    """
    flops, count = 0, 0
    for line in tileir.splitlines():
        if _MMA_OP.search(line):
            shapes = [[int(n) for n in dims.split("x")] for dims in _TILE_SHAPE.findall(line)]
            if len(shapes) < 2:
                raise ToolchainError(f"tileirdisasm printed a multiplication as {line.strip()!r}")
            count += 1
            flops += 2 * math.prod(shapes[0]) * shapes[1][-1]
    return count, flops
