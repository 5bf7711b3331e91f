"""Makes the folded part of a version's page: times, static facts, checks, failures."""

from __future__ import annotations

from generators.draw import tiles
from generators.model import problems, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import proofs
from generators.pages.kernels import (
    compiled_for,
    language_title,
    registers_and_spills,
)
from generators.write import figures
from generators.write.static_facts import facts_tables, tiling_words
from generators.write.text import cell, fold, sections, table
from mla_var3.evidence import Failed, Skipped
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime import tiling_text
from mla_var3.runtime.registry import Version


def section(site: Site, version: Version, before: Version | None, patterns: str, link: Link) -> str:
    """Everything measured and compiled, each folded under a line that sums it up.

    Args:
        site: All inputs.
        version: The version.
        before: The version before; None for the first.
        patterns: Those that it applies or shows.
        link: Addresses as seen from the page.
    """
    runs = site.runs_of(version)
    timed = sum(run.is_timed for run in runs)
    compiled = [f"{arch} {text}" for arch in compiled_for(version) if (text := _sum(runs, arch))]
    checks = [check for run in runs if (check := proofs.checked(run)) is not None]
    passed = sum(check.status == "passed" for check in checks)
    return sections(
        fold("Times", f"{timed} records" if timed else "none yet", _results(site, runs, link)),
        fold("Static facts", "; ".join(compiled) or proofs.NO_RECORD,
             _static(site, version, before, link)),
        fold("Tiles on each arch", "drawn to scale", tiles.section(site, version, link)),
        fold("Correctness", f"{passed} of {len(checks)} records passed",
              _checks(site, runs, link)),
        fold("Runs that did not pass", "", _failures(site, runs, link)),
        fold("Patterns", "which it applies or shows", patterns),
    )  # fmt: skip


def _sum(runs: list[Run], arch: str) -> str:
    """Registers and spills of an arch in a few words."""
    found = registers_and_spills(runs, arch).partition(" (")[0].split(", ")
    if len(found) != 2:
        return ""
    spills = "no spills" if found[1] == "0" else f"{found[1]} spill instructions"
    return f"{found[0]} registers, {spills}"


def _where_run(site: Site, run: Run) -> list[str]:
    return [
        cell(targets.target_name(run.record.target)),
        cell(site.problem_text(run)),
    ]


def _static(site: Site, version: Version, before: Version | None, link: Link) -> str:
    runs = site.runs_of(version)
    earlier = site.runs_of(before) if before else []
    tables = facts_tables(runs, version, earlier, before, link)
    if not tables:
        if not compiled_for(version):
            return f"{cell(language_title(version.language))} compiles nothing."
        return proofs.no_record(site, version)
    compiled = [run.record for run in runs if run.record.mode == "static"]
    common = problems.sizes(compiled[0], problems.constant(compiled)) if compiled else ""
    changes = " Where the version before differs, its figure stands first." if before else ""
    return sections(
        cell(f"At {common}.{changes}" if common else changes.strip()),
        *(f"**{cell(name)}**\n\n{shown}" for name, shown in tables.items()),
        tiling_words(runs, version),
    )


def _none(what: str) -> str:
    return f"No record of this version was {what} yet."


def _results(site: Site, runs: list[Run], link: Link) -> str:
    timed = [run for run in runs if run.is_timed]
    rows = []
    for run in timed:
        total = run.total
        rows.append(
            [
                *_where_run(site, run),
                cell(run.record.mode),
                figures.duration(total),
                f"{figures.amount('total_us', total.min_us)} to "
                f"{figures.amount('total_us', total.max_us)}, {total.samples} samples",
                figures.rate(run, "flops"),
                figures.rate(run, "bytes"),
                figures.fraction(run),
                figures.record_link(run, link),
            ]
        )
    head = [
        "Device", "Problem", "Mode", "Median", "Range", "Arithmetic", figures.LEAST_BYTES,
        figures.OF_BOUND, "Record",
    ]  # fmt: skip
    return sections(
        table(head, rows) or _none("timed"),
        figures.RATES if rows else "",
        _stages(site, timed, link),
    )


def _stages(site: Site, timed: list[Run], link: Link) -> str:
    rows = []
    for run in timed:
        assert run.outcome is not None
        for stage in run.outcome.stages:
            if stage.duration is None:
                continue
            time, work = stage.duration.median_us, run.work_of(stage)
            rows.append(
                [
                    *_where_run(site, run),
                    cell(run.record.mode),
                    cell(stage.name),
                    cell(tiling_text(stage.tiling)),
                    " x ".join(map(str, stage.grid)),
                    figures.duration(stage.duration),
                    figures.amount("achieved_tflops", work.flops / time / 1e6) if work else "",
                    figures.amount("achieved_gbps", work.bytes / time / 1e3) if work else "",
                    figures.record_link(run, link),
                ]
            )
    head = [
        "Device", "Problem", "Mode", "Stage", "Tiling", "Grid", "Median", "Arithmetic",
        figures.LEAST_BYTES, "Record",
    ]  # fmt: skip
    shown = table(head, rows)
    return f"**Stages**\n\n{shown}" if shown else ""


def _checks(site: Site, runs: list[Run], link: Link) -> str:
    """Checked runs by target and reference; those that failed one by one."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        if (found := proofs.checked(run)) is not None:
            groups.setdefault((run.record.target, found.against), []).append(run)
    rows, failed = [], []
    for (target, against), group in groups.items():
        checks = [proofs.checked(run) for run in group]
        made = [check for check in checks if check is not None]
        cases = [case.max_relative_error for check in made for case in check.cases]
        errors = [error for error in cases if error is not None]
        rows.append(
            [
                cell(targets.target_name(target)),
                cell(against),
                f"{sum(check.status == 'passed' for check in made)} of {len(made)} passed",
                str(len(cases)),
                f"{max(errors):.1e}" if len(errors) == len(cases) else "not finite",
                f"{max(check.tolerance for check in made):.0e}",
            ]
        )
        failed += [
            [
                *_where_run(site, run),
                cell(check.message or check.status),
                figures.record_link(run, link),
            ]
            for run, check in zip(group, checks, strict=True)
            if check is not None and check.status == "failed"
        ]
    head = ["Where", "Against", "Records", "Problems", "Largest relative error", "Allowed"]
    if not rows:
        return ""
    return sections(
        table(head, rows),
        table(["Where", "Problem", "What failed", "Record"], failed),
    )


def why_not(run: Run) -> tuple[str, str, str]:
    """Stage, status and sentence of a run that did not end well; empty for one that did."""
    match run.record.outcome:
        case Failed(error=error, stage=stage):
            return stage or "", "failed", error
        case Skipped(reason=reason):
            return "", "skipped", reason
    return "", "", ""


def _failures(site: Site, runs: list[Run], link: Link) -> str:
    rows = [
        [*_where_run(site, run), cell(stage), status, cell(said), figures.record_link(run, link)]
        for run in runs
        for stage, status, said in [why_not(run)]
        if said
    ]
    return table(["Where", "Problem", "Stage", "Outcome", "Why", "Record"], rows)
