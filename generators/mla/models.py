"""Says what a number of heads changes at one and the same cache: side, reference time."""

from __future__ import annotations

from generators.mla import balance, cards, decode
from generators.mla.same_work import time_of
from generators.model.choice import Pair
from generators.model.site import Site
from generators.write.text import cell, sections, table, us
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape

#: Heads on a card, with whose they are.
HEADS = {
    128: "DeepSeek-V2, V3, R1 on one card",
    64: "Kimi K2 on one card; V3 on 2",
    32: "Kimi K2 on 2; V3 on 4",
    16: "Kimi K2 on 4; V3 on 8",
    8: "Kimi K2 on 8; V3 on 16",
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
    for heads, whose in HEADS.items():
        shape = Shape(b=_B, h=heads)
        time = regimes.prediction("flash_mla", shape, 1, _T, ceilings).time_us
        pair = measured.get(heads)
        rows.append([
            str(heads), whose, f"{regimes.latent_intensity(shape, heads):.0f}",
            *(balance.side(device, shape, heads) for device in shown),
            us(time),
            f"{time_of(pair[0], link)}, FlashMLA {time_of(pair[1], link)}" if pair else "no",
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
        "computed, and no bound.",
    ).rstrip()


def _measured(site: Site) -> dict[int, Pair]:
    """By heads the pair of the kernel to take, at the problem of all rows."""
    found = decode.best_known(site)
    if found is None:
        return {}
    return {
        decode.sizes(pair)["h"]: pair
        for pair in found[1]
        if (decode.sizes(pair)["b"], decode.sizes(pair)["t"]) == (_B, _T)
        and pair[0].record.problem.get("lengths") is None
    }
