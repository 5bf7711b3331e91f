"""Says what no latent decode kernel can beat: the formula, one example worked, a table of cards.

Rates are the largest that anybody states of a card, as everywhere a bound is meant.
"""

from __future__ import annotations

from dataclasses import dataclass

from generators.mla.balance import short_name
from generators.mla.cards import by_bandwidth, rates
from generators.model.site import Site
from generators.write.text import cell, sections, table, us
from mla_var3.devices import Device
from mla_var3.knowledge.evidence import Link
from mla_var3.roofline.prediction import Prediction, predict
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape

#: The card of the example that is worked, and those of the table.
EXAMPLE = "nvidia-h200-sxm"
CARDS = ("nvidia-h100-sxm", EXAMPLE, "nvidia-b200")
#: Sequences and cached tokens of each: the example's, and those of the table.
B, T = 64, 8192
#: Heads of a row each; the example has the fewest.
HEADS = (16, 32, 64, 128)
#: What tells that limits.
_BY = {True: "arithmetic", False: "memory"}


@dataclass(frozen=True)
class Least:
    """The two times of a problem on a card.

    Attributes:
        found: What is predicted at the card's largest rates.
    """

    found: Prediction

    @property
    def by_arithmetic(self) -> bool:
        """Whether the tensor cores take longer than memory."""
        return self.found.compute_us > self.found.memory_us

    def cell(self) -> str:
        """The time, and what sets it."""
        return f"{us(self.found.time_us)}, {_BY[self.by_arithmetic]}"


def least(device: Device, h: int, b: int = B, t: int = T) -> Least:
    """What no kernel can beat with so many heads, one query token per sequence."""
    work = regimes.cost("flash_mla", Shape(b=b, h=h), 1, t)
    return Least(predict(work.flops, work.bytes, rates(device)))


def text(site: Site, link: Link) -> str:
    """Formula, example, table, and the command that prints it for other sizes."""
    known = {device.key: device for device in by_bandwidth(site)}
    shown = [known[key] for key in CARDS if key in known]
    if EXAMPLE not in known:
        return ""
    rows = [[f"{heads}", *(least(device, heads).cell() for device in shown)] for heads in HEADS]
    head = ["Heads on the card", *(f"{cell(device.name.split()[1])}, us" for device in shown)]
    return sections(
        _formula(),
        _worked(known[EXAMPLE], link),
        table(head, rows),
        f"{B} sequences of {T:,} tokens, one query token, 16 bits, published rates, power left "
        "out; computed. Both times grow with b times t.",
    ).rstrip()


def _formula() -> str:
    shape = Shape()
    row, both = shape.k + shape.p, 2 * shape.k + shape.p
    return (
        f"**The longer of two times.** Memory: b · t · {row} · {shape.w} bytes, the cache once for "
        f"all heads, and b · h · s · {both} · {shape.w} for queries and outputs, over the "
        f"bandwidth. Arithmetic: 2 · b · h · s · t · {both} FLOP, over the rate of the tensor "
        "cores. b sequences, h heads on the card, s query tokens, t cached tokens."
    )


def _worked(device: Device, link: Link) -> str:
    found, card, heads = least(device, HEADS[0]).found, rates(device), HEADS[0]
    shape = Shape(b=B, h=heads)
    cache = shape.b * T * (shape.k + shape.p) * shape.w
    name = f"[{cell(short_name(device))}]({link(f'knowledge/devices/{device.key}.toml')})"
    return (
        f"**Worked: {heads} heads, b={B}, t={T:,}, 16 bits, on an {name}.** The cache is {B} · "
        f"{T:,} · {shape.k + shape.p} · {shape.w} = {cache / 1e6:,.0f} MB, with queries and "
        f"outputs {found.bytes / 1e6:,.0f} MB; at {card.gbps / 1000:.3g} TB/s that is "
        f"**{found.memory_us:.0f} us, which no kernel can beat**. Arithmetic needs "
        f"{found.compute_us:.0f} us: {found.flops / 1e9:.1f} GFLOP at {card.tflops:,.4g} TFLOP/s."
        f"{_reached(device, found)}"
    )


def _reached(device: Device, found: Prediction) -> str:
    """The same at the bandwidth that was reached there, which is a goal and no bound."""
    reached = regimes.ceilings_of(device.key)
    if reached.source_kind != "measured":
        return ""
    return (
        f" At the {reached.gbps / 1000:.3g} TB/s that a copy reached it is "
        f"{found.bytes / reached.gbps / 1e3:.0f} us: a goal, no bound."
    )
