"""Makes the table of one GPU's share of the heads beside all of them, by batch and context."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from generators.mla import decode, served
from generators.mla.same_work import PEER_NAME, time_of
from generators.model.choice import Pair
from generators.model.site import Site
from generators.write.text import cell, table
from mla_var3.evidence.compare import said
from mla_var3.knowledge.evidence import Link
from mla_var3.versions import number_of

#: Heads of DeepSeek-V3 on each of eight GPUs, and all of them.
SHARE, ALL = 16, 128
GPUS = ALL // SHARE
#: Versions that are named beside each other, the newest.
SHOWN = 6
#: Sequences and cached tokens at which most versions were timed with either.
SIZE = 32, 4096


def text(site: Site, link: Link) -> str:
    """A row per batch and context that the share was timed at, sequences of equal lengths."""
    share, whole = (_at(site, heads) for heads in (SHARE, ALL))
    if not share:
        return f"No run timed {SHARE} heads beside a library here."
    few = {(b, t) for b, t in whole if b <= decode.FEW and t % 1024 == 0}
    rows = [
        [str(b), f"{t:,}", *_times(site, share.get((b, t)), link),
         *_times(site, whole.get((b, t)), link)]
        for b, t in sorted({*share, *few})
    ]  # fmt: skip
    head = [
        "Sequences b", "Cached tokens t", f"{SHARE} heads", "FlashMLA", "Ours is",
        f"{ALL} heads", "FlashMLA", "Ours is",
    ]  # fmt: skip
    return table(head, rows)


def versions(site: Site, link: Link) -> str:
    """Each version's time with the share and with all heads at one size, beside the library's."""
    by: dict[str, dict[int, Pair]] = defaultdict(dict)
    for version, sizes, pair in _equal(site):
        if (sizes["b"], sizes["t"]) == SIZE:
            by[version][sizes["h"]] = pair
    rows = [
        f"{version} " + ", ".join(_timed(at[heads], link) for heads in (SHARE, ALL))
        for version, at in by.items()
        if {SHARE, ALL} <= at.keys()
    ]
    if not rows:
        return "No version was timed with both."
    b, t = SIZE
    return (
        f"b={b}, t={t:,}, first with {SHARE} heads, then with {ALL}, in brackets {PEER_NAME} in "
        f"the same run: {'; '.join(rows[-SHOWN:])}"
    )


def _timed(pair: Pair, link: Link) -> str:
    return f"{time_of(pair[0], link)} ({time_of(pair[1], link)})"


def beside(site: Site, link: Link) -> str:
    """The share's time and that of all heads at one size, each with its version."""
    share, whole = (_at(site, heads) for heads in (SHARE, ALL))
    both = share.keys() & whole.keys()
    if not both:
        return "No size was timed with both."
    b, t = min(both, key=lambda size: (size[0] != SIZE[0], abs(size[1] - SIZE[1]), size))
    few, all_heads = (_times(site, of[b, t], link) for of in (share, whole))
    return (
        f"One query token, {b} sequences of {t:,}, H200: {SHARE} heads {few[0]}, {ALL} heads "
        f"{all_heads[0]}"
    )


def parallel(site: Site, link: Link) -> str:
    """What tensor and data parallelism read, by the sizes that both were timed near.

    Eight GPUs and the sequences of eight of the share's rows: each has an eighth of them with all
    heads, or all of them with its share.
    """
    share, whole = (_at(site, heads) for heads in (SHARE, ALL))
    for (b, t), few in sorted(share.items()):
        for n in sorted({b for b, at in whole if at == t}, reverse=True):
            if n < b and n * GPUS % b == 0:
                return (
                    f"Eight GPUs, {n * GPUS} sequences of {t:,}: data parallel, each has {n} with "
                    f"{ALL} heads, {time_of(whole[n, t][0], link)} per layer. Tensor parallel, "
                    f"each reads all {n * GPUS} with {SHARE} heads: about {n * GPUS // b} times "
                    f"the {time_of(few[0], link)} of {b} (computed, not timed)."
                )
    return "No sizes were timed that compare them."


def _at(site: Site, heads: int) -> dict[tuple[int, int], Pair]:
    """By sequences and cached tokens the pair of the newest version of what servers call."""
    return {
        (sizes["b"], sizes["t"]): pair for _, sizes, pair in _equal(site) if sizes["h"] == heads
    }


def _equal(site: Site) -> Iterator[tuple[str, dict[str, int], Pair]]:
    """Version, sizes and pair of what servers call, of equal lengths, versions in their order."""
    known = decode.by_version(site)
    for kernel in sorted(known, key=lambda one: number_of(one[-1])):
        for pair in known[kernel] if kernel[:2] == served.DESIGN else ():
            if pair[0].record.problem.get("lengths") is None:
                yield kernel[-1], decode.sizes(pair), pair


def _times(site: Site, pair: Pair | None, link: Link) -> list[str]:
    if pair is None:
        return ["", "", ""]
    mine, theirs = pair
    version = site.version_of(mine)
    assert version is not None  # Others are not compared.
    words = said(theirs.total.median_us, mine.total.median_us)
    return [f"{time_of(mine, link)} ({cell(version.version)})", time_of(theirs, link), words]
