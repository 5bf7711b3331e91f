"""Makes the page for whoever chooses a card: published figures and what they limit.

All cards stand at their published rates, so that ratios compare like with like; what
was measured on one of them stands on its own page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from generators.model.site import Site
from generators.write.page import Page
from generators.write.text import cell, meta, sections, table
from mla_var3.devices import Ceilings, Device
from mla_var3.errors import DeviceFigureError
from mla_var3.evidence.compare import times
from mla_var3.knowledge.evidence import Link
from mla_var3.roofline.prediction import Prediction, predict
from mla_var3.workloads.mla import regimes

PATH = "mla/which-card.md"
#: This file, by which other pages name the page.
SOURCE = "generators/mla/cards.py"
FOUND_BY = (
    "H100 H200 B200 specs", "specs of H100 H200 B200", "dense bf16 TFLOPS by card",
    "SM count TFLOPS bandwidth in one table", "data sheet of the cards",
    "B200 vs H200", "H200 vs B200", "H100 vs H200", "H100 or H200", "is a B200 worth it",
    "which card to buy", "which GPU to buy", "compare GPUs", "GPU comparison", "budget",
    "price performance", "memory size of a card", "what limits decode", "what limits prefill",
    "B200 for Kimi K2", "hardware for serving DeepSeek", "bandwidth of H200 and B200",
    "is Blackwell faster than Hopper", "upgrade from Hopper to Blackwell", "plain words",
    "decode by card", "memory or compute limits decode", "cost of decode by card",
    "which card for MLA", "TB/s by card", "memory bandwidth of each GPU", "fp8 TFLOPS by card",
    "how much memory has a B200", "H20 or H100 for decode", "RTX 5090 for inference",
    "datasheet figures side by side", "power limit of a card", "SM count", "how many SMs",
    "number of multiprocessors of each GPU", "power limit in watts", "TDP of H100 H200 B200",
    "watts per GPU", "132 SMs or 148 SMs",
    "H800 and H200 compared", "is more bandwidth or more FLOPS better for decode",
    "hardware purchase decision", "H100 PCIe vs SXM", "PCIe variety of the H100",
    "discount numbers for H100 PCIe", "H100 PCIe slower than SXM by how much",
    "was anything measured on a B200", "16 heads per card or 128",
)  # fmt: skip
#: Other words for its sections.
SECTIONS: dict[str, list[str]] = {
    "is-an-h20-a-bargain": [
        "H20 for latent attention decode", "H20 against H100", "is an H20 good for MLA",
        "H20 compute and bandwidth", "H20 at a discount", "H20 for DeepSeek decode",
        "should we buy H20 cards", "is the H20 enough for decode", "H20 bargain",
    ],
    "does-a-layers-cache-fit-l2": [
        "L2 size of H100 H200 B200", "L2 in MB by card", "how big is L2 on a B200",
        "latents of a batch in L2", "keep the latent cache in L2", "tokens that fit L2",
        "does the KV cache fit into L2", "latent cache between layers in L2",
    ],
}  # fmt: skip
#: The card with much bandwidth and little arithmetic.
THIN = "nvidia-h20"
#: Bytes of a token's row: 512 latent and 64 rotary values in 16 bits, and FlashMLA's fp8 row.
ROW, ROW_FP8 = (512 + 64) * 2, 656
#: Cards whose limits are worked out, the one that all are compared with among them.
COMPARED = ("nvidia-h100-sxm", "nvidia-h200-sxm", "nvidia-b200")
BASE = "nvidia-h200-sxm"
#: The kernel for the newest of them.
BLACKWELL = "kernels/cute_python/mla/blackwell_mla/devlog.md"
HEADS_OF_MODELS, SENDING = "docs/glossary/head-grouping.md", "docs/contribute.md"
#: Query heads on one card: those of DeepSeek-V3 and Kimi K2, whole and divided among cards.
HEADS = (8, 16, 32, 64, 128)
#: Sequences, and keys of each, of the decode that is worked out.
SEQUENCES, CONTEXT = 32, 32768
#: Tokens of the prompt that is worked out.
PROMPT = 4096
_LIMITS = {"memory": "bandwidth", "compute": "arithmetic"}


def page(site: Site) -> Page:
    """Figures of every card, then what limits MLA on three of them."""
    link = site.link(PATH)
    known = site.cards
    base = known.get(BASE)
    shown = by_bandwidth(site)
    compared = [known[key] for key in COMPARED if key in known]
    content = sections(
        meta(
            title="H100, H200 or B200: which card?",
            description="Cards side by side: memory, bandwidth, arithmetic, and what limits MLA",
            found_by=list(FOUND_BY),
            sections=SECTIONS,
        ),
        "# H100, H200 or B200 for serving MLA models: which card?",
        _lead(site, known, link),
        table(_HEAD, [_row(site, device, base, link) for device in shown]),
        "Rates and sizes are as published, per card, without sparsity; each name leads to its "
        "sources. *SMs* are streaming multiprocessors; *power limit* is the board's, at most. "
        "*Times an H200's* is the ratio of published rates: what a perfect kernel could "
        "gain. A ratio of prices is yours to set beside it.",
        _variants(known),
        "## What limits decode, and what limits prefill",
        _limits(compared),
        _smaller(site, known, link),
        _resident(known, link),
        _plain(site, compared, link),
    )
    return Page(PATH, content, None, ("MLA", "Which card"))


#: Two forms of one card, the one that is measured first.
VARIANTS = ("nvidia-h100-sxm", "nvidia-h100-pcie")


def _variants(known: Mapping[str, Device]) -> str:
    """What the slower form of a card makes of times of the faster one."""
    if any(key not in known or not published(known[key]) for key in VARIANTS):
        return ""
    fast, slow = (known[key] for key in VARIANTS)
    reads, computes = rates(slow).gbps / rates(fast).gbps, rates(slow).tflops / rates(fast).tflops
    sms = [device.sm_count for device in (fast, slow)]
    watts = [device.figure("tdp").normalised for device in (fast, slow)]
    return (
        f"**H100 PCIe in place of SXM:** {reads:.2f} of the bandwidth, {computes:.2f} of the bf16 "
        f"arithmetic, {sms[1]} SMs for {sms[0]}, {watts[1]:g} W for {watts[0]:g}. So what waits "
        f"for memory (decode with few heads) takes about {1 / reads:.1f} times as long, what "
        f"computes (prefill, decode with 128 heads) at least {1 / computes:.1f} times, and more "
        "where the lower power limit holds the clock down. The rule for any two cards: a time "
        "bound by memory goes by the ratio of bandwidths, one bound by arithmetic by that of the "
        "rates; fewer SMs make other splits best. None of it was timed on a PCIe card."
    )


def by_bandwidth(site: Site) -> list[Device]:
    """Cards that kernels are compiled for and whose rates are known, the fastest memory first."""
    found = (d for d in site.devices if d.is_compile_target and published(d))
    return sorted(found, key=lambda d: -rates(d).gbps)


def published(device: Device) -> bool:
    """Whether both rates of a card are known."""
    try:
        rates(device)
    except DeviceFigureError:
        return False
    return True


def rates(device: Device) -> Ceilings:
    """The largest rates that anybody states; power, which is known of one card alone, left out."""
    return replace(device.bound(regimes.DTYPE), power=None)


_HEAD = [
    "Card", "SMs", "Memory", "Bandwidth", "bf16, dense", "fp8, dense", "Power limit",
    "Times an H200's", "L2",
    "Timed here?",
]  # fmt: skip


def _row(site: Site, device: Device, base: Device | None, link: Link) -> list[str]:
    found = rates(device)
    timed = sum(run.is_timed and run.record.target == device.key for run in site.runs)
    ratio = ""
    if base is not None and device is not base:
        own = rates(base)
        ratio = (
            f"{found.gbps / own.gbps:.2g}x bandwidth, {found.tflops / own.tflops:.2g}x arithmetic"
        )
    return [
        f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})",
        stated(device, "sm_count").removesuffix(" SMs"),
        stated(device, "dram_capacity"),
        f"{found.gbps / 1000:.3g} TB/s",
        f"{found.tflops:,.4g} TFLOP/s",
        _fp8(device),
        stated(device, "tdp"),
        ratio,
        stated(device, "l2_size"),
        linked(site, link, f"results/{device.key}", f"{timed} records") if timed else "no",
    ]


def stated(device: Device, metric: str) -> str:
    """A figure of a device file with its unit, or that it is unknown."""
    try:
        figure = device.figure(metric)
    except DeviceFigureError:
        return "unknown"
    return cell(f"{figure.value:,} {figure.unit}")


def _fp8(device: Device) -> str:
    try:
        return f"{device.bound('float8').tflops:,.4g} TFLOP/s"
    except DeviceFigureError:
        return "none"


def _lead(site: Site, known: Mapping[str, Device], link: Link) -> str:
    """What can be said and what cannot, for whoever reads no further."""
    timed = {run.record.target for run in site.runs if run.is_timed}
    away = [known[key] for key in COMPARED if key in known and key not in timed]
    names = " or ".join(f"a {cell(_short(device))}" for device in away)
    nothing = (
        f"**Nothing was timed on {names} here, so nobody can tell you from measurements whether it "
        "pays.** " if names else ""
    )  # fmt: skip
    if BASE not in known or COMPARED[-1] not in known:
        return nothing
    old, new = rates(known[BASE]), rates(known[COMPARED[-1]])
    first, last = cell(_short(known[BASE])), cell(_short(known[COMPARED[-1]]))
    return (
        f"{nothing}By published figures one {last} has {new.gbps / old.gbps:.1f} times the memory "
        f"bandwidth of an {first}, {new.tflops / old.tflops:.1f} times its 16-bit arithmetic and "
        f"{_capacity(known[COMPARED[-1]]) / _capacity(known[BASE]):.1f} times its memory. Per "
        "token generated, one of the first two is what counts, and how many heads a card has "
        f"decides [which](#what-limits-decode-and-what-limits-prefill). The fast kernels of this "
        f"site are written for {first} and H100; the one for {last} is "
        f"{linked(site, link, BLACKWELL, 'blackwell_mla')}"
        + (", which never ran on the chip." if known[COMPARED[-1]] in away else ".")
    )


def multiprocessors(site: Site, link: Link) -> str:
    """How many SMs each card has."""
    return _of_each(site, link, "sm_count")


def watts(site: Site, link: Link) -> str:
    """What each card's board may draw."""
    return _of_each(site, link, "tdp")


