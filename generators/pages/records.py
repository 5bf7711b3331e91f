"""Makes the record pages: one per version and target, with an anchor per record and its JSON."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from generators.model import problems, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import record_facts
from generators.pages.kernels import run_version
from generators.pages.proofs import checked
from generators.pages.version_facts import why_not
from generators.write import figures
from generators.write.page import Page
from generators.write.text import cell, fold, meta, sections, table
from mla_var3 import evidence, roofline
from mla_var3.evidence import Passed, Record, Stage, StaticFacts
from mla_var3.evidence.compare import said as said_of
from mla_var3.evidence.compare import than
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Catalogue
from mla_var3.runtime import costs, tiling_text
from mla_var3.static.occupancy import of_facts

FOLDER = "records"
#: All records as one table.
TABLE = f"{FOLDER}/records.parquet"
#: How many of a run's versions stand beside a record.
_NEIGHBORS = 5
#: Records of a run that stand whole on the page; of more a table does.
_WHOLE = 3


# -- addresses -------------------------------------------------------------------------------------


def raw(name: str) -> str:
    """Where the site has the JSON of the record ``results/<…>/<mode>``."""
    return f"{FOLDER}/{name.removeprefix('results/')}.json"


def address(name: str) -> str:
    """Page and anchor of the record ``results/<…>/<version>/<slug>/<mode>``."""
    version, slug, mode = raw(name).removesuffix(".json").rsplit("/", 2)
    return f"{version}.md#{slug}-{mode}"


def address_in(name: str, run: str) -> str:
    """Page and anchor of what the named run gave, where a later run has a record of that name."""
    return f"{address(name)}@{run}"


def raw_of(page: str, anchor: str) -> str:
    """The JSON that ``page`` shows at ``anchor``: the way back from ``address``.

    A run that was measured again since has no JSON of its own; the table of all records has it.
    """
    if "@" in anchor:
        return f"{page.partition(f'{FOLDER}/')[0]}{TABLE}"
    slug, _, mode = anchor.rpartition("-")
    return f"{page.removesuffix('.md')}/{slug}/{mode}.json"


def contents(site: Site) -> list[Page]:
    """Files of the records: each as JSON with its run, and all of them as one table."""
    made = [
        Page(raw(run.name), run.record.model_dump_json(indent=1, exclude_none=True) + "\n")
        for run in site.runs
    ]
    return [*made, Page(TABLE, parquet(site.catalogue))]


def parquet(catalogue: Catalogue) -> bytes:
    """All records as one Parquet file, a row per record; see ``evidence.frame``."""
    table = evidence.frame(catalogue.index.records, stale=catalogue.is_stale)
    for name in table.columns:
        kinds = {type(value) for value in table[name].dropna()}
        if str in kinds and len(kinds) > 1:  # One design takes an axis as a number, another not.
            table[name] = table[name].map(str, na_action="ignore")
    held = io.BytesIO()
    table.to_parquet(held, index=False)
    return held.getvalue()


def places(site: Site) -> Mapping[str, str]:
    """The anchor of each record, and under ``#json`` the file itself."""
    shown = {run.name: address(run.name) for run in site.runs}
    # A citation of a named run leads to that run's own figures, measured again since or not.
    shown |= {
        f"{run.name}@{run.record.run}": address_in(run.name, run.record.run)
        for run in site.earlier
        if run.record.run is not None and run.name in shown
    }
    shown |= {
        f"{run.name}@{run.record.run}": shown[run.name]
        for run in site.runs
        if run.record.run is not None
    }
    table_of_all = {"results/records.parquet": TABLE}
    return {**shown, **{f"{run.name}#json": raw(run.name) for run in site.runs}, **table_of_all}


# -- pages -----------------------------------------------------------------------------------------


def pages(site: Site) -> list[Page]:
    """A page per version and target, in the order of the records."""
    grouped = groupby(site.runs, key=lambda run: address(run.name).partition("#")[0])
    return [_page(site, path, list(runs)) for path, runs in grouped]


def _page(site: Site, path: str, runs: list[Run]) -> Page:
    link, first = site.link(path), runs[0].record
    where, design = targets.target_name(first.target), figures.called(first)
    title = f"Records of {design} {first.kernel.version} on {where}"
    kinds = Counter(run.record.outcome.status for run in runs)
    return Page(
        path,
        sections(
            meta(title=title, description=title, search={"exclude": True}),
            f"# {cell(title)}",
            f"What {run_version(site, runs[0], link)} did on "
            f"[{cell(where)}]({link(f'results/{first.target}')}), run by run: "
            f"{', '.join(f'{count} {status}' for status, count in kinds.items())}. Each stands as "
            "it was observed; bounds and ratios are worked out when the page is made. The newest "
            "run stands here, each other one behind its line.",
            _reproduced(site, runs, link),
            *_by_run(site, runs, link),
        ),
        nav=("Results", where, design, f"Records of {first.kernel.version}"),
    )


