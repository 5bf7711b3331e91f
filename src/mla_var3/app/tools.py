"""Command ``tools``: one question each about a version: time, utilization, bandwidth, code.

Times and rates come from the newest timed record at the nearest problem, and name its run. What no
record says is not worked out here: ``profile`` measures it.
"""

from __future__ import annotations

import difflib
import itertools
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from mla_var3 import arguments, devices, front
from mla_var3.app.naming import asked_language
from mla_var3.arguments import named
from mla_var3.errors import ToolchainError, UnknownNameError, UsageError
from mla_var3.evidence import Passed
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version
from mla_var3.tables import microseconds

if TYPE_CHECKING:
    from mla_var3.evidence import Duration, Record, Stage
    from mla_var3.languages import Compiled
    from mla_var3.runtime.kernel import Kernel
    from mla_var3.static.sass import Instruction

PROG = "python -m mla_var3.app.tools"
#: Lines of a file and opcodes that are shown unless all are asked for.
SHOWN = 20

Design = Annotated[tyro.conf.Positional[str], named("D")]
Number = Annotated[tyro.conf.Positional[str | None], named("[V]")]


# -- what records say -----------------------------------------------------------------------------


def time(design: Design, version: Number = None, problem: str = "", device: str = "") -> None:
    """Time of a version and of each stage, from its newest timed record.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language.
        version: The version; v0 by default.
        problem: Sizes, as b=32,s=1; the nearest problem that was timed is taken.
        device: Key of a device; any by default.
    """
    found = timed(design, version, problem, device)
    _head(found)
    for name, stage in parts(found):
        duration = stage.duration if stage is not None else _total(found)
        if duration is not None:
            print(f"{name}: {duration.median_us:,.2f} us ({duration.min_us:,.2f} to "
                  f"{duration.max_us:,.2f}, {duration.samples} samples)")  # fmt: skip


def utilization(
    design: Design, version: Number = None, problem: str = "", device: str = ""
) -> None:
    """Share of the tensor peak: by the cost model over the time, and as counted where it was.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language.
        version: The version; v0 by default.
        problem: Sizes, as b=32,s=1; the nearest problem that was timed is taken.
        device: Key of a device; any by default.
    """
    _rates(timed(design, version, problem, device), "FLOP", "TFLOP/s", 1e6)


def bandwidth(design: Design, version: Number = None, problem: str = "", device: str = "") -> None:
    """Share of the DRAM rate: by the cost model over the time, and as counted where it was.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language.
        version: The version; v0 by default.
        problem: Sizes, as b=32,s=1; the nearest problem that was timed is taken.
        device: Key of a device; any by default.
    """
    _rates(timed(design, version, problem, device), "bytes", "GB/s", 1e3)


def ceilings(device: Annotated[tyro.conf.Positional[str], named("DEVICE")]) -> None:
    """Rates of a device by element type: those that nothing beats, and those that were attained.

    Args:
        device: Key or name of the device.
    """
    from mla_var3.errors import DeviceFigureError

    board = devices.find(device)
    for dtype in ("bfloat16", "float16", "float8"):
        for what, stated in (("bound", board.bound), ("attained", board.ceilings)):
            try:
                rates = stated(dtype)
            except DeviceFigureError as error:
                print(f"{dtype}, {what}: {error}")
                continue
            if what == "attained" and rates.source_kind == "published":
                print(f"{dtype}, attained: nobody measured it")
                continue
            print(
                f"{dtype}, {what}: {rates.tflops:,g} TFLOP/s, {rates.gbps:,g} GB/s, from "
                f"{rates.ridge:.4g} FLOP/byte on arithmetic rules ({rates.source_kind})"
            )
    if board.vendor == "NVIDIA":
        print("measured on the device by: python scripts/measure-ceilings.py")