def _of_each(site: Site, link: Link, metric: str) -> str:
    """A figure of every card that states it, in one sentence."""
    said = [
        f"[{cell(device.name.removeprefix('NVIDIA '))}]"
        f"({link(f'knowledge/devices/{device.key}.toml')}) {figure}"
        for device in by_bandwidth(site)
        if (figure := stated(device, metric)) != "unknown"
    ]
    return f"**By card**, as published: {', '.join(said)}." if said else ""


def linked(site: Site, link: Link, target: str, words: str) -> str:
    """Words that lead to a page where the site has it."""
    return f"[{words}]({link(target)})" if target in site.addresses else words


def _capacity(device: Device) -> float:
    return float(device.figure("dram_capacity").value)


def _short(device: Device) -> str:
    """A card as people call it."""
    return device.name.removeprefix("NVIDIA ").partition(" ")[0]


def _decode(device: Device, heads: int) -> Prediction:
    shape = regimes.Shape(b=SEQUENCES, h=heads)
    work = regimes.cost("flash_mla", shape, 1, CONTEXT)
    return predict(work.flops, work.bytes, rates(device))


def least(device: Device, heads: int) -> float:
    """Least time of the decode that is worked out, in us, at the rates that anybody states."""
    return _decode(device, heads).time_us


def _prefill(device: Device, heads: int) -> Prediction:
    shape = regimes.Shape(b=1, h=heads)
    work = regimes.cost("flash_attention", shape, PROMPT, PROMPT)
    return predict(work.flops, work.bytes, rates(device))