def _by_run(site: Site, runs: list[Run], link: Link) -> Iterator[str]:
    """The newest run that timed something as it is, each other run behind a line that names it."""
    named: dict[str | None, list[Run]] = {}
    rest: list[Run] = []
    for run in sorted(runs, key=lambda run: run.record.time, reverse=True):
        held = named.setdefault(run.record.run, []) if run.is_timed and run.record.run else rest
        held.append(run)
    first, *others = [*named.values(), rest]
    whole = [_record(site, run, link) for run in _in_order(first)]
    if len(whole) > _WHOLE:
        yield _overview(site, _in_order(first))
        yield fold("Each of these", f"{len(whole)} records in full", sections(*whole))
    else:
        yield from whole
    for found in filter(None, others):
        shown = sections(*(_record(site, run, link) for run in _in_order(found)))
        yield fold(*_titled(site, found, rest), shown)


def _reproduced(site: Site, runs: list[Run], link: Link) -> str:
    """The command that makes the page's first record anew, and where those of the others stand."""
    timed = [run for run in runs if run.is_timed] or runs
    newest = max(timed, key=lambda run: run.record.time).record.run
    first = _in_order([run for run in timed if run.record.run == newest])[0]
    command = record_facts.again(site, first, link)
    if not command:
        return ""
    others = record_facts.beside(site, first)
    beside = f" With the other versions of its design, in one run: {others}." if others else ""
    each = " Each record below ends with a command of its own." if len(runs) > 1 else ""
    return f"**Run it again**, here at {cell(site.problem_text(first))}: {command}.{beside}{each}"


def _overview(site: Site, runs: list[Run]) -> str:
    """A line per record of a run, which leads to the record."""
    rows = []
    for run in runs:
        anchor, same = address(run.name).partition("#")[2], _same(site, run)
        best = min(same, key=_median) if run.is_timed and len(same) > 1 else run
        rows.append(
            [
                f"[{cell(site.problem_text(run))}](#{anchor})",
                figures.duration(run.total) if run.is_timed else cell(run.record.outcome.status),
                figures.fraction(run) if run.is_timed else "",
                said_of(best.total.median_us, run.total.median_us)
                if best is not run
                else "the fastest"
                if len(same) > 1
                else "",
            ]
        )
    head = ["Problem", "Median", figures.OF_BOUND, "Against the fastest of its run"]
    return table(head, rows, right=["Median"])


def _in_order(runs: list[Run]) -> list[Run]:
    return sorted(runs, key=lambda run: problems.problem_of(run.record).order)


def _titled(site: Site, found: list[Run], rest: list[Run]) -> tuple[str, str]:
    """What is said of runs before they are opened: of a single record its problem."""
    if len(found) == 1 and found is not rest:
        run = found[0]
        day = f"{run.record.time:%Y-%m-%d}"
        return f"Run of {day}", f"{site.problem_text(run)}, {figures.duration(run.total)}"
    count = f"{len(found)} record{'s' if len(found) > 1 else ''}"
    if found is rest:
        return "Records without a time", count
    days = sorted({f"{run.record.time:%Y-%m-%d}" for run in found})
    return f"Run of {days[0]}", f"{found[0].record.run}, {count}"


def _record(site: Site, run: Run, link: Link) -> str:
    """One record: its number first and whether it is good, then how it came to be."""
    anchor, said = address(run.name).partition("#")[2], record_facts.facts(run)
    return sections(
        f"## {cell(site.problem_text(run))}, {run.record.mode} {{ #{anchor} }}",
        _said(site, run, link),
        "\n".join(f"- **{name}**: {text}" for name, text in said.items() if text),
        _stages(run),
        _compared(site, run, link),
        _earlier(site, run, link),
        f"[Download the JSON]({link(f'{run.name}#json')}){_again(site, run, link)}",
    )


def _again(site: Site, run: Run, link: Link) -> str:
    command = record_facts.again(site, run, link)
    return f" · Run it again: {command}" if command else ""


# -- the number, and whether it is good ------------------------------------------------------------


def _said(site: Site, run: Run, link: Link) -> str:
    _, status, why = why_not(run)
    parts = [f"**{status.capitalize()}**: {cell(why)}." if why else _time(site, run, link)]
    found = checked(run)
    if found is not None:
        parts.append("Its output is right." if found.status == "passed" else "**Wrong output.**")
    if run.stale:
        parts.append("**Stale**: the code has changed since.")
    return " ".join(filter(None, parts))


def _time(site: Site, run: Run, link: Link) -> str:
    if not run.is_timed:
        return ""
    share, same = figures.fraction(run), _same(site, run)
    said = f"**{figures.duration(run.total)}**" + (f", {share} of the bound" if share else "")
    if len(same) == 1:
        return f"{said}."
    best = min(same, key=_median)
    if best is run:
        return f"{said}; the fastest of its run."
    name = run_version(site, best, link)
    behind = than(best.total.median_us, run.total.median_us, name)
    return f"{said}; {behind}, the fastest of its run."


def _same(site: Site, run: Run) -> list[Run]:
    """The timed runs whose times compare with a run's, it among them."""
    return site.companions.get(problems.together(run), [run])


