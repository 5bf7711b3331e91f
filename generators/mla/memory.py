"""Says how much memory a cache takes, per token and for a long context, computed from sizes."""

from __future__ import annotations

from generators.mla import cards
from generators.model.site import Site
from generators.write.text import cell, sections, table
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import costs
from mla_var3.workloads.mla.regimes import Shape

#: Layers of the model whose sizes are the defaults, and who says so.
LAYERS = 61
MODEL = "DeepSeek-V3 ([arXiv 2412.19437](https://arxiv.org/abs/2412.19437))"
#: Heads of keys and values of a model with grouped queries, to compare with, and the term.
GROUPS, GROUPED = 8, "docs/glossary/gqa.md"
#: Tokens of a long context.
LONG = 131072
_GB = 1e9


def cache(site: Site, link: Link) -> str:
    """A row per form of the cache: a token of a layer, of all layers, and a long context."""
    shape = Shape()
    forms = {
        "latent, 16 bits": shape.w * (shape.k + shape.p),
        "latent, fp8 rows of FlashMLA": costs.fp8_row_bytes(shape.k, shape.p, shape.w),
        f"keys and values of {shape.h} heads, 16 bits": shape.w * (2 * shape.h * shape.d + shape.p),
        f"[grouped]({link(GROUPED)}): {GROUPS} heads of keys and values for all": (
            shape.w * 2 * GROUPS * shape.d
        ),
    }
    rows = [
        [form, f"{size:,}", f"{size * LAYERS:,}", f"{size * LAYERS * LONG / _GB:,.1f} GB"]
        for form, size in forms.items()
    ]
    latent, small, whole, _ = forms.values()
    head = [
        "Cache", "Bytes per token and layer", f"In {LAYERS} layers", f"{LONG:,} tokens",
    ]  # fmt: skip
    return sections(
        f"**How much memory?** With the sizes and {LAYERS} layers of {MODEL}, computed:",
        table(head, rows),
        f"A latent row is a {whole / latent:.0f}th of the keys and values of all heads. "
        f"The price: {_times_the_work(shape):.1f} times the multiplications per pair of a query "
        f"and a key, as long as a kernel stays latent. {_fits(site, latent, small, link)}Tensor "
        "parallelism does not divide a latent cache: every card that has heads of a sequence holds "
        "all of its rows.",
    ).rstrip()


def _times_the_work(shape: Shape) -> float:
    """Multiplications of latent attention over those of attention to keys and values."""
    return (2 * shape.k + shape.p) / (2 * shape.d + shape.p)


def _fits(site: Site, latent: int, small: int, link: Link) -> str:
    """How many tokens a card holds, weights aside."""
    device = next((d for d in site.devices if d.key == cards.BASE), None)
    if device is None:
        return ""
    size = float(device.figure("dram_capacity").value) * _GB
    whole, packed = (size / (row * LAYERS) / 1e6 for row in (latent, small))
    return (
        f"All {size / _GB:,.0f} GB of an [{cell(device.name)}]"
        f"({link(f'knowledge/devices/{device.key}.toml')}) would hold {whole:.1f} million tokens "
        f"so, {packed:.1f} million in fp8; weights come off that first. "
    )