def _limits(compared: list[Device]) -> str:
    """A row per kind of work: what limits it on each card, and the most that a card gains."""
    base = next((device for device in compared if device.key == BASE), None)
    work = {
        **{f"decode, {heads} heads on the card": (_decode, heads) for heads in HEADS},
        f"prefill of {PROMPT:,} tokens": (_prefill, HEADS[-1]),
    }
    rows = []
    for name, (make, heads) in work.items():
        found = [name]
        for device in compared:
            made = make(device, heads)
            said = _LIMITS[made.bound]
            if base is not None and device is not base:
                gain = make(base, heads).time_us / made.time_us
                said += f"; {gain:.2g}x an H200" if gain >= 0.995 else f"; {gain:.2g} of an H200"
            found.append(said)
        rows.append(found)
    return sections(
        table(["Work", *(cell(_short(device)) for device in compared)], rows),
        f"Computed from [FLOPs and bytes](cost-models.md) at the rates above, not measured: "
        f"attention alone, {SEQUENCES} sequences of {CONTEXT:,} cached tokens in bf16 for decode, "
        "one query token each; decompressed keys and values for prefill. The factor is what a "
        "kernel that attains the published rates on both cards would gain. On an H200 the board's "
        "power lowers arithmetic below its published rate, so that with 128 heads real kernels are "
        "further from it than from the bandwidth.",
    )


