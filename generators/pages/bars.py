"""Bars of times of one run: a version beside the one before, FlashMLA and the bound."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from generators.model import compare, problems
from generators.model.columns import PEERS
from generators.model.compare import Verdict
from generators.model.run import Run
from generators.model.site import Site
from mla_var3.runtime import costs
from mla_var3.runtime.registry import Version

#: The peer that is named wherever it was in the run.
FIRST_PEER = "deepseek_flash_mla"
#: How much of a cell the longest bar takes.
_WIDEST = 70


class Bar(NamedTuple):
    """A time.

    Attributes:
        name: Whose.
        us: Microseconds.
        kind: ``own``, ``before``, ``peer`` or ``bound``.
    """

    name: str
    us: float
    kind: str


def section(site: Site, version: Version, before: Version | None, found: Verdict) -> str:
    """Times of one run at one problem, as bars; empty where nothing was timed beside it."""
    mine = _telling(site, version, found)
    if mine is None:
        return ""
    shown = list(_rows(site, version, before, mine))
    if len(shown) < 2:
        return ""
    at = problems.problem_of(mine.record)
    return drawn(f"At {at}, one run of {mine.record.time:%Y-%m-%d}", shown)


def drawn(caption: str, shown: Sequence[Bar]) -> str:
    """Bars from zero, the longest one as wide as its cell lets it be."""
    longest = max(bar.us for bar in shown)
    rows = "".join(_row(bar, bar.us / longest) for bar in shown)
    return (
        f'<table class="bars bars--one"><caption>{html.escape(caption)}</caption><thead><tr>'
        '<th scope="col">Version</th><th scope="col">Time</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def _telling(site: Site, version: Version, found: Verdict) -> Run | None:
    """The run that the verdict was read from, else the fastest that was made beside others."""
    if found.largest is not None:
        return found.largest.run
    timed = [r for r in site.runs_of(version) if r.is_timed and r.record.run is not None]
    return next(iter(compare.fastest(timed)), None)


def _rows(site: Site, version: Version, before: Version | None, mine: Run) -> Iterator[Bar]:
    beside = [r for r in site.companions.get(problems.together(mine), []) if r is not mine]
    yield Bar(version.key, mine.total.median_us, "own")
    if before is not None and (run := _of(site, before, beside)) is not None:
        yield Bar(before.key, run.total.median_us, "before")
    if (peer := _peer(site, beside)) is not None:
        yield Bar(peer[0], peer[1].total.median_us, "peer")
    bound = costs.bound(mine.record)
    if bound is not None:
        yield Bar("the bound", bound.time_us, "bound")


def _of(site: Site, version: Version, runs: list[Run]) -> Run | None:
    return next((run for run in runs if site.version_of(run) == version), None)


def _peer(site: Site, runs: list[Run]) -> tuple[str, Run] | None:
    """FlashMLA where it was in the run, else the fastest library."""
    peers = [run for run in runs if run.record.kernel.language == PEERS]
    first = [run for run in peers if run.record.kernel.design == FIRST_PEER]
    chosen = min(first or peers, key=lambda run: run.total.median_us, default=None)
    if chosen is None:
        return None
    return ("FlashMLA" if first else chosen.record.kernel.design), chosen


def _row(bar: Bar, share: float) -> str:
    shown = f"{bar.us:,.1f} us" if bar.us < 1000 else f"{bar.us:,.0f} us"
    width = f"width:{_WIDEST * share:.1f}%"
    return (
        f'<tr><th scope="row">{html.escape(bar.name)}</th><td>'
        f'<span class="bars__bar bars__bar--{bar.kind}" style="{width}"></span> '
        f"<span>{shown}</span></td></tr>"
    )
