"""Compiles third-party packages' kernels for the court, at the launches that their cases list.

A case names a package, a kernel in it and the arguments of one launch. No source of a package is
kept: ``results/court/strangers.json`` keeps the facts of a compile and a CPU run, and ``court
--strangers FOLDER`` makes it anew from a folder into which the packages were installed.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import math
import os
import pickle
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from pydantic import TypeAdapter

from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.evidence.facts import StaticFacts
from mla_var3.gpuless.device import Device, capability
from mla_var3.knowledge.court.cases import Launch, Stranger
from mla_var3.knowledge.court.observing import ARCH, Counted, Seen, SeenStage, Work
from mla_var3.paths import repo_root, write_atomic
from mla_var3.static import sass, tools

TABLE = "results/court/strangers.json"
#: Language of a Triton kernel, which no page of a language is about.
TRITON = "triton"

_TENSOR = re.compile(r"(?P<dtype>\w+)\[(?P<shape>[\d,]+)\](?:/(?P<strides>[\d,]+))?")
_DTYPES = {"bf16": "bfloat16", "f16": "float16", "f32": "float32", "i32": "int32"}
_TABLE = TypeAdapter(dict[str, Seen])


def load(root: Path | None = None) -> dict[str, Seen]:
    """What was observed, by the id of the case; empty where nothing was."""
    path = (root or repo_root()) / TABLE
    return _TABLE.validate_json(path.read_bytes()) if path.is_file() else {}


def renew(
    cases: Iterable[Stranger],
    folder: Path,
    root: Path | None = None,
    say: Callable[[str], None] = print,
    *,
    fresh: bool = False,
) -> Path:
    """Compile the kernels of packages that the table lacks, and write what was observed.

    Args:
        cases: The list; cases of CUTLASS's examples are passed over.
        folder: What holds the packages, as ``pip install --target`` leaves them.
        root: Top of the checkout.
        fresh: Compile also what the table has.
        say: Told of each kernel.

    Raises:
        KnowledgeError: A kernel is not there or does not compile.
    """
    wanted = [case for case in cases if case.launch is not None]
    known = {} if fresh else load(root)
    found = {case.id: known[case.id] for case in wanted if case.id in known}
    with _importable(folder):
        for case in wanted:
            if case.id not in found:
                say(f"compiling {case.id}: {case.kernel} of {case.package}")
                found[case.id] = observe(case, folder)
    content = {name: seen.model_dump(mode="json") for name, seen in sorted(found.items())}
    for item in content.values():
        for stage in item["stages"]:
            stage["static"].pop("lines", None)
            for remark in stage["static"].get("remarks", ()):
                remark["file"] = Path(remark["file"]).name
    path = (root or repo_root()) / TABLE
    write_atomic(path, TypeAdapter(Any).dump_json(content, indent=1) + b"\n")
    return path


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The packages of a folder can be imported, and see a device of the court's arch."""
    import torch

    with (
        mock.patch.object(sys, "path", [str(folder), *sys.path]),
        mock.patch.object(torch.cuda, "get_device_capability", return_value=capability(ARCH)),
    ):
        yield


def observe(case: Stranger, folder: Path) -> Seen:
    """Compile the kernel of a case, and count its work where a CPU does.

    Raises:
        KnowledgeError: It is not there or does not compile.
    """
    try:
        facts, counted = _observed(case, folder)
    except HyperMlaError as error:
        raise KnowledgeError(f"{case.id}: {error}") from error
    assert case.launch is not None
    if facts.error is not None:
        raise KnowledgeError(f"{case.id} does not compile: {facts.error}")
    stage = SeenStage(
        name="kernel", kernel="kernel", tiling=case.launch.tiling, grid=case.grid,
        static=facts.model_copy(update={"lines": ()}),
        work=Work(flops=case.flops, bytes=case.bytes),
    )  # fmt: skip
    return Seen(
        language=facts.language, layer=case.layer, problem=case.problem, stages=(stage,),
        counted=counted,
    )  # fmt: skip


