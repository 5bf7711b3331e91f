"""Writes report.md: a run's records as text with tables, for people and language models."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from mla_var3 import evidence, paths, roofline
from mla_var3.evidence import Correctness, Passed, Record, Stage
from mla_var3.profiling import counted, timeline
from mla_var3.roofline import Prediction
from mla_var3.runtime import costs
from mla_var3.runtime.tiling import tiling_text
from mla_var3.static.occupancy import of_facts
from mla_var3.static.sass import mma_note
from mla_var3.tables import cell, table

BOUND_HEADER = ("device", "bound us", "set by", "reference us", "rate of the reference")
STAGE_HEADER = ("stage", "grid", "tiling", "GFLOP", "MB", "FLOP/B", "median us", "bound us")
STATIC_HEADER = (
    "stage", "registers", "stack B", "spill loads/stores", "shared B", "MMA", "TMA loads/stores",
    "blocks per SM (limiter)",
)  # fmt: skip
COUNTED_HEADER = (
    "stage", "FLOP/B of the model", "FLOP/B counted", "ridge", "TFLOP/s", "DRAM GB/s counted",
    "median us", "bound us", "times the bound",
)  # fmt: skip
#: Said where no advice is.
NOTHING = "Nothing was found: no pattern's trigger fires on what these records state."
SIDES = {"compute": "tensor throughput", "memory": "DRAM bandwidth", "power": "board power"}


def correctness_text(found: Correctness | None) -> str:
    """One line on what was compared."""
    if found is None:
        return "not checked in this run"
    worst = found.max_relative_error
    text = (
        f"{found.status} against {found.against}: {len(found.cases)} problem(s), largest relative "
        f"error {'not finite' if worst is None else f'{worst:.1e}'} (allowed {found.tolerance:.0e})"
    )
    return text if found.message is None else f"{text}; {found.message}"


def attained(prediction: Prediction) -> str:
    """The rate behind a reference time, as its source words it; empty where none was attained."""
    match = re.match(r"measured_\S+ (.+?): ", prediction.source)
    return match.group(1) if match else ""


def limits(record: Record, stage: Stage) -> list[str]:
    """What holds a stage back, worst first, each with the fact that says so."""
    found, facts = [], stage.static
    if facts is not None and facts.spills:
        found.append(
            f"register spills: {facts.registers} registers and {facts.stack_bytes} bytes of "
            f"stack, {facts.spill_loads} local loads and {facts.spill_stores} local stores in the "
            "code"
        )
    if facts is not None and facts.serialized:
        found.append(facts.serialized)
    if facts is not None and (note := mma_note(facts.mma_path, facts.arch)):
        found.append(note)
    held = of_facts(facts, roofline.device_of(record))
    if held is not None and held.blocks_per_sm <= 1:
        found.append(
            f"one block per SM, by {held.limiter} ({held.warps} warps): no other hides its waits"
        )
    if (least := costs.bound(record, stage)) is not None:
        found.append(
            f"bound by {SIDES[least.bound]} on {least.device}: {_digits(least.intensity)} FLOP/B "
            f"against a ridge of {least.ridge:.0f}"
        )
    return found


def _digits(rate: float) -> str:
    """A rate in whole numbers from 10 on, else two digits: 0.12 is not 0."""
    return f"{rate:.0f}" if rate >= 10 else f"{rate:.2g}"


def _bounds(record: Record, brief: bool) -> list[str]:
    own = roofline.device_of(record)
    shown = [own] if brief and own is not None else roofline.devices_of(record)
    rows = []
    for device in shown:
        least = costs.bound(record, device=device)
        good = costs.reference(record, device=device)
        if least is not None:
            rate = attained(good) if good is not None else ""
            time = f"{good.time_us:.1f}" if good is not None and rate else ""
            rows.append([device.key, f"{least.time_us:.1f}", SIDES[least.bound], time, cell(rate)])
    if not rows:
        return []
    about = (
        "No kernel that does this work can beat the bound; where the problem leaves open how to do "
        "it, the bound is of the best way. The reference time is what the same work takes at the "
        "rate that the named kernel attained, or at a power and the joules that were measured."
    )
    return ["### Bound", "", about, "", table(BOUND_HEADER, rows), ""]


def _measured(record: Record, outcome: Passed) -> list[str]:
    total, share = outcome.total, costs.fraction(record)
    if total is None:
        return []
    text = (
        f"Measured: median {total.median_us:.1f} us (min {total.min_us:.1f}, max "
        f"{total.max_us:.1f}, {total.samples} runs)"
    )
    measured = f"{text}, {1 / share:.2f} times the bound." if share else f"{text}."
    return [measured, "", *_drawn(outcome)]


def _drawn(outcome: Passed) -> list[str]:
    drawn = outcome.energy
    if drawn is None:
        return []
    clock = f" at {drawn.sm_clock_mhz:.0f} MHz" if drawn.sm_clock_mhz else ""
    held = f", held down by {' and '.join(drawn.throttle)}" if drawn.throttle else ""
    return [
        f"Back to back: {drawn.launch_us:.1f} us, {drawn.joules:.3g} J per launch, "
        f"{drawn.watts:.0f} W{clock}{held}.",
        "",
    ]


def _stage_row(record: Record, stage: Stage) -> list[object]:
    least, work = costs.bound(record, stage), costs.cost(record, stage)
    return [
        stage.name,
        "x".join(map(str, stage.grid)),
        tiling_text(stage.tiling),
        f"{work.flops / 1e9:.3g}" if work else "",
        f"{work.bytes / 1e6:.4g}" if work else "",
        f"{work.flops / work.bytes:.0f}" if work and work.bytes else "",
        f"{stage.duration.median_us:.1f}" if stage.duration else "",
        f"{least.time_us:.1f}" if least is not None else "",
    ]


def _static_row(record: Record, stage: Stage) -> list[object]:
    facts = stage.static
    assert facts is not None
    held = of_facts(facts, roofline.device_of(record))
    return [
        stage.name,
        facts.registers,
        facts.stack_bytes,
        f"{facts.spill_loads}/{facts.spill_stores}",
        facts.shared_bytes,
        facts.mma_path,
        f"{facts.tma_loads}/{facts.tma_stores}",
        f"{held.blocks_per_sm} ({held.limiter})" if held is not None else "",
    ]


def _stages(record: Record, outcome: Passed) -> list[str]:
    rows = [_stage_row(record, stage) for stage in outcome.stages]
    lines = ["### Stages", "", table(STAGE_HEADER, rows), ""]
    compiled = [_static_row(record, stage) for stage in outcome.stages if stage.static]
    if compiled:
        lines += ["### What the compiler made of it", "", table(STATIC_HEADER, compiled), ""]
    lines += ["### What limits each stage", ""]
    for stage in outcome.stages:
        lines += [f"- **{stage.name}**", *(f"    - {x}" for x in limits(record, stage))]
    return [*lines, ""]


def _counted(record: Record, outcome: Passed) -> list[str]:
    """The stages beside the roofline as counted, then what else the profiler counted."""
    places = counted.places(record)
    titles, rows = counted.columns({stage.name: stage.counters for stage in outcome.stages})
    if not rows:
        return []
    beside = table(COUNTED_HEADER, [_place_row(place) for place in places])
    lines = ["### Counters beside the roofline", "", *([beside, ""] if beside else [])]
    return [*lines, table(titles, rows, all_columns=True), ""]


def _place_row(place: counted.Place) -> list[str]:
    found = place.figures
    digits = ("model_flop_per_byte", "counted_flop_per_byte", "ridge_flop_per_byte", "tflops",
              "counted_gbps", "median_us", "bound_us")  # fmt: skip
    shown = [f"{found[x]:,.1f}" if isinstance(found[x], float) else "" for x in digits]
    times = found["times_the_bound"]
    return [place.stage.name, *shown, f"{times:.2f}" if isinstance(times, float) else ""]


def _timeline(outcome: Passed) -> list[str]:
    """How much of the busy time kernels shared, and where each ran."""
    stages = [stage for stage in outcome.stages if timeline.OVERLAP in stage.counters]
    if not stages:
        return []
    share = stages[0].counters[timeline.OVERLAP]
    verdict = f"Two kernels or more ran at once for {share:.1%} of the time in which any ran."
    rows = [
        [stage.name, *timeline.shown(stage.counters)]
        for stage in stages
        if timeline.START in stage.counters
    ]
    lines = ["### Overlap that was achieved", "", verdict, ""]
    return [*lines, table(timeline.HEADER, rows), ""] if rows else lines


def _remarks(outcome: Passed) -> list[str]:
    rows = [
        [stage.name, f"{r.file}:{r.line}", r.kind, cell(r.message)]
        for stage in outcome.stages
        for r in getattr(stage.static, "remarks", ())
    ]
    header = ("stage", "where", "kind", "remark")
    return ["### Compiler remarks", "", table(header, rows), ""] if rows else []


def render_one(record: Record, *, brief: bool = False) -> str:
    """The section of one record; ``brief`` leaves the remarks out."""
    outcome = record.outcome
    lines = [f"## {record.target}, mode {record.mode}", ""]
    match outcome:
        case evidence.Skipped():
            lines += [f"**Skipped**: {outcome.reason}", ""]
        case evidence.Failed():
            where = f" in stage {outcome.stage}" if outcome.stage else ""
            lines += [f"**Failed{where}**: {outcome.error}", ""]
        case Passed():
            lines += [f"Correctness: {correctness_text(outcome.correctness)}.", ""]
            lines += _bounds(record, brief) + _measured(record, outcome)
            lines += _stages(record, outcome) + _counted(record, outcome) + _timeline(outcome)
            lines += [] if brief else _remarks(outcome)
    return "\n".join(lines)


def numbered(steps: Sequence[str] | None) -> list[str]:
    """Steps as a list; says so where none was found, and is empty where nobody looked."""
    if steps is None:
        return []
    return [f"{number}. {step}" for number, step in enumerate(steps, 1)] or [NOTHING]


def facts(known: Sequence[tuple[str, str]]) -> str:
    """What the records say of a version, a line per fact."""
    return "\n".join(f"- **{cell(name)}**: {cell(said)}" for name, said in known)


def _provenance(record: Record) -> str:
    if record.git is None:
        return "Commit unknown."
    changed = {True: " with changes", False: "", None: ", changes unknown"}[record.git.dirty]
    return f"Commit {record.git.commit[:12]}{changed}."


def render(
    found: Sequence[Record],
    next_steps: Sequence[str] | None = None,
    artefacts: Iterable[Path] = (),
    *,
    known: Sequence[tuple[str, str]] = (),
    brief: bool = False,
) -> str:
    """The whole report.

    Args:
        found: Records of one version, any number of targets.
        next_steps: Lines on what to try next; None where nobody looked.
        artefacts: Files the run left, named at the end.
        known: What the records say of the version: a name and a sentence per fact.
        brief: Leave the compiler's remarks out, as the command line does.
    """
    first = found[0]
    problem = ", ".join(f"{k}={v}" for k, v in first.problem.items() if v is not None)
    steps = numbered(next_steps)
    files = [f"- `{paths.relative(path)}`" for path in artefacts]
    lines = [
        f"# {first.kernel.name}",
        "",
        f"Language {first.kernel.language}, workload {first.kernel.layer}, problem {problem}.",
        _provenance(first),
        "",
        *([facts(known), ""] if known else []),
        *(render_one(record, brief=brief) for record in found),
    ]
    for title, content in (("What to try next", steps), ("Files", files)):
        lines += [f"## {title}", "", *content, ""] if content else []
    return "\n".join(lines)
