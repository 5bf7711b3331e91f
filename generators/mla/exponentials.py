"""Says what share of the special-function unit each form of attention asks for, per card.

The unit's rate and the tensor cores' are both per clock and multiprocessor, so that no clock
stands between them.
"""

from __future__ import annotations

from generators.mla import cards
from generators.model.site import Site
from generators.write.text import cell, sections, table
from mla_var3.devices import Device
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla.regimes import Shape

#: Exponentials per clock and multiprocessor, and 16-bit FLOPs of the tensor cores, by
#: architecture; both as FlashAttention-4 counts them (arXiv 2603.05451).
UNIT = 16
TENSOR = {"sm_90": 4096, "sm_100": 8192}
_SOURCE = "[FlashAttention-4's paper](https://arxiv.org/abs/2603.05451)"
#: Width of a head's keys and values in attention without latents, which most papers time.
USUAL = 128
#: Shares from which the unit is what limits, or stands close to it.
LIMIT, NEAR = 0.9, 0.6


def widths(shape: Shape) -> dict[str, int]:
    """Multiply-adds of both products per exponential, by the form of attention."""
    return {
        f"latent decode, {shape.k + shape.p} and {shape.k}": 2 * shape.k + shape.p,
        f"prefill, {shape.d + shape.p} and {shape.d}": 2 * shape.d + shape.p,
        f"attention without MLA, {USUAL} and {USUAL}": 2 * USUAL,
    }


def share(device: Device, width: int) -> float:
    """How busy exponentials keep the unit while the tensor cores run at their full 16-bit rate."""
    return TENSOR[device.sm] / (2 * width) / UNIT


def verdict(busy: float) -> str:
    """What replacing exponentials by polynomials could buy at a share."""
    if busy >= LIMIT:
        return "yes: the unit limits"
    if busy >= NEAR:
        return "perhaps: little room to hide them"
    return "no, if they run under products"


def text(site: Site, link: Link) -> str:
    """A row per form: multiply-adds per exponential, and on each card the share and a verdict."""
    known = site.cards
    shown = [known[key] for key in cards.COMPARED if key in known and known[key].sm in TENSOR]
    if not shown:
        return ""
    rows = [
        [form, str(width), *(f"{(busy := share(d, width)):.0%}: {verdict(busy)}" for d in shown)]
        for form, width in widths(Shape()).items()
    ]
    names = [
        f"[{cell(d.name.removeprefix('NVIDIA ').partition(' ')[0])}]"
        f"({link(f'knowledge/devices/{d.key}.toml')})"
        for d in shown
    ]
    return sections(
        table(["Form: widths of key and value", "Multiply-adds per exponential", *names], rows),
        f"Computed, **not timed here**: no kernel of this site evaluates exponentials by a "
        f"polynomial. The share is of the special-function unit while the tensor cores run at "
        f"their full 16-bit rate: {TENSOR['sm_90']} FLOPs per clock and multiprocessor on Hopper, "
        f"{TENSOR['sm_100']} on sm_100, beside {UNIT} exponentials on both ({_SOURCE}). A kernel "
        "that reaches less of the tensor cores, or waits for memory as decode with few heads "
        "does, has a smaller share. Products in fp8 double the tensor rate and the share.",
    ).rstrip()
