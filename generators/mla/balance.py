"""Says on which side of each card's balance latent decode lies: one table for every page.

All cards stand at their published rates, so that ratios compare like with like. The rates that
were attained on a card put its border elsewhere, which is said beside.
"""

from __future__ import annotations

import math

from generators.mla.cards import by_bandwidth, least, linked, published, rates
from generators.model.site import Site
from generators.write.text import cell, sections, table
from mla_var3.devices import Device
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import costs, regimes
from mla_var3.workloads.mla.regimes import Shape

#: The term's file, which has the table.
TERM = "docs/glossary/arithmetic-intensity.md"
#: Cards that the first sentence answers for, by their key.
ASKED = ("nvidia-h100-sxm", "nvidia-h200-sxm")
#: Heads of a column each: those of DeepSeek-V3 whole and on two and eight cards.
_HEADS = (128, 64, 16)
_SIDES = {True: "arithmetic", False: "memory"}


def text(site: Site, link: Link) -> str:
    """One number, which side of each card it is on, and by which rates."""
    shape = Shape()
    shown = by_bandwidth(site)
    if not shown:
        return ""
    return sections(
        f"**One number: {regimes.latent_intensity(shape, shape.h):.0f} FLOP per byte** for "
        f"{shape.h} heads and one query token, with cache and products in 16 bits and a long "
        f"context. {_answer(site)}",
        table(_head(shape), [_row(device, shape, link) for device in shown]),
        "Published rates, dense, per card; computed, not measured. *Turns at* counts query rows "
        "per sequence, heads times query tokens: fewer are bound by memory, more by arithmetic. "
        f"An fp8 cache with products in 16 bits raises the number to {_fp8_intensity(shape):.0f}.",
        _attained(site, shape, link),
    ).rstrip()


#: Cards of the same machine code, which people hold against each other.
HOPPER = ("nvidia-h200-sxm", "nvidia-h800-sxm", "nvidia-h100-sxm", "nvidia-h100-pcie")


def hopper(site: Site, link: Link) -> str:
    """Ceilings of each card for Hopper's code, what binds, and the time beside the first one's."""
    known, shape, heads = site.cards, Shape(), (16, 128)
    shown = [known[key] for key in HOPPER if key in known and published(known[key])]
    told = []
    for device in shown:
        found = rates(device)
        name = " ".join(device.name.removeprefix("NVIDIA ").split()[:2])
        said = (
            f"[{cell(name)}]({link(f'knowledge/devices/{device.key}.toml')}) "
            f"{found.tflops:,.4g} TFLOP/s, {found.gbps / 1000:.3g} TB/s, "
            f"memory binds up to {regimes.border_rows(shape, found):.0f} rows"
        )
        if device is not shown[0]:
            longer = (least(device, count) / least(shown[0], count) for count in heads)
            said += " ({} times the time with 16 heads, {} with 128)".format(
                *(f"{factor:.2g}" for factor in longer)
            )
        told.append(said)
    return f"{'; '.join(told)}." if told else ""


def border(site: Site, link: Link) -> str:
    """At how many rows decode turns, and which shares of the published rates are a good kernel's.

    For a reader of counters, who sees percents.
    """
    known, shape = site.cards, Shape()
    told = []
    for key in ASKED:
        if key not in known:
            continue
        device, found = known[key], rates(known[key])
        name, measured = cell(short_name(device)), regimes.ceilings_of(key)
        turns = f"turns from memory to arithmetic at {regimes.border_rows(shape, found):.0f} rows"
        if measured.source_kind != "measured":
            told.append(f"**{name}:** latent decode {turns} per sequence by published rates.")
            continue
        told.append(
            f"**{name}:** latent decode {turns} per sequence by published rates, at "
            f"{regimes.border_rows(shape, measured):.0f} by attained ones; near means "
            f"{measured.gbps / found.gbps:.0%} of the [bandwidth]"
            f"({link(f'knowledge/devices/{key}.toml')}), which a copy attains, and "
            f"{measured.tflops / found.tflops:.0%} of the arithmetic, which a GEMM does."
        )
    return " ".join(told)


