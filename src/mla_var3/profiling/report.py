"""report.md: what a run found, for people and for language models; a function of records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mla_var3 import devices
from mla_var3.errors import HyperMlaError
from mla_var3.records import Correctness, Failed, Passed, Record, Stage


def table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A Markdown table; pipes inside cells are escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(
        "| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def tiling_text(tiling: Mapping[str, object]) -> str:
    """Set tiling fields as ``tile_m=64 tile_n=64 num_worker_warps=8``."""
    hints = ("occupancy", "num_ctas", "num_worker_warps")
    ordered = [k for k in tiling if k not in hints] + [k for k in hints if k in tiling]
    return " ".join(f"{k}={tiling[k]}" for k in ordered if tiling[k] is not None)


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


def main_device(record: Record) -> str | None:
    """Key of the device that stands for the record's target in prose."""
    if not record.target.startswith("static/"):
        return record.target
    try:
        return devices.default_for_arch(record.target.removeprefix("static/")).key
    except HyperMlaError:
        return None


def limits(stage: Stage, device: str | None = None) -> list[str]:
    """What holds the stage back, worst first, each with the fact that says so.

    Args:
        stage: A record's stage.
        device: Only this device's roofline; all that were predicted when None.
    """
    found = []
    if stage.static is not None:
        spills = stage.static["spill_loads"] + stage.static["spill_stores"]
        if spills:
            found.append(
                f"register spills: {stage.static['registers']} registers and "
                f"{stage.static['stack_bytes']} bytes of stack, {stage.static['spill_loads']} "
                f"local loads and {stage.static['spill_stores']} local stores in the code"
            )
        if reason := stage.static.get("mma_note"):
            found.append(str(reason))
        occupancy = stage.static.get("occupancy")
        if occupancy is not None and occupancy["blocks_per_sm"] <= 1:
            found.append(
                f"one block an SM, limited by {occupancy['limiter']} "
                f"({occupancy['warps']} warps): latency must be hidden inside the block"
            )
    for prediction in stage.predictions:
        if device is not None and prediction.device != device:
            continue
        side = "tensor throughput" if prediction.bound == "compute" else "DRAM bandwidth"
        found.append(
            f"on {prediction.device}: {side}, {prediction.intensity:.0f} FLOP/B against a ridge "
            f"of {prediction.ridge:.0f}"
        )
    return found


def _stage_rows(outcome: Passed) -> list[list[object]]:
    rows: list[list[object]] = []
    for stage in outcome.stages:
        row: list[object] = [
            stage.name,
            "x".join(map(str, stage.grid)),
            tiling_text(stage.tiling),
            f"{stage.flops / 1e9:.3g}",
            f"{stage.bytes / 1e6:.4g}",
            f"{stage.flops / stage.bytes:.0f}" if stage.bytes else "",
        ]
        row.append(f"{stage.duration.median_us:.1f}" if stage.duration else "")
        rows.append(row)
    return rows


def _static_rows(outcome: Passed) -> list[list[object]]:
    rows: list[list[object]] = []
    for stage in outcome.stages:
        if (facts := stage.static) is None:
            continue
        occupancy = facts.get("occupancy") or {}
        rows.append(
            [
                stage.name,
                facts["registers"],
                facts["stack_bytes"],
                f"{facts['spill_loads']}/{facts['spill_stores']}",
                facts["shared_bytes"],
                facts["mma_path"],
                f"{facts['tma_loads']}/{facts['tma_stores']}",
                f"{occupancy.get('blocks_per_sm', '?')} ({occupancy.get('limiter', '?')})",
            ]
        )
    return rows


STAGE_HEADER = (
    "stage", "grid", "tiling", "GFLOP", "MB", "FLOP/B", "median us",
)  # fmt: skip
ROOFLINE_HEADER = ("device", "TFLOP/s", "GB/s", "ceilings", "at least us", "bound")
STATIC_HEADER = (
    "stage", "registers", "stack B", "spill loads/stores", "shared B", "MMA", "TMA loads/stores",
    "blocks an SM (limiter)",
)  # fmt: skip


