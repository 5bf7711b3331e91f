"""Says from how many query tokens decompressed attention is cheaper: one text for every page."""

from __future__ import annotations

import itertools

from generators.write.text import cell
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import regimes
from mla_var3.workloads.mla.regimes import Shape

#: The device of the number, and those that show what moves it.
_AT, _OTHERS = "nvidia-h200-sxm", ("nvidia-h20", "nvidia-rtx-5090", "nvidia-b200")
_BATCHES, _HEADS, _CONTEXTS = (1, 64, 128), (16, 32, 64, 128), (1024, 4096, 131072)
_CONTEXT = 4096


def text() -> str:
    """The number on one device, what it depends on, and what it does not."""
    shape = Shape()
    least, most = _spread()
    spread = f"s = {least}" if least == most else f"s = {least} to {most}"
    others = ", ".join(f"{_from(key)} on {_name(key)}" for key in _OTHERS)
    mixed = _crossing("mla_var6_plus", _AT, shape, _CONTEXT)
    alone = regimes.recommended_from("flash_attention", shape, _CONTEXT, regimes.ceilings_of(_AT))
    return (
        f"Decompressed keys and values that lie ready are cheaper to attend to than latent vectors "
        f"from **s = {_from(_AT)}** query tokens on {_name(_AT)}, by the cost model ({shape.b} "
        f"sequences, {shape.h} heads, {_CONTEXT} keys). It is {spread} there for any of "
        f"{min(_BATCHES)} to {max(_BATCHES)} sequences, {min(_HEADS)} to {max(_HEADS)} heads and "
        f"{min(_CONTEXTS)} to {max(_CONTEXTS)} keys: what moves it is the GPU, by its two rates "
        f"and its power. It is {others}. From s = {mixed} to {alone} the model prefers a mix of "
        "both, but no mix that was measured on it was faster than the better of the two."
    )


def short(link: Link) -> str:
    """The number alone, for pages that are short, with the way to what it depends on."""
    why = link("docs/learn/roofline.md#what-more-query-tokens-do")
    return (
        f"Decompressed keys and values, once ready, win from **s = {_from(_AT)}** on "
        f"{_name(_AT)} ([what moves that]({why}))."
    )


def _name(key: str) -> str:
    return cell(devices.load(key).name.partition(" (")[0])


def _from(key: str) -> int | None:
    return _crossing("flash_attention", key, Shape(), _CONTEXT)


def _crossing(faster: regimes.Kernel, key: str, shape: Shape, t: int) -> int | None:
    return regimes.crossing(faster, "flash_mla", shape, t, regimes.ceilings_of(key))


def _spread() -> tuple[int, int]:
    """The least and the most over batches, heads and contexts on the device of the number."""
    found = [
        _crossing("flash_attention", _AT, Shape(b=b, h=h), t)
        for b, h, t in itertools.product(_BATCHES, _HEADS, _CONTEXTS)
    ]
    known = [s for s in found if s is not None]
    return min(known), max(known)
