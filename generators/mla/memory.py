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
#: Where latent attention is told from the start.
LEARN = "docs/learn/attention-and-mla.md"
#: Heads of keys and values of a model with grouped queries, to compare with, and the term.
GROUPS, GROUPED = 8, "docs/glossary/gqa.md"
#: Tokens of a long context.
LONG = 131072
#: Weights of models in GB, of one byte per parameter, and who says how many they are.
WEIGHTS = {
    "DeepSeek-V3": (671, "[671 billion](https://arxiv.org/abs/2412.19437)"),
    "Kimi K2": (1040, "[1.04 trillion](https://arxiv.org/abs/2507.20534)"),
}
#: Cards among which the weights are divided, and cards whose room is worked out.
NODES = (8, 16)
_GB = 1e9


def saves(_site: Site, link: Link) -> str:
    """What a latent cache saves, in a sentence for whoever does not know it."""
    shape = Shape()
    latent, whole = shape.k + shape.p, 2 * shape.h * shape.d + shape.p
    return (
        f"Latent attention ([MLA]({link(LEARN)})) keeps {latent} numbers per token and layer in "
        f"{MODEL}, where keys and values of its {shape.h} heads would be {whole:,}: a "
        f"{whole / latent:.0f}th."
    )


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


def room(site: Site, link: Link) -> str:
    """A row per card: long conversations in its whole memory, and beside its share of weights."""
    known = site.cards
    shown = [known[key] for key in cards.COMPARED if key in known]
    if not shown:
        return ""
    model, (weights, source) = next(iter(WEIGHTS.items()))
    other, (more, theirs) = list(WEIGHTS.items())[1]
    sizes = long_sizes()
    rows = []
    for device in shown:
        size = float(device.figure("dram_capacity").value)
        rows.append([
            f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})",
            f"{size:,.0f} GB", _fitting(size, sizes),
            *(_beside(size, weights, n, sizes) for n in NODES),
        ])  # fmt: skip
    head = [
        "Card", "Memory", "No weights",
        *(f"Beside {weights / n:.0f} GB of weights (1/{n} of {model})" for n in NODES),
    ]  # fmt: skip
    last = shown[-1]
    left = float(last.figure("dram_capacity").value) - weights / NODES[0]
    return sections(
        f"**{model}'s weights fit on no single card. On {NODES[0]} cards that share them each "
        f"{cell(last.name.removeprefix('NVIDIA ').partition(' ')[0])} has room for "
        f"{int(left / sizes[0])} long conversations.** So MLA makes the "
        "cache small, and not a non-issue.",
        f"Conversations of {LONG:,} tokens per card, 16 bits (in brackets: FlashMLA's fp8 rows):",
        table(head, rows),
        f"**Conversations per card = (memory - weights / cards) / bytes of one**, {sizes[0]:.1f} "
        f"GB in 16 bits and {sizes[1]:.1f} GB in fp8. Shorter ones: {LONG:,} / tokens times as "
        f"many. {model}'s {source} parameters of one byte each are {weights} GB, more than any one "
        f"of these cards has; {other}'s {theirs} are {more:,} GB, so {more / NODES[1]:.0f} GB on "
        f"each of {NODES[1]} cards. Computed; activations, workspace and the server's own part "
        "come off too. It counts weights as divided evenly. **Per card** holds with data-parallel "
        "attention, where each card keeps its own conversations; with tensor parallelism all cards "
        "hold the same rows, and the number is that of the whole group.",
    ).rstrip()


def long_sizes() -> tuple[float, float]:
    """GB of one long conversation, in 16 bits and in FlashMLA's fp8 rows."""
    shape = Shape()
    rows = shape.w * (shape.k + shape.p), costs.fp8_row_bytes(shape.k, shape.p, shape.w)
    whole, packed = (row * LAYERS * LONG / _GB for row in rows)
    return whole, packed


def _fitting(size: float, sizes: tuple[float, float]) -> str:
    """How many conversations fit whole, in 16 bits and in fp8."""
    whole, packed = (int(size / one) for one in sizes)
    return f"{whole} ({packed})"


def _beside(size: float, weights: float, among: int, sizes: tuple[float, float]) -> str:
    """How many fit beside a card's share of the weights."""
    left = size - weights / among
    if left <= 0:
        return "weights do not fit"
    return f"**{_fitting(left, sizes)}** in {left:.0f} GB"


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
