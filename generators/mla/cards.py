"""Makes the page for whoever chooses a card: published figures and what they limit.

All cards stand at their published rates, so that ratios compare like with like; what
was measured on one of them stands on its own page.
"""

from __future__ import annotations

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
    known = {device.key: device for device in site.devices}
    base = known.get(BASE)
    shown = by_bandwidth(site)
    compared = [known[key] for key in COMPARED if key in known]
    content = sections(
        meta(
            title="H100, H200 or B200: which card?",
            description="Cards side by side: memory, bandwidth, arithmetic, and what limits MLA",
            found_by=list(FOUND_BY),
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
        _plain(site, compared, link),
    )
    return Page(PATH, content, None, ("MLA", "Which card"))


#: Two forms of one card, the one that is measured first.
VARIANTS = ("nvidia-h100-sxm", "nvidia-h100-pcie")


def _variants(known: dict[str, Device]) -> str:
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
    "Times an H200's",
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
        _stated(device, "sm_count").removesuffix(" SMs"),
        _stated(device, "dram_capacity"),
        f"{found.gbps / 1000:.3g} TB/s",
        f"{found.tflops:,.4g} TFLOP/s",
        _fp8(device),
        _stated(device, "tdp"),
        ratio,
        linked(site, link, f"results/{device.key}", f"{timed} records") if timed else "no",
    ]


def _stated(device: Device, metric: str) -> str:
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


def _lead(site: Site, known: dict[str, Device], link: Link) -> str:
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
        if (figure := _stated(device, metric)) != "unknown"
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


def slower(site: Site, link: Link) -> str:
    """By how much longer decode takes on the smaller card of the two with the same machine code."""
    known = {device.key: device for device in site.devices}
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
