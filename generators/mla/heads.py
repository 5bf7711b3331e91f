"""Says what few heads on a card do to the time of decode, from the records of one run."""

from __future__ import annotations

from collections import defaultdict
from statistics import geometric_mean

from generators.mla import decode
from generators.mla.same_work import time_of
from generators.model.choice import Pair
from generators.model.run import Run
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table
from mla_var3.evidence.compare import said
from mla_var3.knowledge.evidence import Link


def text(site: Site, link: Link) -> str:
    """A row per number of heads; then what an eighth of the heads saves, of one run."""
    found = decode.best_known(site)
    if found is None:
        return "No number of heads was timed beside a library here."
    pairs = found[1]
    by_heads: dict[int, list[Pair]] = defaultdict(list)
    for pair in pairs:
        by_heads[decode.sizes(pair)["h"]].append(pair)
    rows = [_row(heads, by_heads[heads], link) for heads in sorted(by_heads, reverse=True)]
    head = ["Heads on the card", "For example", "Time", "FlashMLA", "It is", "Of FlashMLA's time"]
    return sections(
        _saved(by_heads, link),
        table(head, rows),
        f"{run_version(site, pairs[0][0], link)}, one query token, pages of {decode.PAGE} tokens; "
        "the last column is the geometric mean over all problems with so many heads. Fewer than "
        f"{min(by_heads)} heads were not timed.",
    ).rstrip()


def _row(heads: int, pairs: list[Pair], link: Link) -> list[str]:
    mine, theirs = shown = min(pairs, key=from_usual)
    sizes = decode.sizes(shown)
    lengths = mine.record.problem.get("lengths")
    return [
        str(heads),
        cell(f"b={sizes['b']}, t={sizes['t']:,}" + (f", {lengths}" if lengths else "")),
        time_of(mine, link),
        time_of(theirs, link),
        said(theirs.total.median_us, mine.total.median_us),
        f"{geometric_mean(m.total.median_us / t.total.median_us for m, t in pairs):.2f} at "
        f"{len(pairs)} problems",
    ]


def from_usual(pair: Pair) -> tuple[object, ...]:
    """How far a problem is from the one that most pages quote."""
    sizes = decode.sizes(pair)
    lengths = pair[0].record.problem.get("lengths")
    return lengths is not None, sizes["b"] != 32, abs(sizes["t"] - 4096), sizes["b"]


def _saved(by_heads: dict[int, list[Pair]], link: Link) -> str:
    """What the fewest heads save against the most, where one run timed both at the same cache."""
    many, few = max(by_heads), min(by_heads)
    alike = [
        (whole, part)
        for whole, _ in by_heads[many]
        for part, _ in by_heads[few]
        if whole.record.run == part.record.run and _cache(whole) == _cache(part)
    ]
    if many == few or not alike:
        return ""
    whole, part = min(alike, key=lambda runs: runs[0].record.problem.get("lengths") is not None)
    share = part.total.median_us / whole.total.median_us
    return (
        f"**{few} heads in place of {many} are {few / many:.0%} of the arithmetic and took "
        f"{share:.0%} of the time**: {time_of(part, link)} against {time_of(whole, link)} in one "
        f"run ({cell(_cache_text(whole))}), since the cache is read whole however few heads ask."
    )


def _cache(run: Run) -> tuple[object, ...]:
    problem = run.record.problem
    return tuple(problem.get(name) for name in ("b", "t", "page", "lengths", "dtype"))


def _cache_text(run: Run) -> str:
    problem = run.record.problem
    return f"b={problem['b']}, t={problem['t']}, {problem['dtype']}"
