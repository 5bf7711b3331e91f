"""Compiler driver of the CuTe DSL: compiles host functions for any arch, without a GPU.

The DSL traces the host function on stand-ins for its tensors and compiles host and device code in
one go. It does so in a forked process, since it keeps global state and some faults end it. The
disassemblers then read the cubin. Results are cached on disk; the key has all inputs of a compile.
"""

from __future__ import annotations

import functools
import gc
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from mla_var3 import forked
from mla_var3.cache import Cache, key_of
from mla_var3.emulator.kept import without_binary
from mla_var3.errors import ToolchainError
from mla_var3.languages.base import Compiled
from mla_var3.languages.cute import arch as archs
from mla_var3.languages.cute import (
    hardware,
    ptx,
    reach,
    reading,
    signature,
    sources,
    toolchain,
    tracing,
)
from mla_var3.languages.cute.facts import CuteFacts
from mla_var3.static import elf, tools

#: Part of the cache key: raise it when facts change their meaning or gain a field.
FACTS_VERSION = 5

#: Seconds that one compile may take: a kernel that takes 20 s of an idle core waits for others on a
#: busy machine, and being late is no other machine code.
TIMEOUT_S = 900.0

PTX, CUBIN, SASS, LINES, FACTS = (
    "kernel.ptx", "kernel.cubin", "kernel.sass", "lines.json", "facts.json",
)  # fmt: skip
HOST, PTXAS, OBJECT, HEADER = "host.mlir", "ptxas.txt", "kernel.o", "kernel.h"
#: What stands instead of all of them where the DSL refuses a kernel: the sentence.
REFUSAL = "refusal.txt"

_FACTS = TypeAdapter(tuple[CuteFacts, ...])


@dataclass(frozen=True)
class HostJob:
    """One host function to compile.

    Attributes:
        host: A ``@cute.jit`` function, or an object whose ``__call__`` is one; it takes the
            arguments and, last, the stream.
        arguments: As :func:`mla_var3.languages.cute.signature.specs` takes them.
        arch: Such as ``sm_90``.
    """

    host: Any
    arguments: tuple[Any, ...]
    arch: str


