"""Makes the table of our fastest kernel in each language beside the first library, by one run.

Pages do not count here: cuTile's kernels read one contiguous cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from generators.mla.same_work import PEER, PEER_NAME, time_of, unpaged
from generators.model import problems
from generators.model.choice import alike
from generators.model.columns import PEERS as LIBRARY
from generators.model.columns import language_title
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table
from mla_var3.evidence.compare import than
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import WORKLOAD

HEADING = "Each language beside {}"
#: Anchor of the section.
ANCHOR = "each-language"

#: The fastest of each language of a run at a problem; the library's stands under its own key.
Row = Mapping[str, Run]


def section(site: Site, link: Link) -> str:
    """A row per problem of one run; empty where none timed two languages and the library."""
    name = PEER_NAME
    rows = rows_of(site)
    if not rows:
        return ""
    return sections(
        f"## {HEADING.format(name)} {{ #{ANCHOR} }}",
        "The fastest kernel of each language that does the same work, in the newest run that timed "
        f"both and {name}. {_caches(rows, name)}",
        table_of(site, link),
    )


def table_of(site: Site, link: Link) -> str:
    """The rows alone."""
    name, rows = PEER_NAME, rows_of(site)
    ours = sorted({language for row in rows for language in row} - {LIBRARY})
    head = ["Problem", *(f"Fastest in {language_title(key)}" for key in ours), name, "In words"]
    return table(head, [_row(site, row, ours, name, link) for row in rows])


def rows_of(site: Site) -> list[Row]:
    """The problems of the newest run that timed two languages and the peer, but for pages."""
    suits = alike(site, WORKLOAD.key)
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in (*site.runs, *site.earlier):
        record = run.record
        if run.is_timed and record.run and record.mode == "event" and not run.stale:
            library = record.kernel.language == LIBRARY
            if record.kernel.design == PEER if library else suits(run):
                groups.setdefault((record.run, record.target, unpaged(run)), []).append(run)
    rows = [row for row in map(_fastest, groups.values()) if len(row) > 2 and LIBRARY in row]
    newest = max((row[LIBRARY].record for row in rows), key=lambda r: r.time, default=None)
    same = [row for row in rows if newest and row[LIBRARY].record.run == newest.run]
    return sorted(same, key=lambda row: problems.problem_of(row[LIBRARY].record).order)


def _caches(rows: Sequence[Row], name: str) -> str:
    """Who reads pages in these rows, and who one contiguous cache."""
    found: dict[str, list[str]] = {}
    for key in sorted({key for row in rows for key in row}):
        title = name if key == LIBRARY else language_title(key)
        sizes = {row[key].record.problem.get("page") for row in rows if key in row}
        pages = " or ".join(str(size) for size in sizes if size)
        where = f"the cache in pages of {pages}" if pages else "one contiguous cache"
        found.setdefault(where, []).append(title)
    told = [
        f"{' and '.join(titles)} {'read' if titles[1:] else 'reads'} {where}"
        for where, titles in found.items()
    ]
    return f"In it {', '.join(told)}."


def _fastest(runs: Sequence[Run]) -> Row:
    found: dict[str, Run] = {}
    for run in sorted(runs, key=lambda run: run.total.median_us):
        found.setdefault(run.record.kernel.language, run)
    return found


def _row(site: Site, row: Row, ours: Sequence[str], name: str, link: Link) -> list[str]:
    library = row[LIBRARY]
    mine = {key: row[key] for key in ours if key in row}
    first = min(mine, key=lambda key: mine[key].total.median_us)
    others = [
        (language_title(key), run.total.median_us) for key, run in mine.items() if key != first
    ] + [(name, library.total.median_us)]
    words = "; ".join(cell(than(us, mine[first].total.median_us, title)) for title, us in others)
    shown = [
        f"{run_version(site, mine[key], link)} {time_of(mine[key], link)}" if key in mine else ""
        for key in ours
    ]
    problem = str(problems.Problem(WORKLOAD.key, unpaged(library)))
    return [cell(problem), *shown, time_of(library, link),
            f"{cell(language_title(first))} is {words}"]  # fmt: skip