def _observed(case: Stranger, folder: Path) -> tuple[StaticFacts, Counted | None]:
    launch = case.launch
    assert launch is not None
    if launch.keywords is not None:
        return _cute(case, launch, folder), None
    if launch.constants is not None:
        with _triton_device():
            return _triton(_kernel(case), launch), None
    kernel = _kernel(case)
    return _cutile(kernel, launch), _counted(kernel, case)


def _kernel(case: Stranger) -> Any:
    """The kernel; its file alone where the package asks for more than is installed."""
    module, _, name = case.kernel.partition(":")
    try:
        try:
            found = importlib.import_module(module)
        except ImportError:
            found = _alone(module)
        return getattr(found, name)
    except (ImportError, AttributeError) as error:
        raise KnowledgeError(f"{case.id}: {case.package} has no {case.kernel}: {error}") from error


def _alone(module: str) -> Any:
    file = Path(*module.split(".")).with_suffix(".py")
    path = next((p for top in sys.path if (p := Path(top) / file).is_file()), None)
    spec = None if path is None else importlib.util.spec_from_file_location(file.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {file}")
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found


def tensor(text: str, device: str) -> Any:
    """A tensor from its form, such as ``bf16[32,128]`` or, with strides, ``bf16[32,64]/128,2``."""
    import torch

    found = _TENSOR.fullmatch(text)
    if found is None or found["dtype"] not in _DTYPES:
        raise KnowledgeError(f"{text!r} is no form of a tensor, such as bf16[32,128]")
    shape = [int(extent) for extent in found["shape"].split(",")]
    dtype = getattr(torch, _DTYPES[found["dtype"]])
    if found["strides"] is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    strides = [int(stride) for stride in found["strides"].split(",")]
    return torch.zeros(
        1 + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True)),
        dtype=dtype, device=device,
    ).as_strided(shape, strides)  # fmt: skip


def _arguments(given: Sequence[Any], device: str) -> tuple[Any, ...]:
    return tuple(tensor(each, device) if isinstance(each, str) else each for each in given)


def _cutile(kernel: Any, launch: Launch) -> StaticFacts:
    from mla_var3.languages.cutile.compile import compile_kernel

    hinted = kernel.replace_hints(**launch.hints) if launch.hints else kernel
    return compile_kernel(hinted, _arguments(launch.arguments, "meta"), ARCH)


def _counted(kernel: Any, case: Stranger) -> Counted | None:
    """The work of a smaller launch, in the interpreter."""
    from mla_var3.interpreter import launch

    small = case.counted
    if small is None:
        return None
    report = launch(small.grid, kernel, _arguments(small.arguments, "cpu"))
    return Counted(
        problem={**case.problem, **small.problem}, flops=report.flops.get("mma", 0),
        loaded=sum(line.bytes_loaded for line in report.bytes_by_line.values()),
        least=Work(flops=small.flops, bytes=small.bytes),
    )  # fmt: skip


def _cute(case: Stranger, launch: Launch, folder: Path) -> StaticFacts:
    """Facts of the kernel that a host function compiles before its first launch."""
    from mla_var3.examples.compile_all import read_module

    with tempfile.TemporaryDirectory(prefix="hypermla-court-") as name:
        script = Path(name) / "call.py"
        script.write_text(_call(case.kernel, launch), encoding="utf-8")
        done = subprocess.run(
            [sys.executable, "-c", _COMPILE, script, folder, ARCH, Path(name) / "made"],
            capture_output=True, check=False,
            env={**os.environ, "QUACK_CACHE_DIR": name},  # A kernel of its cache is not compiled.
        )  # fmt: skip
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip().splitlines()
            raise KnowledgeError(f"it does not compile: {said[-1] if said else 'no word'}")
        modules = pickle.loads(done.stdout)
        found = [f for m in modules for f in read_module(m, ARCH, Path(name) / "kernel.cubin")]
    return found[0]