def _smaller(site: Site, known: Mapping[str, Device], link: Link) -> str:
    """What the card with little arithmetic is good for, by its heads."""
    if not {THIN, COMPARED[0]} <= known.keys():
        return ""
    thin, usual = known[THIN], known[COMPARED[0]]
    rows = []
    for heads in HEADS:
        own, other = _decode(thin, heads), _decode(usual, heads)
        factor = other.time_us / own.time_us
        said = f"{factor:.2g} times as fast" if factor >= 1 else f"{1 / factor:.2g} times as long"
        rows.append([str(heads), _LIMITS[own.bound], _LIMITS[other.bound], said])
    bound = _first_bound_by_arithmetic(thin)
    a, b = rates(thin), rates(usual)
    first = (
        f"**A trap with {bound} heads on the card or more, a bargain below that**, as long as "
        "memory is what counts. "
        if bound
        else ""
    )
    return sections(
        "## Is an H20 a bargain?",
        f"{first}It has {a.gbps / 1000:.3g} TB/s and {a.tflops:,.4g} TFLOP/s in bf16; an "
        f"{cell(_short(usual))} has {b.gbps / 1000:.3g} and {b.tflops:,.4g}. So an H20 needs "
        f"{a.ridge:.3g} FLOP per byte to keep its tensor cores as busy as its memory, the other "
        f"{b.ridge:.3g}, and decode has about twice as many as there are heads on the card: "
        "with data-parallel attention all 128 of DeepSeek-V3, with tensor parallelism 128 over "
        "the number of cards.",
        table(
            [
                "Heads on the card",
                "Limit on an H20",
                f"On an {_short(usual)}",
                "An H20 is, or takes",
            ],
            rows,
        ),
        "Computed as above, for decode with one query token; several drafted tokens at once move "
        "the limit to fewer heads. Prefill is arithmetic: there it takes "
        f"{_prefill(thin, HEADS[-1]).time_us / _prefill(usual, HEADS[-1]).time_us:.2g} times as "
        f"long. Nothing was timed on an H20 here; its machine code is that of an H100: "
        f"[its map]({link(f'knowledge/devices/{THIN}.toml')}).",
    )