def short(site: Site, device: Device, link: Link) -> str:
    """The side of one card, for a page of its own."""
    if not published(device):
        return ""
    shape = Shape()
    return (
        f"**Is decode bound by memory here?** With {shape.h} heads and one query token it has "
        f"{regimes.latent_intensity(shape, shape.h):.0f} FLOP per byte, and by published rates "
        f"this card balances at {rates(device).ridge:.0f}: {_sides(device, shape)}. "
        f"{linked(site, link, TERM, 'Every card')}."
    )


#: Heads that one of eight GPUs has, and all: tensor parallel beside data parallel attention.
_FEW_AND_ALL = (16, 128)


def few_and_all(site: Site, link: Link) -> str:
    """FLOP per byte of a share of the heads and of all, beside where an H200 turns."""
    device = site.cards.get(ASKED[-1])
    if device is None or not published(device):
        return ""
    shape = Shape()
    told = " and ".join(
        f"{heads} heads have {regimes.latent_intensity(shape, heads):.0f} FLOP per byte "
        f"({side(device, shape, heads)} limits)"
        for heads in _FEW_AND_ALL
    )
    return (
        f"{told}; an {cell(short_name(device))} turns at "
        f"{linked(site, link, TERM, f'{rates(device).ridge:.0f}')}"
    )


def _head(shape: Shape) -> list[str]:
    columns = (
        f"{heads} heads ({regimes.latent_intensity(shape, heads):.0f} FLOP/byte)"
        for heads in _HEADS
    )
    return ["Card", "Arithmetic / bandwidth", "Balance", *columns, "Turns at"]


def _row(device: Device, shape: Shape, link: Link) -> list[str]:
    found, rows = rates(device), regimes.border_rows(shape, rates(device))
    return [
        f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})",
        f"{found.tflops:,.4g} TFLOP/s / {found.gbps / 1000:.3g} TB/s",
        f"{found.ridge:.0f} FLOP/byte",
        *(f"{side(device, shape, heads)}, {heads / rows:.2f} of it" for heads in _HEADS),
        f"{rows:.0f} rows",
    ]


def side(device: Device, shape: Shape, rows: int) -> str:
    """What limits so many query rows per sequence at published rates: memory or arithmetic."""
    return _SIDES[rows >= regimes.border_rows(shape, rates(device))]


def _turns(device: Device, shape: Shape) -> int:
    """The first number of query tokens at which arithmetic takes longer, with all heads."""
    return math.ceil(regimes.border_rows(shape, rates(device)) / shape.h)


def _sides(device: Device, shape: Shape) -> str:
    """What limits one query token, and from which on the other does."""
    turns = _turns(device, shape)
    if turns == 1:
        return "arithmetic takes longer, from one query token on"
    return f"memory takes longer, arithmetic from {turns} query tokens on"


def _answer(site: Site) -> str:
    known, shape = site.cards, Shape()
    return " ".join(
        f"On an {cell(short_name(known[key]))} the balance is at {rates(known[key]).ridge:.0f}: "
        f"{_sides(known[key], shape)}."
        for key in ASKED
        if key in known
    )


def short_name(device: Device) -> str:
    """A card as people call it, with its slot: ``H100 SXM``."""
    words = device.name.removeprefix("NVIDIA ").split()[:2]
    return " ".join(words).rstrip("0123456789") if len(words) > 1 else words[0]


def _fp8_intensity(shape: Shape) -> float:
    per_row = regimes.latent_intensity(shape, shape.h) * shape.w * (shape.k + shape.p)
    return per_row / costs.fp8_row_bytes(shape.k, shape.p, shape.w)


def _attained(site: Site, shape: Shape, link: Link) -> str:
    """Where the border lies by rates that were measured, on cards that have them."""
    said = []
    for device in by_bandwidth(site):
        found = regimes.ceilings_of(device.key)
        if found.source_kind != "measured":
            continue
        name = cell(short_name(device))
        said.append(
            f"**Two borders of an {name}:** {regimes.border_rows(shape, rates(device)):.0f} rows "
            f"by published rates, {regimes.border_rows(shape, found):.0f} by those attained on it "
            f"({found.tflops:,.0f} TFLOP/s and {found.gbps / 1000:.3g} TB/s: power holds "
            f"arithmetic down). [Where these are from]"
            f"({link(f'knowledge/devices/{device.key}.toml')}). A card whose published balance is "
            "only a little above the number, as an H100's with all heads, may be bound by "
            "arithmetic in truth: a run there would tell."
        )
    return " ".join(said)
