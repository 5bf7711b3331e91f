"""Runs a CuTe kernel on the CPU: emulates host function and PTX, and reports races and faults.

Both come from the compile cache, as static facts do: a kernel is compiled once per signature.
"""

from __future__ import annotations

import functools
import linecache
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from mla_var3 import loader
from mla_var3.errors import HyperMlaError, NotExecutableError, ToolchainError
from mla_var3.languages.cute import branches, choices, export, signature
from mla_var3.languages.cute.compile import (
    CUBIN,
    HEADER,
    HOST,
    PTX,
    HostCompiled,
    compile_host,
    refusal,
    waits_often,
)
from mla_var3.paths import kernels_dir
from mla_var3.runtime.execution import (
    Argued,
    Diagnostic,
    Execution,
    Facts,
    argued,
    counts_conflicts,
    stream,
)
from mla_var3.static.source import relative_source

if TYPE_CHECKING:
    import torch

    from mla_var3.emulator import Diagnostic as Found
    from mla_var3.emulator import Emulation, Launch, Options, Program
    from mla_var3.languages.cute.facts import CuteFacts

#: What is emulated, the first that takes a kernel: most of ours are for the oldest.
ARCHS = ("sm_90", "sm_100")
#: Clusters that run side by side in processes of their own; 0 takes every core. ``choices`` and
#: coverage note what runs in this one.
JOBS = 1
#: What the assembler may serialize; no listing is read of code without it.
MULTIPLICATION = b"wgmma.mma_async"

#: A line of PTX that names a source of ours.
_FILE = re.compile(r'(?m)^(?P<before>\s*\.file\s+\d+\s+")[^"]*/kernels?/(?P<below>[^"]+)"')
#: An index of a block or of a cluster of them.
_AXIS = re.compile(r"%(?:ctaid|clusterid)\.([xyz])")


@functools.cache
def cannot_execute() -> str | None:
    """Why CuTe kernels do not run here; None when they do."""
    from mla_var3.emulator.host import require_dsl

    try:
        require_dsl()
    except HyperMlaError as error:
        return str(error)
    return None


def execute(
    name: str,
    host: Any,
    arguments: tuple[Any, ...],
    unwritten: tuple[torch.Tensor, ...],
    known: tuple[Argued, ...] = (),
) -> Execution:
    """Run a host function on CPU tensors.

    Kernels of ours have the fences for Tensor Memory that the PTX ISA asks for, and one that is
    left out is a finding. NVIDIA's leave them out: a design of another's source, which argues
    findings, is held to the default model.

    Args:
        name: Name of the kernel.
        host: The host function.
        arguments: Its arguments without the stream.
        unwritten: The outputs; reading one before it is written is a finding.
        known: Findings that the design argues.

    Raises:
        NotExecutableError: The DSL is not installed, or the kernel needs another arch.
        ToolchainError: The kernel does not compile.
    """
    from mla_var3.emulator.options import DEFAULT, FENCED, Options

    options = Options(
        jobs=JOBS,
        counting="full" if counts_conflicts() else "basic",
        model=DEFAULT if known else FENCED,
        environment=choices.environment(),
    )
    compiled, run = emulate(name, host, arguments, unwritten, options)
    given = facts_of_arguments(name, host, arguments)
    waiting = serialized(_suspected(compiled, host, arguments))
    done = _execution(name, run, waiting, given)
    return replace(done, diagnostics=tuple(argued(d, known) for d in done.diagnostics))