def render_one(record: Record, *, brief: bool = False) -> str:
    """The section of one record; ``brief`` leaves the remarks out."""
    outcome = record.outcome
    lines = [f"## {record.target}, mode {record.mode}", ""]
    if isinstance(outcome, Failed):
        where = f" in stage {outcome.stage}" if outcome.stage else ""
        return "\n".join([*lines, f"**Failed{where}**: {outcome.error}", ""])
    lines += [f"Correctness: {correctness_text(outcome.correctness)}.", ""]
    device = main_device(record)
    shown = [p for p in outcome.predictions if not brief or device in (None, p.device)]
    if shown:
        header: Sequence[str] = ROOFLINE_HEADER
        rows: list[list[object]] = [
            [
                p.device,
                f"{p.tflops_ceiling:g}",
                f"{p.gbps_ceiling:g}",
                p.ceiling_kind,
                f"{p.time_us:.1f}",
                p.bound,
            ]
            for p in shown
        ]
        lines += ["### Roofline", "", table(header, rows), ""]
    if outcome.total is not None:
        share = (
            f", {outcome.roofline_fraction:.1%} of the roofline"
            if outcome.roofline_fraction is not None
            else ""
        )
        lines += [
            f"Measured: median {outcome.total.median_us:.1f} us (min {outcome.total.min_us:.1f}, "
            f"max {outcome.total.max_us:.1f}, {outcome.total.samples} runs){share}.",
            "",
        ]
    header, rows = list(STAGE_HEADER), _stage_rows(outcome)
    if not any(row[-1] for row in rows):
        header, rows = header[:-1], [row[:-1] for row in rows]
    lines += ["### Stages", "", table(header, rows), ""]
    if static_rows := _static_rows(outcome):
        lines += ["### What the compiler made of it", "", table(STATIC_HEADER, static_rows), ""]
    lines += ["### What limits each stage", ""]
    for stage in outcome.stages:
        lines += [f"- **{stage.name}**", *(f"    - {x}" for x in limits(stage, device))]
    lines.append("")
    remarks = [
        (stage.name, remark)
        for stage in outcome.stages
        if stage.static and not brief
        for remark in stage.static.get("remarks", ())
    ]
    if remarks:
        rows = [[name, f"{r['file']}:{r['line']}", r["kind"], r["message"]] for name, r in remarks]
        lines += ["### Compiler remarks", "", table(("stage", "where", "kind", "remark"), rows), ""]
    return "\n".join(lines)


def render(
    found: Sequence[Record],
    next_steps: Sequence[str] = (),
    artefacts: Sequence[str] = (),
    *,
    brief: bool = False,
) -> str:
    """The whole report.

    Args:
        found: Records of one version, any number of targets.
        next_steps: Lines on what to try next.
        artefacts: Files the run left, named at the end.
        brief: Leave the compiler's remarks out, as the command line does.
    """
    first = found[0]
    problem = ", ".join(f"{k}={v}" for k, v in first.problem.items() if v is not None)
    lines = [
        f"# {first.kernel.design} {first.kernel.version}",
        "",
        f"Language {first.kernel.language}, layer {first.kernel.layer}, problem {problem}.",
        f"Sources {first.kernel.source_sha256[:12]}, commit {first.git.commit[:12]}"
        f"{' with changes' if first.git.dirty else ''}.",
        "",
        *(render_one(record, brief=brief) for record in found),
    ]
    if next_steps:
        lines += [
            "## What to try next",
            "",
            *(f"{i}. {x}" for i, x in enumerate(next_steps, 1)),
            "",
        ]
    if artefacts:
        lines += ["## Files", "", *(f"- `{path}`" for path in artefacts), ""]
    return "\n".join(lines)
