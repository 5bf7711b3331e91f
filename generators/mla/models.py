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
    known = {device.key: device for device in site.devices}
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
        "computed, and no bound. Where this problem was not timed with so many heads, the nearest "
        "that was stands there with its sizes.",
        _whose(site, link),
    ).rstrip()


def _measured(site: Site) -> dict[int, Pair]:
    """By heads the pair of the kernel to take, at the problem of all rows or the nearest."""
    found = decode.best_known(site)
    nearest: dict[int, Pair] = {}
    for pair in sorted(found[1] if found else [], key=heads.from_usual):
        nearest.setdefault(decode.sizes(pair)["h"], pair)
    return nearest


def _time(pair: Pair | None, link: Link) -> str:
    if pair is None:
        return "not timed"
    mine, theirs = pair
    sizes, lengths = decode.sizes(pair), mine.record.problem.get("lengths")
    at = "" if (sizes["b"], sizes["t"], lengths) == (_B, _T, None) else (
        f"b={sizes['b']}, t={sizes['t']:,}{f', {lengths}' if lengths else ''}: "
    )  # fmt: skip
    return cell(at) + f"{time_of(mine, link)}, FlashMLA {time_of(theirs, link)}"


def _whose(site: Site, link: Link) -> str:
    """Which kernel all rows are of, and what the second column means."""
    found = decode.best_known(site)
    kernel = run_version(site, found[1][0][0], link) if found else ""
    same = f"**The kernel is the same for all rows:** {kernel}. " if found else ""
    return same + (
        "*All heads* is data-parallel attention: each card keeps every head of its own sequences, "
        "though the model's weights lie on many cards. *Over 4* divides the heads among 4 cards."
    )