def emulate(
    name: str,
    host: Any,
    arguments: tuple[Any, ...],
    unwritten: tuple[torch.Tensor, ...],
    options: Options,
) -> tuple[HostCompiled, Emulation]:
    """What was compiled of a host function, and what its launches on CPU tensors gave.

    Args:
        name: Name of the kernel.
        host: The host function.
        arguments: Its arguments without the stream.
        unwritten: The outputs; reading one before it is written is a finding.
        options: How kernels are run.

    Raises:
        NotExecutableError: The DSL is not installed, or the kernel needs another arch.
        ToolchainError: The kernel does not compile.
    """
    if (reason := cannot_execute()) is not None:
        raise NotExecutableError(f"{name}: {reason}")
    arch = next((arch for arch in ARCHS if refusal(host, arch) is None), None)
    if arch is None:
        reason = refusal(host, ARCHS[0])
        raise NotExecutableError(f"{name} can be compiled, not executed: it {reason}")
    from mla_var3.emulator.emulation import emulating

    compiled = compile_host(host, arguments, arch, facts=False)
    with emulating(options) as run:
        run.before = (on := stream()).last
        call(run, name, compiled, host, arguments, unwritten)
    on.last = run.launches[-1] if run.launches else None
    return compiled, run


def call(
    run: Emulation,
    name: str,
    compiled: HostCompiled,
    host: Any,
    arguments: tuple[Any, ...],
    unwritten: tuple[torch.Tensor, ...] = (),
) -> None:
    """Call what was compiled of a host function, as part of an emulation.

    Raises:
        ToolchainError: It did not compile.
    """
    from mla_var3.emulator import host_engines

    if compiled.error is not None:
        raise ToolchainError(f"{name} cannot be compiled: {compiled.error}")
    text = _named_here(compiled.files[PTX].decode())
    choices.note(text)
    module = compiled.files[HOST].decode()
    for tensor in filter(_is_tensor, signature.runtime_values(arguments)):
        run.own(tensor)
    for tensor in unwritten:
        run.own(tensor, unwritten=True)
    host_engines.call(run, module, text, _packed(compiled, host, arguments))


def _named_here(text: str) -> str:
    """PTX with the files of ours named as they lie here: another checkout may have compiled it."""

    def named(found: re.Match[str]) -> str:
        here = kernels_dir() / found["below"]
        return f'{found["before"]}{here}"' if here.is_file() else found[0]

    return _FILE.sub(named, text)


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "untyped_storage")


def _packed(compiled: HostCompiled, host: Any, arguments: tuple[Any, ...]) -> list[Any]:
    """C values of the arguments, as the compiled host function takes them."""
    header = compiled.files[HEADER].decode()
    about = export.arguments(header, signature.specs(host, arguments))
    values = signature.runtime_values(arguments)
    return [loader.pack(one.model_dump(), value) for one, value in zip(about, values, strict=True)]


def _suspected(
    compiled: HostCompiled, host: Any, arguments: tuple[Any, ...]
) -> tuple[CuteFacts, ...]:
    """Facts of what may be serialized, which takes a fifth of the time of a compile; else none."""
    if MULTIPLICATION not in compiled.files[PTX] or not waits_often(compiled.files[CUBIN]):
        return ()
    return compile_host(host, arguments, compiled.facts[0].arch).facts


def serialized(facts: tuple[CuteFacts, ...]) -> tuple[Diagnostic, ...]:
    """Kernels whose multiplications the assembler makes wait for each other, as the DSL never says.

    Right values do not show it, and no check under default tilings is passed with it.
    """
    return tuple(map(_waiting, (fact for fact in facts if fact.wgmma_serialized)))


def _waiting(fact: CuteFacts) -> Diagnostic:
    at = next((row for row in fact.lines if row.mma), None)
    said = f"; ptxas: {fact.warnings[0]}" if fact.warnings else ""
    return Diagnostic(
        "serialized wgmma",
        "error",
        at.file if at else "ptx",
        at.line if at else 0,
        fact.serialized.removeprefix("serialized wgmma: ") + said,
        slow=True,
    )


