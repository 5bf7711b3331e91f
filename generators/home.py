"""The home page: what this is, which kernel to use, and where to go from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from generators import comparison, problems
from generators.comparison import Choice, Comparison, compare, design_link
from generators.kernels import next_version
from generators.page import Page
from generators.results import OTHERS, version_link
from generators.source import repo_name
from generators.text import cell, meta, sections, table
from mla_var3 import devices
from mla_var3.knowledge.evidence import Link
from mla_var3.workloads.mla import regimes

if TYPE_CHECKING:
    from generators.site import Run, Site

HOME = "index.md"
#: Design whose next version the example adds.
EXAMPLE = "mla_var6_plus"
#: What people come with, and the pages that answer it.
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "My cuTile kernel spills registers.": (
        "cutile-worker-warps-hint",
        "o12-worker-warps-by-spills",
        "a9-default-warps-large-accumulator",
    ),
    "Decoding reads the cache once a head.": ("o2-head-grouping",),
    "The grid does not fill the GPU, or its last wave is nearly empty.": (
        "o16-split-kv",
        "o1-proportional-block-split",
        "a3-underfilled-concurrency",
    ),
    "The tensor cores idle, or run on the slow path.": (
        "a7-sub-16-mma-dimension",
        "o14-operand-swap",
    ),
    "The causal mask costs as much as no mask.": ("o8-causal-k-loop-split",),
    "Loads do not use TMA.": ("cutile-tma-conditions",),
}


def places(site: Site) -> Mapping[str, str]:
    """The home page shows no file of its own."""
    return {}


def pages(site: Site) -> list[Page]:
    """The home page."""
    link = site.link(HOME)
    return [
        Page(
            HOME,
            sections(
                meta(
                    description="MLA attention kernels in Python: versions, knowledge, records",
                    hide=["navigation"],
                ),
                "# HyperMLA",
                "A workbench and knowledge base for Multi-head Latent Attention kernels written "
                "in Python: NVIDIA's cuTile and CuTe DSLs. It serves three ends:",
                _doors(link),
                "## Which kernel to use",
                _choice(site, link),
                "## What is wrong with my kernel?",
                _questions(site, link),
                "Or search, by the words of the problem or the name of a metric such as "
                "`spill_instructions`.",
                "## Add a version",
                _adding(site, link),
                "## Newest records",
                _newest(site, link),
            ),
            nav=("Home",),
        )
    ]


def _doors(link: Link) -> str:
    doors = {
        "Choose": f"Which design for your query count and device, and what it reaches: "
        f"[kernels]({link('kernels')}), [results]({link('results')}), "
        f"[devices]({link('knowledge/devices')}).",
        "Improve": "What to try next, by symptom or metric, with the evidence for each pattern, "
        "and every version's history: what was predicted, and what came of it. "
        "Start [below](#what-is-wrong-with-my-kernel).",
        "Write": "Edit a version and know within seconds, without a GPU, whether it is right and "
        "what the compiler made of it; measure it when there is one: "
        f"[add a version](#add-a-version), [run any cuTile kernel]({link('docs/interpreter.md')}).",
    }
    cards = "\n".join(f"-   **{title}**\n\n    {text}\n" for title, text in doors.items())
    return f'<div class="grid cards" markdown>\n\n{cards}\n</div>'


def _choice(site: Site, link: Link) -> str:
    found = compare(site, devices.default_for_arch("sm_90"))
    spec = f"[{cell(found.device.name)}]({link(f'knowledge/devices/{found.device.key}.toml')})"
    shown = [kernel for kernel in _CACHES if any(kernel in c.best for c in found.choices)]
    head = ["s", *(_CACHES[k] for k in shown), "Model prefers", "Least time by the model"]
    runs = [choice.best[k].run for choice in found.measured for k in shown if k in choice.best]
    regimes_page = f"[regime analysis]({link('knowledge/regimes.md')})"
    return sections(
        "It depends on s, the query tokens of a sequence (1 when decoding, a few in speculative "
        f"decoding, many in prefill), and on what the cache holds. On {spec}, for "
        f"{found.shape.b} sequences, {found.shape.h} heads and {comparison.CONTEXT} keys in "
        f"{regimes.DTYPE}, {'the fastest measured' if runs else 'where nothing is measured yet'}:",
        table(head, [_row(site, choice, shown, link) for choice in found.choices]),
        _decompress_first(found),
        "What the cost model prefers, and why:",
        "\n".join(_reasons(site, found, link)),
        "**Least time by the model** is what FLOPs and bytes take at the device's ceilings with "
        "perfect overlap; n counts the newest tokens that are kept decompressed. "
        f"The {regimes_page} derives both and has a calculator for other sizes and devices; its "
        f"own table is for {regimes.Shape().b} sequences.",
        problems.above_ceiling(runs, link),
        " ".join(filter(None, [_conditions(found), comparison.what_times_cover(site, link)])),
        f"Faster kernels exist elsewhere: what [other libraries take]({link(OTHERS)}), as cited.",
    )


#: What the caller's cache holds, by the kernel of the analysis that reads it.
_CACHES: Mapping[regimes.Kernel, str] = {
    "flash_mla": "Use, from a latent cache",
    "mla_var6_plus": "Newest n tokens decompressed already",
    "flash_attention": "All K and V decompressed already",
}


def _row(site: Site, choice: Choice, shown: list[regimes.Kernel], link: Link) -> list[str]:
    model = choice.model
    n = f", n={model.n}" if model.winner == "mla_var6_plus" else ""
    return [
        f"{choice.s}",
        *(_use(site, choice, kernel, link) for kernel in shown),
        f"{design_link(site, model.winner, link)}{n}",
        f"{model.time_us[model.winner]:,.0f} us",
    ]


def _use(site: Site, choice: Choice, kernel: regimes.Kernel, link: Link) -> str:
    found, n = choice.best.get(kernel), choice.model.n
    if found is None:
        mixes = kernel != "mla_var6_plus" or 0 < n < comparison.CONTEXT
        return "not measured" if mixes else f"the best n is {n}"
    time = problems.record_link(found.run, link, problems.duration(found.run.total))
    held = found.run.record.problem.get("n")
    kept = f", n={held}" if held else ""
    rival = f", within noise of {version_link(found.rival, site, link)}" if found.rival else ""
    return f"**{version_link(found.run, site, link)}**{kept}: {time}{rival}"


def _decompress_first(found: Comparison) -> str:
    """Where decompressing everything and attending to it can beat the best latent kernel."""
    pays = [
        choice.s
        for choice in found.measured
        if {"flash_mla", "flash_attention"} <= choice.best.keys()
        and choice.best["flash_attention"].us + found.decompressing_us < choice.best["flash_mla"].us
    ]
    if not pays:
        return ""
    return (
        "Decompressing all keys and values of a latent cache first takes at least "
        f"{found.decompressing_us:,.0f} us more by the model, which can pay at "
        f"{_span(pays, found)} only."
    )


def _reasons(site: Site, found: Comparison, link: Link) -> Iterator[str]:
    """Why the model prefers each design, with the query counts at which it does."""
    for kernel in _CACHES:
        wins = [choice for choice in found.choices if choice.model.winner == kernel]
        if not wins:
            continue
        reasons: dict[regimes.Kernel, str] = {
            "flash_mla": "stay latent. The cache is the least to read, and all heads share each "
            f"load; {_binding(wins, kernel, found)}.",
            "mla_var6_plus": f"mix. In a latent kernel {_binding(wins, 'flash_mla', found)}, in a "
            f"decompressed one {_binding(wins, 'flash_attention', found)}: with the newest n "
            "tokens decompressed the two balance.",
            "flash_attention": "decompress. It takes the fewest FLOPs; "
            f"{_binding(wins, kernel, found)}.",
        }
        behind = [c.s for c in wins if kernel in c.best and c.fastest != kernel]
        why = ""
        if behind:
            devlog = link(f"{repo_name(site.designs()[kernel][-1].path)}#devlog")
            where = "" if len(behind) == len(wins) else f" at {_span(behind, found)}"
            why = f" Measured, it is behind{where} so far: [why]({devlog})."
        span = _span([choice.s for choice in wins], found)
        yield f"- **{span}**: {design_link(site, kernel, link)}, {reasons[kernel]}{why}"


def _binding(choices: list[Choice], kernel: regimes.Kernel, found: Comparison) -> str:
    """Which ceiling binds a kernel at some query counts."""
    words = {"compute": "arithmetic binds", "memory": "memory traffic binds"}
    bound = {
        text: counts
        for ceiling, text in words.items()
        if (counts := [c.s for c in choices if c.bounds[kernel] == ceiling])
    }
    if len(bound) == 1:
        return next(iter(bound))
    ordered = sorted(bound.items(), key=lambda item: item[1])
    return " and ".join(f"{text} at {_span(counts, found)}" for text, counts in ordered)


def _span(counts: list[int], found: Comparison) -> str:
    """Query counts, those in a row by their ends."""
    between = [c.s for c in found.choices if counts[0] <= c.s <= counts[-1]]
    if len(counts) > 2 and counts == between:
        return f"s = {counts[0]} to {counts[-1]}"
    return f"s = {', '.join(map(str, counts))}"


def _conditions(found: Comparison) -> str:
    shown = [[b.run.record.run for b in choice.best.values()] for choice in found.measured]
    rivals = any(b.rival for choice in found.measured for b in choice.best.values())
    one_run = shown and all(len(set(runs)) == 1 and runs[0] for runs in shown)
    return " ".join(
        filter(
            None,
            [
                "The times of a row are of one run." if one_run else "",
                "Within noise are two whose medians lie in the range of each other's samples."
                if rivals
                else "",
            ],
        )
    )


def _questions(site: Site, link: Link) -> str:
    lines = []
    for question, ids in QUESTIONS.items():
        answers = (site.catalogue.page(id_) for id_ in ids)
        lines.append(f"- {question} " + " · ".join(
            f"[{cell(page.pattern.title)}]({link(page.name)})" for page in answers
        ))  # fmt: skip
    return "\n".join(lines)


def _adding(site: Site, link: Link) -> str:
    versions = site.designs()[EXAMPLE]
    latest, new = versions[-1], next_version(versions)
    copy = latest.path.parents[1] / f"{EXAMPLE}_{new}"
    steps = {
        f"clone -- {latest.name} {new}": "a copy that passes its checks",
        f"check -- {EXAMPLE} {new}": "after each edit: is it right?",
        f"profile -- {EXAMPLE} {new}": "registers, spills, roofline, what to try",
        f"compare -- {EXAMPLE} {latest.version} {new}": "what the edit changed",
    }
    width = max(map(len, steps))
    lines = (f"$ nox -s {step:{width}}  # {comment}\n" for step, comment in steps.items())
    return sections(
        f"From the newest version of {design_link(site, EXAMPLE, link)}, say, on a fresh "
        "checkout, after `pip install nox`, and without a GPU:",
        f"```console\n{''.join(lines)}```",
        f"`clone` takes DESIGN_VERSION and writes `{repo_name(copy)}/`; the others take DESIGN "
        "VERSION. Write your prediction into the copy's devlog entry before the first edit: "
        f"[contributing]({link('CONTRIBUTING.md#a-version')}) says what belongs there, and how to "
        "add a design or a device.",
    )


def _newest(site: Site, link: Link) -> str:
    """The newest record of each design."""
    newest: dict[str, Run] = {}
    for run in sorted(site.runs, key=lambda run: (run.record.time, run.name), reverse=True):
        newest.setdefault(run.record.kernel.design, run)
    rows = [
        [
            f"{run.record.time:%Y-%m-%d}",
            cell(f"{run.record.kernel.design} {run.record.kernel.version}"),
            cell(problems.target_name(run.record.target)),
            cell(str(problems.problem_of(run.record))),
            problems.record_link(run, link),
        ]
        for run in newest.values()
    ]
    shown = table(["Made", "Version", "Where", "Problem", "Record"], rows)
    return sections(
        shown or "No record is committed yet.",
        f"[Explore all {len(site.runs)}]({link('results/explorer')})." if rows else "",
    )