def trials(design: Design, version: Number = None, problem: str = "", device: str = "") -> None:
    """Tilings that the autotuner tried here, each run by itself, the fastest first.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language.
        version: The version; v0 by default.
        problem: Sizes, as b=32,s=1; the defaults else.
        device: Key of a device; that of campaigns by default.
    """
    from mla_var3.app.campaign import DEVICE, sizes_of
    from mla_var3.runtime import autotune
    from mla_var3.runtime.tiling import tiling_text

    found = registry.find(design, version, asked_language(design, None))
    board = devices.find(device or DEVICE)
    plan = found.plan_of(sizes_of(problem))
    plan = plan.resolve(board.machine(plan.dtype))
    plan.validate()
    known = autotune.history(found, plan, board.key)
    if not known:
        raise ToolchainError(
            f"no tiling of {found.key} at {plan.slug()} was tried on {board.key}: "
            f"nox -s profile -- {found.key} --prof_type=event --retune does so on a GPU"
        )
    order = sorted(known, key=lambda one: (one["time"], one["run"], one["stage"],
                                           one["time_us"] or float("inf")))  # fmt: skip
    for (when, run, stage), group in itertools.groupby(
        order, key=lambda one: (one["time"], one["run"], one["stage"])
    ):
        print(f"{found.key} {stage} at {plan.slug()} on {board.key}, run {run}, {when}")
        for one in group:
            said = one["error"] if one["time_us"] is None else f"{one['time_us']:,.2f} us"
            print(f"  {tiling_text(one['tiling'])}: {said}")


def plan(
    design: Annotated[tyro.conf.Positional[str], named("D|FILE")],
    version: Number = None,
    problem: str = "",
    device: str = "",
    accept: str = "",
) -> None:
    """The profile plan: Step 0's ceilings, then what to measure by which command; runs nothing.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language. Or an adopted file.
        version: The version; v0 by default.
        problem: Sizes, as b=32,s=1; their defaults else.
        device: Key of a device, of NVIDIA or AMD; that of campaigns by default.
        accept: Figures that may stay UNKNOWN, as of Step 0.
    """
    from mla_var3.app.adopting import is_file
    from mla_var3.app.campaign import DEVICE, sizes_of, step_zero
    from mla_var3.campaign import measuring

    board = devices.find(device or DEVICE)
    subject = [design, *([version] if version else [])]
    sizes, is_amd = sizes_of(problem), board.vendor == "AMD"
    if is_amd and not is_file(design):
        raise UsageError(
            f"{design} compiles for NVIDIA alone; {board.name} runs adopted Triton and plain "
            "PyTorch files"
        )
    if is_amd:
        measuring.require_amd(Path(design), board)
    found = step_zero(subject, board.key, problem, accept)
    flags = [f"--{name}={value}" for name, value in sizes.items()]
    steps = (
        measuring.of_amd(Path(design), sizes, found.work.dtype, board)
        if is_amd
        else measuring.of_nvidia(subject, flags)
    )
    print(f"{found.work.name}: {found.work}")
    for what, us in found.ceilings():
        print(f"{what} ceiling on {board.key}: {microseconds(us)} us")
    print(f"target: {microseconds(found.target_us)} us")
    print("\n".join(measuring.lines(steps)))
    if is_amd:
        print(f"not run: no {board.name} is here, and this project times by CUDA alone")


def timed(design: str, version: str | None, problem: str, device: str) -> Record:
    """The newest timed record of a version at the nearest problem.

    Raises:
        UnknownNameError: There is no such version or device.
        ToolchainError: It was never timed there.
    """
    from mla_var3 import evidence
    from mla_var3.app.campaign import sizes_of
    from mla_var3.knowledge.joining import distance

    found = registry.find(design, version, asked_language(design, None))
    target = devices.find(device).key if device else None
    known = found.plan_class()().problem()
    mine = evidence.find(
        target=target, language=found.language, design=found.design, version=found.version,
        mode="event",
    )  # fmt: skip
    records = [record for record in mine if record.is_timed]
    given = {name: value for name, value in known.items() if value is not None}
    asked = sizes_of(problem)
    for name in asked:
        if name not in known:
            raise UnknownNameError("field", name, list(known))
    if not records:
        where = f" on {target}" if target else ""
        raise ToolchainError(f"{found.key} was not timed{where}: nox -s profile -- {found.key} "
                             "--prof_type=event does so on a GPU")  # fmt: skip
    return max(records, key=lambda r: (-round(distance(r.problem, {**given, **asked}), 6), r.time))


