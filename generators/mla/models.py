"""Says what a number of heads changes at one and the same cache: side, reference time."""

from __future__ import annotations

from generators.mla import balance, cards, decode, heads
from generators.mla.same_work import time_of
from generators.model.choice import Pair
from generators.model.site import Site
from generators.pages.kernels import run_version
from generators.write.text import cell, sections, table, us
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape

#: Heads on a card, with whose they are.
HEADS = {
    128: "DeepSeek-V2, V3, R1, all heads",
    64: "Kimi K2, all heads; V3 over 2",
    32: "Kimi K2 over 2; V3 over 4",
    16: "Kimi K2 over 4; V3 over 8",
    8: "Kimi K2 over 8; V3 over 16",
}
#: The problem of all rows.
_B, _T = 32, 4096


def text(site: Site, link: Link) -> str:
    """A row per number of heads, all at the same sequences and keys."""
    known = site.cards
    shown = [known[key] for key in balance.ASKED if key in known]
    measured = _measured(site)
    ceilings = regimes.ceilings_of(cards.BASE)
    rows = []
    for count, whose in HEADS.items():
        shape = Shape(b=_B, h=count)
        time = regimes.prediction("flash_mla", shape, 1, _T, ceilings).time_us
        pair = measured.get(count)
        rows.append([
            str(count), whose, f"{regimes.latent_intensity(shape, count):.0f}",
            *(balance.side(device, shape, count) for device in shown),
            us(time),
            _time(pair, link),
        ])  # fmt: skip
    head = [
        "Heads on a card", "Whose", "FLOP per byte",
        *(f"{cell(balance.short_name(device))}: limited by" for device in shown),
        "Reference time, H200", "Measured, H200",
    ]  # fmt: skip
    return sections(
        table(head, rows),
        f"One query token, {_B} sequences of {_T:,} tokens, 16 bits, for every row. *Limited by* "
        "is at published rates; the reference time at those attained on an H200, with its power: "
        "computed, and no bound. Times of two versions are of two runs. Where "
        "this problem was not timed with so many heads, the nearest that was stands there.",
        _whose(site, link),
    ).rstrip()


def _measured(site: Site) -> dict[int, Pair]:
    """By heads a time of the kernel to take, or of an earlier version, at the problem of all rows.

    Where none is there, the nearest of the kernel to take.
    """
    found = decode.best_known(site)
    if found is None:
        return {}
    earlier = [pair for pairs in decode.by_version(site).values() for pair in pairs if _here(pair)]
    earlier.sort(key=lambda pair: pair[0].record.time, reverse=True)
    ours = sorted(found[1], key=heads.from_usual)
    chosen: dict[int, Pair] = {}
    for pair in (*filter(_here, ours), *earlier, *ours):
        chosen.setdefault(decode.sizes(pair)["h"], pair)
    return chosen


def _here(pair: Pair) -> bool:
    """Whether it is the problem of all rows."""
    sizes = decode.sizes(pair)
    return (sizes["b"], sizes["t"]) == (_B, _T) and _lengths(pair) is None


def _lengths(pair: Pair) -> object:
    return pair[0].record.problem.get("lengths")


def _time(pair: Pair | None, link: Link) -> str:
    """Both times, the version's name where it is another, and the sizes where they are."""
    if pair is None:
        return "not timed"
    mine, theirs = pair
    sizes = decode.sizes(pair)
    lengths = f", {cell(str(_lengths(pair)))}" if _lengths(pair) else ""
    at = "" if _here(pair) else f"b={sizes['b']}, t={sizes['t']:,}{lengths}: "
    version = mine.record.kernel.version
    return f"{at}{version} {time_of(mine, link)}, FlashMLA {time_of(theirs, link)}"


def _whose(site: Site, link: Link) -> str:
    """Which kernel all rows are of, and what the second column means."""
    found = decode.best_known(site)
    kernel = run_version(site, found[1][0][0], link) if found else ""
    same = f"**The kernel to take is the same for all rows:** {kernel}. " if found else ""
    return same + (
        "*All heads* is data-parallel attention: each card keeps every head of its own sequences, "
        "though the model's weights lie on many cards. *Over 4* divides the heads among 4 cards."
    )