def _resident(known: Mapping[str, Device], link: Link) -> str:
    """How many tokens of one layer's cache each card's L2 would hold."""
    rows = []
    for device in (known[key] for key in COMPARED if key in known):
        try:
            figure = device.figure("l2_size")
        except DeviceFigureError:
            continue
        held = float(figure.value) * 1e6
        rows.append([
            f"[{cell(_short(device))}]({link(f'knowledge/devices/{device.key}.toml')})",
            cell(f"{figure.value:,} {figure.unit}"),
            f"{held / ROW:,.0f}",
            f"{held / ROW_FP8:,.0f}",
        ])  # fmt: skip
    if not rows:
        return ""
    return sections(
        "## Does a layer's cache fit L2?",
        f"**Of a small batch yes, but it does not stay:** a token's row is {ROW:,} bytes per "
        f"layer in 16 bits ({ROW_FP8} in FlashMLA's fp8), and each layer has its own rows. Until a "
        "layer is reached again all other layers' rows and all weights have gone through L2. "
        "Within one layer it helps who reads a row twice.",
        table(
            ["Card", "L2", "Tokens of one layer, 16 bits", "Tokens of one layer, fp8"],
            rows,
            right=["Tokens of one layer, 16 bits", "Tokens of one layer, fp8"],
        ),
        "All sequences together, if nothing else were in it (1 MB as 1,000,000 bytes). So 32 "
        f"sequences of 4,096 tokens, {32 * 4096 * ROW / 1e6:,.0f} MB, fit none of them, and a "
        "benchmark that repeats a small problem without a flush reads L2 and not memory.",
    )


def slower(site: Site, link: Link) -> str:
    """By how much longer decode takes on the smaller card of the two with the same machine code."""
    known = site.cards
    if not {COMPARED[0], BASE} <= known.keys():
        return ""
    other, base = known[COMPARED[0]], known[BASE]
    few, many = (
        _decode(other, heads).time_us / _decode(base, heads).time_us
        for heads in (HEADS[1], HEADS[-1])
    )
    return (
        f"by published rates {times(few)} the time on an {cell(_short(other))} SXM with "
        f"{HEADS[1]} heads, {times(many)} with {HEADS[-1]} ([card by card]({link(SOURCE)}))"
    )


def _first_bound_by_arithmetic(device: Device) -> int | None:
    return next((heads for heads in HEADS if _decode(device, heads).bound == "compute"), None)


def _plain(site: Site, compared: list[Device], link: Link) -> str:
    """The same in words for whoever reads no code."""
    turns = [
        f"{heads} on {cell(_short(device))}"
        for device in compared
        if (heads := _first_bound_by_arithmetic(device)) is not None
    ]
    return sections(
        "## In plain words",
        "- **Decode** (writing the answer, a token at a time) reads the whole cache of every "
        "conversation for each token. With few heads on a card that reading is the limit: "
        "bandwidth is what you pay for. "
        + (
            f"With many heads arithmetic is: of the numbers above, from {', '.join(turns)} on. "
            if turns
            else ""
        )
        + "How many heads a card has follows from the model and from how many cards share it: "
        f"{linked(site, link, HEADS_OF_MODELS, 'DeepSeek-V3 has 128, Kimi K2 64')}.\n"
        "- **Prefill** (reading the question) is arithmetic on all of them.\n"
        "- **Memory** decides how many conversations fit, not how fast one is. A longer context or "
        "more users need more of it.\n"
        "- **Attention is a part of a model.** The other layers, and the network between cards, "
        "are not measured here.\n"
        "- **What would settle it:** the same run on both cards, ten minutes each: "
        f"{linked(site, link, SENDING, '`nox -s contribute`')}. What was measured on an H200: "
        f"{linked(site, link, f'results/{BASE}', 'results')}.",
    )