@dataclass(frozen=True)
class HostCompiled:
    """What became of a host function.

    Attributes:
        facts: Those of each device kernel, in the order of launches; a single one with its
            ``error`` when the compile failed.
        files: PTX, cubin, SASS, line map, host code, object and header, by name; none on failure.
        prefix: What the symbols of the object start with.
    """

    facts: tuple[CuteFacts, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    prefix: str = ""

    @property
    def error(self) -> str | None:
        """Why it failed, in one sentence."""
        return self.facts[0].error


@dataclass(frozen=True)
class _Task:
    job: HostJob
    specs: tuple[signature.Spec, ...]
    base: CuteFacts
    key: str | None
    refusal: str | None

    @property
    def prefix(self) -> str:
        return f"k{(self.key or key_of({'at': id(self)}))[:16]}"

    def failed(self, error: str) -> HostCompiled:
        return HostCompiled((self.base.model_copy(update={"error": error}),))


def compile_host(
    host: Any,
    arguments: Sequence[Any],
    arch: str,
    *,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT_S,
    facts: bool = True,
) -> HostCompiled:
    """Compile one host function; see :func:`compile_hosts`."""
    job = HostJob(host, tuple(arguments), arch)
    return compile_hosts([job], workers=1, cache_dir=cache_dir, timeout=timeout, facts=facts)[0]


def compile_hosts(
    jobs: Sequence[HostJob],
    *,
    workers: int | None = None,
    cache_dir: Path | None = None,
    timeout: float = TIMEOUT_S,
    progress: Callable[[HostJob, HostCompiled], None] = lambda _job, _result: None,
    facts: bool = True,
) -> list[HostCompiled]:
    """Compile host functions side by side.

    Args:
        jobs: What to compile.
        workers: Compilers at a time; the number of cores by default.
        cache_dir: Cache folder; ``$HYPERMLA_CACHE_DIR`` or the user's cache folder by default.
        timeout: Seconds each compile may take.
        progress: Told of each job as it ends.
        facts: Whether to assemble and disassemble what was compiled for its facts, a fifth of the
            time; without, they hold no figure.

    Returns:
        Results in the order of the jobs. A kernel that the arch does not allow, that the compiler
        refuses, or that takes too long is a result with its ``error``.

    Raises:
        ToolchainError: The DSL or a tool is missing, or the cache cannot be written.
        UnknownNameError: The DSL does not compile for the arch.
        PlanError: Arguments that do not fit the host function.
    """
    toolchain.require()
    cache = Cache(cache_dir)
    tasks = [_prepare(job) for job in jobs]
    done: dict[int, HostCompiled] = {}
    for number, task in enumerate(tasks):
        if found := _known(task, cache, facts):
            done[number] = found
            progress(task.job, found)
    if not _open(tasks, done):
        return [done[number] for number in range(len(tasks))]
    with cache.scratch() as folder:
        for number, task in _open(tasks, done) if facts else ():
            if (files := _files_of(task, cache)) is not None:
                done[number] = _finish(task, forked.Ended(files, None, ""), cache, folder, facts)
                progress(task.job, done[number])
        work = {n: partial(_attempt, task, folder / str(n)) for n, task in _open(tasks, done)}
        for number, ended in forked.run(
            work,
            folder=folder,
            workers=workers or os.cpu_count() or 1,
            timeout=timeout,
            explain=toolchain.sentence,
        ):
            done[number] = _finish(tasks[number], ended, cache, folder, facts)
            progress(tasks[number].job, done[number])
    cache.trim()
    return [done[number] for number in range(len(tasks))]


@functools.lru_cache(maxsize=16)  # Every problem of a build asks.
def waits_often(cubin: bytes) -> bool:
    """Whether code waits so often for multiplications that the assembler may serialize them."""
    waits, multiplications = elf.wgmma_counts(cubin)
    if waits and multiplications and not _are_often(waits, multiplications):
        return False
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = toolchain.read("nvdisasm", ["--no-dataflow", "--print-code", file.name])
    return _are_often(listing.count("WARPGROUP.DEPBAR"), listing.count("HGMMA"))


def _are_often(waits: int, multiplications: int) -> bool:
    return multiplications > 1 and 2 * waits >= multiplications


def compile_ptx(text: str, kernel: str, arch: str, asked: int) -> Compiled:
    """Facts of a kernel of a PTX text, assembled by ptxas; its PTX and SASS.

    Args:
        text: The PTX.
        kernel: Its name there.
        arch: The arch that it was written for.
        asked: Bytes of shared memory that its launch asks for.

    Raises:
        ToolchainError: ptxas is missing, or refuses the text.
        UnknownNameError: The DSL does not compile for the arch.
    """
    base = CuteFacts(
        kernel=kernel, arch=archs.key(arch), target=archs.target(arch),
        toolchain=toolchain.versions(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="hypermla-ptx-") as name:
        source, cubin = Path(name, PTX), Path(name, CUBIN)
        source.write_text(text, encoding="utf-8")
        said = toolchain.ptxas(source, base.target, cubin)
        if not cubin.is_file():
            raise ToolchainError(f"ptxas refuses {kernel}: {tools.one_line(said)}")
        # Without host code, which names the launches, facts are in the order of the text.
        printed = _printed(text, cubin, ir="", ptxas=said)
    found = reading.read_facts(base, printed)
    facts = dict(zip(ptx.module(text).kernels, found, strict=True))[kernel]
    shared = {"shared_bytes": facts.shared_bytes + asked, "dynamic_shared_bytes": asked}
    facts = facts.model_copy(update=shared | {"dynamic_shared_known": True})
    return Compiled(facts, {PTX: text.encode(), SASS: printed.listing.encode()})


def identity(job: HostJob) -> str | None:
    """What tells a compile from others; None where a host function's state cannot be told."""
    return _prepare(job).key


def _open(tasks: Sequence[_Task], done: dict[int, HostCompiled]) -> list[tuple[int, _Task]]:
    return [(number, task) for number, task in enumerate(tasks) if number not in done]


def _prepare(job: HostJob) -> _Task:
    specs = signature.specs(job.host, job.arguments)
    files = sources.project_files(job.host)
    texts = [file.read_text(encoding="utf-8") for file in files]
    base = CuteFacts(
        kernel=type(job.host).__name__,
        arch=archs.key(job.arch),
        target=archs.target(job.arch),
        toolchain=toolchain.versions(),
    )
    identity = sources.identity(job.host)
    key = identity and key_of(
        {
            "facts": FACTS_VERSION,
            "base": base.model_dump(mode="json"),
            "host": identity,
            "arguments": signature.described(specs),
            "sources": [hashlib.sha256(text.encode()).hexdigest() for text in texts],
        }
    )
    return _Task(job, specs, base, key, refusal(job.host, job.arch))


def refusal(host: Any, arch: str) -> str | None:
    """Why the sources of a host function cannot be compiled for an arch; None when they can."""
    return archs.refusal(archs.features(reach.identifiers(host)), arch)


def _known(task: _Task, cache: Cache, facts: bool) -> HostCompiled | None:
    """The result where it needs no compiler: refused for its arch, or in the cache."""
    if task.refusal is not None:
        return task.failed(task.refusal)
    if task.key is None:
        return None
    for key in (task.key,) if facts else (task.key, _unread(task.key)):
        if (files := cache.get(key)) is None:
            continue
        try:
            known = _FACTS.validate_json(files[FACTS])
            return HostCompiled(known, {} if known[0].error else files, task.prefix)
        except (KeyError, ValidationError):
            cache.discard(key)
    return None


def _files_of(task: _Task, cache: Cache) -> dict[str, bytes] | None:
    """What was compiled without reading its facts, if it is kept."""
    files = cache.get(_unread(task.key)) if task.key is not None else None
    return files and {name: content for name, content in files.items() if name != FACTS}


def _unread(key: str) -> str:
    """Key of what was compiled without reading its facts."""
    return key_of({"unread": key})


def _attempt(task: _Task, folder: Path) -> dict[str, bytes]:
    """Trace and compile, or say why the DSL refuses; runs in a process of its own."""
    try:
        return _build(task, folder)
    except Exception as error:
        if not toolchain.is_verdict(error):
            raise
        return {REFUSAL: toolchain.sentence(error).encode()}


def _build(task: _Task, folder: Path) -> dict[str, bytes]:
    import cutlass.cute as cute
    from cutlass._mlir_helpers import op
    from cutlass.cute.runtime import make_fake_stream
    from cutlass.cutlass_dsl import CuTeDSL

    gc.disable()  # This process ends with the compile, and frees all at once.
    toolchain.load_runtime()
    tracing.keep_places(op)
    del sys.argv[1:]  # The DSL parses them too, and takes --h=16 for a call for help.
    folder.mkdir()
    # Host code may ask for the arch while it is traced, which would look for a GPU.
    CuTeDSL._get_dsl().envar.arch = task.base.target
    hardware.stand_in_of(task.base.arch)
    fakes = map(signature.fake, task.specs, task.job.arguments)
    options = (
        f"--gpu-arch {task.base.target} --generate-line-info --keep-ptx --keep-cubin "
        f"--dump-dir={folder}"
    )
    compiled = cute.compile(task.job.host, *fakes, make_fake_stream(), options=options)
    compiled.export_to_c(file_path=str(folder), file_name="kernel", function_prefix=task.prefix)
    return {
        PTX: compiled.__ptx__.rstrip("\0").encode(),
        CUBIN: compiled.__cubin__,
        HOST: without_binary(str(compiled.ir_module)).encode(),
        OBJECT: (folder / OBJECT).read_bytes(),
        HEADER: (folder / HEADER).read_bytes(),
    }


def _finish(
    task: _Task, ended: forked.Ended[dict[str, bytes]], cache: Cache, folder: Path, facts: bool
) -> HostCompiled:
    if ended.result is None:  # The machine's fault as much as the kernel's: not kept.
        return task.failed(ended.failure or "it gave no result")
    if REFUSAL in ended.result:
        result = task.failed(ended.result[REFUSAL].decode())
    elif facts:
        read, more = _read(task, ended.result, folder)
        result = HostCompiled(read, ended.result | more, task.prefix)
    else:
        result = HostCompiled((task.base,), ended.result, task.prefix)
    if task.key is not None:
        key = task.key if facts or result.error else _unread(task.key)
        cache.put(key, {**result.files, FACTS: _FACTS.dump_json(result.facts, indent=1)})
    return result


def _read(
    task: _Task, files: dict[str, bytes], folder: Path
) -> tuple[tuple[CuteFacts, ...], dict[str, bytes]]:
    cubin, text = folder / CUBIN, folder / PTX
    cubin.write_bytes(files[CUBIN])
    text.write_bytes(files[PTX])
    said = toolchain.ptxas(text, task.base.target)
    printed = _printed(files[PTX].decode(), cubin, ir=files[HOST].decode(), ptxas=said)
    facts = reading.read_facts(task.base, printed, sources.functions(task.job.host))
    return facts, {
        SASS: printed.listing.encode(),
        PTXAS: printed.ptxas.encode(),
        LINES: reading.source_map(printed.ptx, printed.listing).encode(),
    }


def _printed(text: str, cubin: Path, *, ir: str, ptxas: str) -> reading.Printed:
    return reading.Printed(
        ptx=text,
        listing=toolchain.read("nvdisasm", ["--print-line-info", "--print-code", cubin]),
        usage=toolchain.read("cuobjdump", ["--dump-resource-usage", cubin]),
        elf=toolchain.read("cuobjdump", ["--dump-elf", cubin]),
        ir=ir,
        ptxas=ptxas,
    )