def _execution(
    name: str, run: Emulation, compiled: tuple[Diagnostic, ...], given: Facts
) -> Execution:
    done = Execution(
        name,
        sum(int(counts.matrix_flops.sum()) for counts in run.counts),
        run.bytes("global read"),
        run.bytes("global write"),
        (*compiled, *map(_diagnostic, run.diagnostics)),
        facts=_facts(name, run) | given,
    )
    if not counts_conflicts():
        return done
    return replace(
        done,
        bank_conflicts=sum(int(counts.conflicts.sum()) for counts in run.counts),
        sectors=sum(int(counts.sectors.sum()) for counts in run.counts),
        least_sectors=sum(int(counts.ideal.sum()) for counts in run.counts),
    )


def facts_of_arguments(name: str, host: Any, arguments: tuple[Any, ...]) -> Facts:
    """Which values the extents and the numbers had that a launch gives, none of them compiled."""
    found: Facts = {}
    for spec, value in zip(signature.specs(host, arguments), arguments, strict=True):
        # A float is worked out from the problem, such as a scale, which one head dimension fixes.
        if isinstance(spec, signature.ScalarSpec) and isinstance(value, int):
            found["argument", f"{spec.name} ({name})"] = {repr(value)}
        elif isinstance(spec, signature.TensorSpec):
            tensor = value.tensor if isinstance(value, signature.Dynamic) else value
            for axis, extent in enumerate(spec.shape):
                if extent is None:
                    place = f"axis {axis} of {spec.name} ({name})"
                    found["extent", place] = {str(tensor.shape[axis])}
    return found


def _facts(name: str, run: Emulation) -> Facts:
    """Which ways the branches of the project's own lines went, and the axes that blocks read."""
    found: Facts = {}
    for launch in run.launches:
        axes = _told(launch.counts.program).axes
        for axis, (blocks, cluster) in enumerate(zip(launch.grid, launch.cluster, strict=True)):
            if "xyz"[axis] in axes:
                place = f"axis {axis} of the grid ({name})"
                found.setdefault(("clusters", place), set()).add(
                    "later" if blocks > cluster else "only"
                )
        _add_ways(found, launch)
    return found


class _Told(NamedTuple):
    """What a kernel says of itself, whatever its launch.

    Attributes:
        axes: Axes of the grid that it reads.
        branches: Those on lines of ours: instruction, kind and place, whether it is negated.
    """

    axes: frozenset[str]
    branches: tuple[tuple[int, tuple[str, str], bool], ...]


@functools.lru_cache(maxsize=32)  # Every launch asks.
def _told(program: Program) -> _Told:
    kernel = program.kernel
    axes = {m[1] for i in kernel.instructions for m in map(_AXIS.search, i.args) if m}
    those = list(branches.branches(kernel))
    turned = {one.line for one in those if one.kind == "again"}
    places = []
    for one in those:
        file = relative_source(kernel.files.get(one.line[0], ""))
        # What goes around a loop that has no second turn tells nothing of it.
        if not file.startswith("kernels/") or (one.kind == "skip" and one.line not in turned):
            continue
        text = linecache.getline(kernel.files[one.line[0]], one.line[1]).strip()
        kind = "turn" if one.kind == "again" else one.kind
        key = kind, f"{Path(file).name}:{one.line[1]}: {text}"
        places.append((one.pc, key, kernel.instructions[one.pc].negated))
    return _Told(frozenset(axes), tuple(places))


def _add_ways(found: Facts, launch: Launch) -> None:
    """Add which ways the branches of a launch went, those of a loop together."""
    counts = launch.counts
    for pc, key, negated in _told(counts.program).branches:
        ways = found.setdefault(key, set())
        ways |= {"taken"} if counts.taken[pc] else set()
        ways |= {"passed"} if counts.passed[pc] else set()
        if counts.waited[pc]:  # It was asked once, though the first answer was no.
            ways.add("taken" if negated else "passed")


def _diagnostic(found: Found) -> Diagnostic:
    message = found.message + (f"; the other side is {found.other}" if found.other else "")
    if found.missing:
        message += f"; missing: {found.missing}"
    file = relative_source(found.at.file) if found.at.file else "ptx"
    return Diagnostic(found.kind, "error", file, found.at.line or found.at.pc, message)