#: Run in a process of its own, since it stands in for the GPU.
_COMPILE = """
import pickle, sys
from pathlib import Path
from mla_var3.languages.cute import arch as archs
from mla_var3.examples.harness import compile_example
out, sys.stdout = sys.stdout, sys.stderr
script, folder, arch, made = sys.argv[1:]
found = compile_example(Path(script), Path(folder), arch, archs.target(arch), Path(made))
out.buffer.write(pickle.dumps(found))
"""


def _call(kernel: str, launch: Launch) -> str:
    module, _, name = kernel.partition(":")
    lines = ["import torch", f"from {module} import {name}", "arguments = []"]
    for each in launch.arguments:
        found = _TENSOR.fullmatch(each) if isinstance(each, str) else None
        value = repr(each)
        if found is not None:
            dtype = f"torch.{_DTYPES[found['dtype']]}"
            value = f"torch.empty([{found['shape']}], dtype={dtype}, device='cuda')"
        lines.append(f"arguments.append({'None' if each == 'none' else value})")
    lines.append(f"{name}(*arguments, **{launch.keywords!r})")
    return "\n".join(lines) + "\n"


# -- Triton ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def _triton_device() -> Iterator[None]:
    """Triton compiles for the court's arch, and nobody looks for a GPU."""
    from triton.runtime import driver

    from mla_var3.emulator.triton import Driver
    from mla_var3.gpuless.cuda import cuda_on_cpu

    device = Device(capability(ARCH))
    ours = Driver(None, device)  # type: ignore[arg-type]
    with mock.patch.multiple(driver, _active=ours, _default=ours), cuda_on_cpu(device):
        yield


def _triton(kernel: Any, launch: Launch) -> StaticFacts:
    """Facts of a Triton kernel; its tuner's configurations are passed over."""
    arguments = [_given(each) for each in launch.arguments]
    constants = {name: _given(each) for name, each in (launch.constants or {}).items()}
    made = _untuned(kernel).warmup(*arguments, grid=(1,), **constants, **launch.hints)
    return _of_cubin(made.asm["cubin"], made.metadata.shared, 32 * made.metadata.num_warps)


def _untuned(kernel: Any) -> Any:
    """A kernel without its tuners, at any depth below its heuristics."""
    if hasattr(kernel, "configs"):
        return _untuned(kernel.fn)
    if not hasattr(kernel, "fn") or not hasattr(kernel, "values"):
        return kernel
    plain = copy.copy(kernel)
    plain.fn = _untuned(kernel.fn)
    return plain


def _given(value: Any) -> Any:
    """An argument as Triton compiles it: ``none``, ``tl.float32``, or a tensor by its dtype."""
    if not isinstance(value, str):
        return value
    if value == "none":
        return None
    if value.startswith("tl."):
        from triton import language

        return getattr(language, value.removeprefix("tl."))
    return tensor(value, "meta").dtype if _TENSOR.fullmatch(value) else value


def _of_cubin(cubin: bytes, shared: int, threads: int) -> StaticFacts:
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        listing = tools.run(tools.disassembler("nvdisasm"), ["--print-code", file.name])
        usage = tools.run(tools.disassembler("cuobjdump"), ["--dump-resource-usage", file.name])
    instructions = sass.parse_listing(listing)
    resources = sass.parse_resources(usage)[0]
    mix = sass.instruction_mix(instructions)
    mma = sass.mma_instructions(instructions)
    return StaticFacts(
        language=TRITON, kernel="kernel", arch=ARCH, registers=resources.registers,
        stack_bytes=resources.stack_bytes, spill_loads=mix.get("LDL", 0),
        spill_stores=mix.get("STL", 0), shared_bytes=shared, dynamic_shared_bytes=shared,
        threads_per_block=threads, warps_per_block=math.ceil(threads / 32),
        instructions=len(instructions), instruction_mix=mix, mma_instructions=mma,
        mma_path=sass.mma_path(mma, on_cuda_cores=False),
        tma_loads=sum(mix.get(name, 0) for name in sass.TMA_LOADS),
        tma_stores=sum(mix.get(name, 0) for name in sass.TMA_STORES),
        async_copies=mix.get("LDGSTS", 0),
    )  # fmt: skip