def parts(record: Record) -> Iterator[tuple[str, Stage | None]]:
    """The whole, and its stages where there are several."""
    yield "whole", None
    stages = record.outcome.stages if isinstance(record.outcome, Passed) else []
    if len(stages) > 1:
        yield from ((stage.name, stage) for stage in stages)


def _total(record: Record) -> Duration | None:
    return record.outcome.total if isinstance(record.outcome, Passed) else None


def _head(record: Record) -> None:
    from mla_var3.evidence import state_of

    state = state_of(record)
    note = f", {state}" if state.is_stale else ""
    print(f"{record.kernel.name} at {record.slug} on {record.target}, run {record.run}{note}")


def _rates(record: Record, what: str, unit: str, scale: float) -> None:
    from mla_var3 import roofline
    from mla_var3.runtime import costs

    _head(record)
    board = roofline.device_of(record)
    dtype = roofline.dtype_of(record)
    rates = roofline.rates_of(board, dtype, bound=True) if board is not None else None
    for name, stage in parts(record):
        duration = stage.duration if stage is not None else _total(record)
        cost = costs.cost(record, stage)
        if duration is None or cost is None:
            print(f"{name}: its work is not known")
            continue
        amount = cost.flops if what == "FLOP" else cost.bytes
        rate = amount / duration.median_us / scale
        peak = None if rates is None else rates.tflops if what == "FLOP" else rates.gbps
        share = "" if peak is None else f", {rate / peak:.1%} of {peak:,g} {unit}"
        print(f"{name}: {rate:,.1f} {unit}{share} ({amount:,} {what} by the cost model)")
    for name, value in _counters(record, what):
        print(f"{name}: {value:,.1f} % as Nsight Compute counts it")


def _counters(record: Record, what: str) -> Iterator[tuple[str, float]]:
    """What a profiler counted of the same version at the same problem, by stage."""
    from mla_var3 import evidence

    word = "pipe_tensor" if what == "FLOP" else "dram__throughput"
    kernel = record.kernel
    mine = evidence.find(target=record.target, language=kernel.language, design=kernel.design,
                         version=kernel.version)  # fmt: skip
    found = [r for r in mine if r.slug == record.slug]
    for one in evidence.newest(r for r in found if r.mode in ("ncu", "annotation")):
        for stage in getattr(one.outcome, "stages", []):
            for counter, value in stage.counters.items():
                if word in counter and "pct" in counter:
                    yield f"{stage.name} {counter}", value


# -- what compilers made --------------------------------------------------------------------------


def asm(
    design: Annotated[tyro.conf.Positional[str], named("D|FILE")],
    version: Annotated[tyro.conf.Positional[str | None], named("[V|FILE2]")] = None,
    other: Annotated[tyro.conf.Positional[str | None], named("[V2]")] = None,
    arch: str = "",
    stage: str = "",
    problem: str = "",
    form: str = "sass",
    full: Annotated[bool, tyro.conf.FlagCreatePairsOff] = False,
) -> None:
    """Machine code of a version or an adopted file by source line, or how it differs from another.

    Args:
        design: The design; DESIGN@LANGUAGE takes it in that language. Or an adopted file.
        version: The version; v0 by default. Or a second file.
        other: A second version: opcodes that it has more and less of.
        arch: What to compile for; sm_90, or the file's own, by default.
        stage: A stage, or a kernel of a file, by its name; all by default.
        problem: Sizes, as b=32,s=1; their defaults else.
        form: sass, or ptx where the compiler leaves it.
        full: Every instruction in order; of PTX its text; of two versions their difference.
    """
    from mla_var3.app.adopting import is_file

    if form not in ("sass", "ptx"):
        raise UnknownNameError("form", form, ["sass", "ptx"])
    if is_file(design):
        if other is not None or (version is not None and not is_file(version)):
            raise UsageError(f"{design} is a file, which is compared with one other file")
        pair = [design, *([version] if version else [])]
        codes = {name: _code_of_file(Path(name), arch, stage, problem) for name in pair}
    else:
        language = asked_language(design, None)
        keys = [version, *([other] if other is not None else [])]
        found = [registry.find(design, key, language) for key in keys]
        codes = {one.key: _code(one, arch or "sm_90", stage, problem) for one in found}
    if len(codes) == 1:
        _listed_all(*codes.popitem(), form=form, full=full)
    else:
        _compared(codes, form=form, full=full)