def _median(run: Run) -> float:
    return run.total.median_us


# -- stages ----------------------------------------------------------------------------------------

_STAGES = (
    "Stage", "Tiling", "Grid", "Median", "Arithmetic", figures.LEAST_BYTES, "Registers",
    "Spill loads / stores", "Shared memory", "MMA path", "Blocks per SM",
)  # fmt: skip


def _stages(run: Run) -> str:
    stages = run.outcome.stages if run.outcome else []
    counters = [
        [cell(stage.name), f"`{name}`", f"{value:,.6g}"]
        for stage in stages
        for name, value in stage.counters.items()
    ]
    return sections(
        table(_STAGES, [_stage(run.record, stage) for stage in stages]),
        fold("Counters", f"{len(counters)} of Nsight Compute",
             table(["Stage", "Counter", "Value"], counters)),
    ).strip()  # fmt: skip


def _stage(record: Record, stage: Stage) -> list[str]:
    time = stage.duration.median_us if stage.duration else None
    work, rates = costs.cost(record, stage), ["", ""]
    if time is not None and work is not None:
        rates = [
            figures.amount("achieved_tflops", work.flops / time / 1e6),
            figures.amount("achieved_gbps", work.bytes / time / 1e3),
        ]
    return [
        cell(stage.name),
        cell(tiling_text(stage.tiling)),
        " x ".join(map(str, stage.grid)),
        figures.duration(stage.duration),
        *rates,
        *(_compiled(record, stage.static) if stage.static else [""] * 5),
    ]


def _compiled(record: Record, facts: StaticFacts) -> Iterator[str]:
    if facts.error is not None:
        yield cell(f"failed: {facts.error}")
        yield from [""] * 4
        return
    held = of_facts(facts, roofline.device_of(record))
    spills = facts.spill_loads, facts.spill_stores
    yield str(facts.registers)
    yield "{} / {}".format(*spills) if any(spills) else "none"
    yield f"{facts.shared_bytes:,} bytes"
    yield cell(facts.mma_path)
    yield f"{held.blocks_per_sm} ({held.limiter})" if held else ""


# -- beside what else ran --------------------------------------------------------------------------


class _Place(NamedTuple):
    """A run and its place among those of its run."""

    number: int
    run: Run


def _earlier(site: Site, run: Run, link: Link) -> str:
    """What other runs of the same gave before: nothing that was measured is replaced."""
    earlier = site.catalogue.index.history.get(run.record.key, [])
    rows = [
        _before(run.name, record)
        for record in reversed(earlier)
        if record is not run.record and record.is_timed
    ]
    if not rows:
        return ""
    whole = (_whole_before(site, one, link) for one in site.before.get(run.name, ()))
    shown = sections(table(["When", "Run", "Median", "Energy"], rows), *whole)
    return fold("Measured before", "times compare within one run only", shown)


def _whole_before(site: Site, run: Run, link: Link) -> str:
    """What was measured before, whole: where a citation of its run leads to."""
    anchor = address_in(run.name, run.record.run or "").partition("#")[2]
    said = record_facts.facts(run)
    facts = "\n".join(f"- **{name}**: {text}" for name, text in said.items() if text)
    title = f"{figures.duration(run.total)}, run {cell(run.record.run)}"
    return sections(
        f"#### {title} {{ #{anchor} }}",
        f"Measured on {run.record.time:%Y-%m-%d} at {cell(site.problem_text(run))}. A later run of "
        "the same stands above; times of two runs do not compare. As data it is a row of "
        f"[all records]({link('results/records.parquet')}).",
        facts,
    )


def _before(name: str, record: Record) -> list[str]:
    """A row of what was measured before, which leads to all that is known of it."""
    outcome = record.outcome if isinstance(record.outcome, Passed) else None
    anchor = address_in(name, record.run).partition("#")[2] if record.run else ""
    return [
        f"{record.time:%Y-%m-%d %H:%M}",
        f"[{cell(record.run)}](#{anchor})" if anchor else "",
        figures.duration(_total(record)),
        cell(record_facts.energy(outcome)),
    ]


def _total(record: Record) -> evidence.Duration | None:
    return record.outcome.total if isinstance(record.outcome, Passed) else None


def _compared(site: Site, run: Run, link: Link) -> str:
    """The fastest versions of the same run and problem, and this one."""
    if not run.is_timed:
        return ""
    ranked = [_Place(i, found) for i, found in enumerate(sorted(_same(site, run), key=_median), 1)]
    if len(ranked) < 2:
        return ""
    shown = [place for place in ranked if place.number <= _NEIGHBORS or place.run is run]
    rows = [
        [
            str(number),
            "**this one**" if other is run else run_version(site, other, link),
            figures.duration(other.total),
            "" if other is run else said_of(run.total.median_us, other.total.median_us),
        ]
        for number, other in shown
    ]
    place = next(place.number for place in ranked if place.run is run)
    return fold(
        "In the same run",
        f"number {place} of {len(ranked)} timed at this problem",
        table(["", "Version", "Median", "Against this one"], rows),
    )
