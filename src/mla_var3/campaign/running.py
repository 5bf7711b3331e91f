"""Runs a user's code on the CPU, in interpreter or emulator, and returns the kernels it launched.

``compiled`` compiles these kernels for archs.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from mla_var3 import languages
from mla_var3.archs import base_arch
from mla_var3.campaign.contract import Kind
from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.languages import Compiled
from mla_var3.runtime.execution import Diagnostic, Severity

#: Archs that a kind is compiled for when nobody asks; a file that launches PTX runs as one of them.
DEFAULT_ARCHS: dict[Kind, tuple[str, ...]] = {
    "cutile": ("sm_90", "sm_100", "sm_120"), "cute": ("sm_90",), "triton": ("sm_90",), "torch": (),
}  # fmt: skip
LANGUAGES: dict[Kind, str] = {
    "cutile": "cutile-dsl", "cute": "cute-dsl", "triton": "library", "torch": "library",
}  # fmt: skip
#: What the emulated device says that it has; persistent kernels launch as many blocks.
MULTIPROCESSORS = 4


@dataclass(frozen=True)
class Launched:
    """One kernel that a file launches, as it did first.

    Attributes:
        kernel: Name of its function.
        grid: Blocks per axis.
        source: What is compiled: kernel and arguments of cuTile, or PTX, entry and shared bytes.
        flops: Floating-point operations that ran.
    """

    kernel: str
    grid: tuple[int, ...]
    source: tuple[Any, ...]
    flops: int = 0


@dataclass
class Trace:
    """What ran inside ``on_cpu``.

    Attributes:
        kind: What ran it.
        launches: Every kernel, once for each way it was compiled, in order.
        diagnostics: Findings of all launches.
        mma_flops: Matrix FLOPs that ran; None where they are not counted.
        loaded: Bytes that loads asked for, likewise.
        stored: Bytes that stores wrote, likewise.
        count: Launches in all.
        live: Launches so far, while they run.
    """

    kind: Kind
    launches: list[Launched] = field(default_factory=list)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    mma_flops: int | None = None
    loaded: int | None = None
    stored: int | None = None
    count: int = 0
    live: Callable[[], int] = lambda: 0


def archs_of(kind: Kind, asked: str | None) -> tuple[str, ...]:
    """Archs that a file is compiled for.

    Raises:
        UnknownNameError: One is not known.
        ToolchainError: There is nothing to compile, or a file that runs as PTX is asked for two.
    """
    if asked is None:
        return DEFAULT_ARCHS[kind]
    if kind == "torch":
        raise ToolchainError("plain torch compiles no kernel, so that --arch says nothing")
    known = list(languages.find("cutile-dsl" if kind == "cutile" else "cute-dsl").known_archs())
    found = tuple(dict.fromkeys(part.strip() for part in asked.split(",")))
    for arch in found:
        if arch not in known:
            raise UnknownNameError("arch", arch, known)
    if kind != "cutile" and len(found) > 1:
        raise ToolchainError(f"a file of PTX runs as compiled for one arch: {', '.join(found)}")
    return found


@contextlib.contextmanager
def on_cpu(kind: Kind, archs: Sequence[str]) -> Iterator[Trace]:
    """Answers by the CPU what is asked of a GPU inside the block; the trace is whole at its end.

    Uninitialized tensors hold NaN, so that an element that nobody wrote shows.

    Args:
        kind: What runs the kernels.
        archs: What is compiled for; PTX runs as compiled for the first.
    """
    trace = Trace(kind)
    runs = {"cutile": _interpreted, "torch": _plain}.get(kind, _emulated)
    with runs(trace, archs), _poisoned():
        yield trace


@contextlib.contextmanager
def _plain(_trace: Trace, _archs: Sequence[str]) -> Iterator[None]:
    from mla_var3.gpuless.cuda import cuda_on_cpu

    with cuda_on_cpu():
        yield


@contextlib.contextmanager
def _interpreted(trace: Trace, _archs: Sequence[str]) -> Iterator[None]:
    from mla_var3.interpreter.launcher import launched
    from mla_var3.interpreter.redirect import redirected

    with redirected() as reports, launched() as found:
        trace.live = lambda: len(reports)
        yield
    trace.count = len(reports)
    trace.mma_flops = sum(report.mma_flops for report in reports)
    trace.loaded = sum(report.bytes_loaded for report in reports)
    trace.stored = sum(report.bytes_stored for report in reports)
    trace.diagnostics = [
        Diagnostic(d.kind, d.severity, d.file, d.line, d.message)
        for report in reports
        for d in report.diagnostics
    ]
    by_name: dict[str, Any] = {}
    for report in reports:
        by_name.setdefault(report.kernel, report)
    for kernel, args in found.values():
        name = str(kernel._pyfunc.__name__)
        first = by_name.get(name)
        grid = tuple(first.grid) if first else ()
        flops = sum(first.flops.values()) if first else 0
        trace.launches.append(Launched(name, grid, (kernel, args), flops))


@contextlib.contextmanager
def _emulated(trace: Trace, archs: Sequence[str]) -> Iterator[None]:
    from mla_var3.emulator.options import Options
    from mla_var3.emulator.script import environment
    from mla_var3.languages.cute import arch as targets

    options = Options(jobs=1, multiprocessors=MULTIPROCESSORS)
    with environment(options, targets.target(archs[0])) as emulation:
        trace.live = lambda: len(emulation.launches)
        yield
    trace.count = len(emulation.launches)
    trace.mma_flops = sum(int(counts.matrix_flops.sum()) for counts in emulation.counts)
    trace.loaded, trace.stored = emulation.bytes("global read"), emulation.bytes("global write")
    severity: Severity = "error"
    trace.diagnostics = [
        Diagnostic(d.kind, severity, d.at.file or "ptx", d.at.line or d.at.pc, d.message)
        for d in emulation.diagnostics
    ]
    first = {launch.kernel: launch for launch in reversed(emulation.launches)}
    for (text, name), shared in emulation.asked.items():
        launch = first.get(name)
        grid = tuple(launch.grid) if launch else ()
        flops = int(launch.counts.total_flops) if launch else 0
        trace.launches.append(Launched(name, grid, (text, name, shared), flops))


@contextlib.contextmanager
def _poisoned() -> Iterator[None]:
    """Uninitialized tensors of floating point hold NaN."""
    import torch

    def filled(original: Any) -> Any:
        def make(*args: Any, **kwargs: Any) -> Any:
            tensor = original(*args, **kwargs)
            if tensor.is_floating_point() and not tensor.is_meta and tensor.element_size() > 1:
                tensor.fill_(float("nan"))
            return tensor

        return make

    with contextlib.ExitStack() as stack:
        for name in ("empty", "empty_like"):
            stack.enter_context(mock.patch.object(torch, name, filled(getattr(torch, name))))
        yield


def compiled(trace: Trace, archs: Sequence[str]) -> dict[str, list[Compiled]]:
    """What the compilers make of each kernel of a trace, by arch."""
    if trace.kind == "cutile":
        return _of_cutile(trace, archs)
    if not archs:
        return {}
    from mla_var3.languages.cute.compile import compile_ptx

    (arch,) = archs
    made = []
    for one in trace.launches:
        found = compile_ptx(one.source[0], one.source[1], arch, one.source[2])
        named = found.facts.model_copy(update={"kernel": short(found.facts.kernel)})
        made.append(dataclasses.replace(found, facts=named))
    return {arch: made}


def _of_cutile(trace: Trace, archs: Sequence[str]) -> dict[str, list[Compiled]]:
    from mla_var3.languages.cutile.compile import TileJob, compile_many

    jobs = [TileJob(one.source[0], one.source[1], arch) for arch in archs for one in trace.launches]
    made = compile_many(jobs)
    size = len(trace.launches)
    return {arch: made[i * size : (i + 1) * size] for i, arch in enumerate(archs)}


def short(kernel: str) -> str:
    """A kernel's name without what the CuTe DSL puts around it: module before, types after."""
    found = re.search(r"(?:^|_)kernel_cutlass_(\w+?)_(?:__main__|tensor|[A-Z]\w*object|\d)", kernel)
    return found[1] if found else kernel


def arch_key(arch: str) -> str:
    """An arch as records name it."""
    return base_arch(arch)