def _listed_all(name: str, made: Mapping[str, Compiled], *, form: str, full: bool) -> None:
    for stage, one in made.items():
        title = f"{name} {stage} {one.facts.arch}"
        if full and form == "ptx":
            print(f"// {title}\n{_ptx(one)}")
        else:
            _listed(title, _instructions(one, form), full)


def _compared(codes: Mapping[str, Mapping[str, Compiled]], *, form: str, full: bool) -> None:
    (first, mine), (second, theirs) = codes.items()
    for stage in sorted(mine.keys() | theirs.keys()):
        if stage not in mine or stage not in theirs:
            print(f"{stage}: only {first if stage in mine else second} has this stage")
            continue
        pair = _instructions(mine[stage], form), _instructions(theirs[stage], form)
        _differs(f"{stage} {mine[stage].facts.arch}: {first} to {second}", *pair, full=full)


def _code_of_file(path: Path, arch: str, stage: str, problem: str) -> dict[str, Compiled]:
    """What each kernel of an adopted file compiles to.

    Raises:
        UnknownNameError: There is no such kernel.
        ToolchainError: It launches none, or one does not compile.
    """
    from mla_var3.app.campaign import sizes_of
    from mla_var3.campaign import adopted, running

    found = adopted.adopt(path, arch.partition(",")[0] or None)
    archs = found.archs[:1]
    trace = found.check(sizes_of(problem)).trace
    if not archs or not trace.launches:
        raise ToolchainError(f"{path} launches no kernel that is compiled here")
    (made,) = running.compiled(trace, archs).values()
    names = [name for name, _ in adopted.named(trace)]
    return _chosen(dict(zip(names, made, strict=True)), stage, str(path))


def _code(version: Version, arch: str, stage: str, problem: str) -> dict[str, Compiled]:
    """What each stage compiles to.

    Raises:
        UnknownNameError: There is no such arch or stage.
        ToolchainError: A kernel does not compile.
    """
    from mla_var3.app.campaign import sizes_of
    from mla_var3.languages import CompileJob
    from mla_var3.languages.stage_facts import compile_jobs
    from mla_var3.profiling.static import parse_archs, resolved

    (asked,) = parse_archs(arch.partition(",")[0], version.language)
    plan = resolved(version.plan_of(sizes_of(problem)), asked, None)
    stages: dict[str, Kernel] = dict(plan.plan(*plan.prepare_inputs("meta")).stages())
    if stage and stage not in stages:
        raise UnknownNameError("stage", stage, list(stages))
    chosen = {name: kernel for name, kernel in stages.items() if stage in ("", name)}
    made = compile_jobs([CompileJob(kernel, asked) for kernel in chosen.values()])
    return _chosen(dict(zip(chosen, made, strict=True)), stage, version.key)


def _chosen(made: Mapping[str, Compiled], stage: str, name: str) -> dict[str, Compiled]:
    """Those that were asked for, all of them compiled."""
    if stage and stage not in made:
        raise UnknownNameError("stage", stage, list(made))
    found = {key: one for key, one in made.items() if stage in ("", key)}
    for key, one in found.items():
        if one.facts.error is not None:
            raise ToolchainError(f"{name} {key} does not compile for {one.facts.arch}: "
                                 f"{' '.join(one.facts.error.split())[:300]}")  # fmt: skip
    return found


