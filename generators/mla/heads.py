"""Says what few heads on a card do to the time of decode, from the records of one run."""

from __future__ import annotations

from collections import defaultdict
from statistics import geometric_mean

from generators.mla import decode
from generators.mla.same_work import PAGE, time_of
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
        _saved(site, pairs, link),
        table(head, rows),
        f"{run_version(site, pairs[0][0], link)}, one query token, pages of {PAGE} tokens; "
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
        f"{len(pairs)} {'problem' if len(pairs) == 1 else 'problems'}",
    ]


def from_usual(pair: Pair) -> tuple[object, ...]:
    """How far a problem is from the one that most pages quote."""
    sizes = decode.sizes(pair)
    lengths = pair[0].record.problem.get("lengths")
    return lengths is not None, sizes["b"] != 32, abs(sizes["t"] - 4096), sizes["b"]


def _saved(site: Site, pairs: list[Pair], link: Link) -> str:
    """What the fewest heads save against the most, where one run timed both at the same cache.

    Of the version to take, or else of the newest that was timed so.
    """
    counts = {decode.sizes(pair)["h"] for pair in pairs}
    many, few = max(counts), min(counts)
    others = sorted(
        decode.by_version(site).values(), key=lambda own: own[0][0].record.time, reverse=True
    )
    alike = next(filter(None, (_alike(own, many, few) for own in (pairs, *others))), None)
    if many == few or not alike:
        return ""
    whole, part = min(alike, key=lambda runs: runs[0].record.problem.get("lengths") is not None)
    share = part.total.median_us / whole.total.median_us
    return (
        f"**{few} heads in place of {many} are {few / many:.0%} of the arithmetic and took "
        f"{share:.0%} of the time**: {time_of(part, link)} against {time_of(whole, link)} in one "
        f"run ({run_version(site, whole, link)}, {cell(_cache_text(whole))}), since the cache is "
        "read whole however few heads ask."
    )


def _alike(pairs: list[Pair], many: int, few: int) -> list[tuple[Run, Run]]:
    """Runs of many heads and of few, at the same cache in one run."""
    ours = [mine for mine, _ in pairs]
    return [
        (whole, part)
        for whole in ours
        for part in ours
        if (whole.record.problem["h"], part.record.problem["h"]) == (many, few)
        and whole.record.run == part.record.run
        and _cache(whole) == _cache(part)
    ]


def _cache(run: Run) -> tuple[object, ...]:
    problem = run.record.problem
    return tuple(problem.get(name) for name in ("b", "t", "page", "lengths", "dtype"))


def _cache_text(run: Run) -> str:
    problem = run.record.problem
    return f"b={problem['b']}, t={problem['t']}, {problem['dtype']}"