def _file(made: Compiled, suffix: str) -> str | None:
    found = (text for name, text in made.files.items() if name.endswith(suffix))
    return next((text.decode("utf-8", "replace") for text in found), None)


def _instructions(made: Compiled, form: str) -> list[Instruction]:
    """SASS or PTX instructions, each with its source line."""
    from mla_var3.static import sass

    if form == "ptx":
        return _of_ptx(_ptx(made))
    text = _file(made, ".sass")
    if text is None:
        raise ToolchainError("the compiler left no SASS")
    return sass.parse_listing(text)


def _ptx(made: Compiled) -> str:
    text = _file(made, ".ptx")
    if text is None:
        raise ToolchainError("the compiler of cuTile leaves no PTX; --form=sass")
    return text


def _of_ptx(text: str) -> list[Instruction]:
    from mla_var3.gpuless import ptx
    from mla_var3.static.sass import Instruction

    kernels = ptx.parse(text).kernels.values()
    return [Instruction(one.op, *k.place(one)) for k in kernels for one in k.instructions]


def _listed(title: str, found: Sequence[Instruction], full: bool) -> None:
    """Instructions in order, or opcodes by source line, the heaviest lines first."""
    from mla_var3.static.source import relative_source

    print(f"{title}: {len(found)} instructions")
    if full:
        for one in found:
            where = f"{relative_source(one.file)}:{one.line}" if one.file and one.line else ""
            print(f"  {one.opcode:<40} {where}".rstrip())
        return
    by_line: dict[tuple[str, int], list[Instruction]] = {}
    for one in found:
        by_line.setdefault((one.file or "", one.line or 0), []).append(one)
    order = sorted(by_line.items(), key=lambda pair: -len(pair[1]))
    for (file, line), group in order[:SHOWN]:
        mix = ", ".join(f"{n} {name}" for name, n in Counter(i.base for i in group).most_common(6))
        place = f"{relative_source(file)}:{line}" if file and line else "no line"
        print(f"  {len(group):>5}  {place}  {_source(file, line)}\n         {mix}")
    if len(order) > SHOWN:
        print(f"  and {len(order) - SHOWN} lines more; --full lists every instruction")


def _source(file: str, line: int) -> str:
    """The line's own text, where the file is here."""
    try:
        rows = Path(file).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return ""
    return rows[line - 1].strip()[:80] if 0 < line <= len(rows) else ""


def _differs(
    title: str, one: Sequence[Instruction], other: Sequence[Instruction], *, full: bool
) -> None:
    """Opcodes of which the second has more or less, or both lists' difference."""
    print(f"{title}: {len(one)} to {len(other)} instructions")
    if full:
        rows = difflib.unified_diff([i.opcode for i in one], [i.opcode for i in other], n=2,
                                    lineterm="")  # fmt: skip
        for row in list(rows)[2:]:
            print(f"  {row}")
        return
    old, new = Counter(i.base for i in one), Counter(i.base for i in other)
    changed = sorted((name for name in old | new if old[name] != new[name]),
                     key=lambda name: (-abs(new[name] - old[name]), name))  # fmt: skip
    if not changed:
        print("  the same opcodes as often")
    for name in changed[:SHOWN]:
        print(f"  {new[name] - old[name]:+6}  {name}: {old[name]} to {new[name]}")
    if len(changed) > SHOWN:
        print(f"  and {len(changed) - SHOWN} opcodes more; --full shows where")


COMMANDS: dict[str, Callable[..., None]] = {
    "time": time, "utilization": utilization, "bandwidth": bandwidth, "ceilings": ceilings,
    "asm": asm, "trials": trials, "plan": plan,
}  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command that ``argv`` (the process's by default) names; returns the exit code."""
    argv = sys.argv[1:] if argv is None else argv
    command, rest, prog = arguments.choose(COMMANDS, argv, PROG)
    arguments.parse(command, rest, prog)
    return 0


if __name__ == "__main__":
    front.run("mla_var3.app.tools:main")
