"""The home page: what this is, which kernel to use, and where to go from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from generators import comparison, problems
from generators.comparison import Choice, Comparison, compare, design_link
from generators.kernels import next_version
from generators.page import Page
from generators.results import version_link
from generators.text import cell, meta, sections, table
from mla_var3 import devices
from mla_var3.knowledge import regimes
from mla_var3.knowledge.evidence import Link

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
#: Most recent records shown.
RECENT = 5


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
                f"The [regime analysis]({link('knowledge/regimes.md')}) derives the table above, "
                "and says where the ridge point of a device lies. Or search, by the words of the "
                "problem or the name of a metric such as `spill_instructions`.",
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
    disagreements = "\n".join(_disagreements(site, found, link))
    head = ["s", "Use", "Measured fastest", "Model prefers",
            *(f"Floor of {cell(k)}" for k in regimes.KERNELS)]  # fmt: skip
    return sections(
        "It depends on s, the query tokens of a sequence: 1 when decoding, a few in speculative "
        f"decoding, many in prefill. On {spec}, for {found.shape.b} sequences, {found.shape.h} "
        f"heads and {comparison.CONTEXT} keys, the cost model prefers:",
        "\n".join(_reasons(site, found, link)),
        "What was measured says otherwise:" if disagreements else "",
        disagreements,
        table(head, [_row(site, choice, link) for choice in found.choices]),
        "A **floor** is the time that the cost model and the device's ceilings allow with perfect "
        "overlap; n counts the newest tokens that the mixed design keeps decompressed. **Use** is "
        "what takes the least time: as measured or, at other s, the floor times how far above it "
        "the design's fastest version was measured at the nearest s; “about” is such a time "
        "between two measured ones.",
        comparison.what_times_cover(site, link),
        f"For another device, batch or head count see [regimes]({link('knowledge/regimes.md')}); "
        "with few sequences the keys are split over blocks: "
        f"{design_link(site, 'flash_mla_split_kv', link)}.",
    )


def _row(site: Site, choice: Choice, link: Link) -> list[str]:
    model = choice.model
    n = f", n={model.n}" if model.winner == "mla_var6_plus" else ""
    return [
        f"{choice.s}",
        _use(site, choice, link),
        _measured(site, choice, link),
        f"{design_link(site, model.winner, link)}{n}",
        *(f"{model.time_us[kernel]:,.0f} us" for kernel in regimes.KERNELS),
    ]


def _use(site: Site, choice: Choice, link: Link) -> str:
    found = choice.estimates.get(choice.advised)
    if found is None:
        return f"**{design_link(site, choice.advised, link)}**"
    between = not found.measured and len(found.near) > 1
    about = f", about {problems.amount('total_us', found.us)}" if between else ""
    return f"**{version_link(found.run, site, link)}**{about}"


def _reasons(site: Site, found: Comparison, link: Link) -> Iterator[str]:
    """Why the model prefers each design, with the query counts at which it does."""
    reasons: dict[regimes.Kernel, str] = {
        "flash_mla": "stay latent. The cache is the least to read, and all heads share each load.",
        "mla_var6_plus": "mix. The latent kernel alone is bound by arithmetic here; keeping the "
        "newest tokens decompressed trades FLOPs for bytes, until both bind.",
        "flash_attention": "decompress. It takes the fewest FLOPs, and so many queries share each "
        "key that reading them no longer binds.",
    }
    for kernel, reason in reasons.items():
        wins = found.preferred_at(kernel)
        if wins:
            span = f"s = {wins[0]}" + (f" to {wins[-1]}" if len(wins) > 1 else "")
            yield f"- **{span}**: {design_link(site, kernel, link)}, {reason}"


def _disagreements(site: Site, found: Comparison, link: Link) -> Iterator[str]:
    """Query counts at which records advise another design than the model, and which to use."""
    said: dict[str, list[int]] = {}
    for choice in found.choices:
        if choice.advised != choice.model.winner:
            said.setdefault(_advice(site, choice, link), []).append(choice.s)
    for text, counts in said.items():
        yield f"- **s = {', '.join(map(str, counts))}**: {text}"


def _advice(site: Site, choice: Choice, link: Link) -> str:
    preferred = choice.model.winner
    first, other = choice.estimates[choice.advised], choice.estimates[preferred]
    own = f"took {_time(first.run, link)}"
    if not first.measured:
        counts = sorted(comparison.queries(run) for run in first.near)
        own = f"is estimated from s = {' and '.join(map(str, counts))}"
    theirs = "is estimated to take longer"
    if other.measured:
        floor = f"{choice.model.time_us[preferred]:,.0f} us"
        theirs = f"took {_time(other.run, link)} against a floor of {floor}"
    return (
        f"use {version_link(first.run, site, link)}. It {own}, while "
        f"{version_link(other.run, site, link)} {theirs}."
    )


def _measured(site: Site, choice: Choice, link: Link) -> str:
    """The fastest record at s, or what those around it say."""
    if choice.runs:
        fastest = choice.runs[0]
        without = ", ".join(map(cell, choice.untimed))
        return f"{version_link(fastest, site, link)}: {_time(fastest, link)}" + (
            f"; not measured: {without}" if without else ""
        )
    around = _around(site, choice, link)
    return f"not measured; nearest: {around}" if around else "not measured"


def _around(site: Site, choice: Choice, link: Link) -> str:
    """The fastest at the nearest query counts that were measured, by version."""
    counts: dict[str, list[str]] = {}
    for run in choice.around:
        counts.setdefault(version_link(run, site, link), []).append(f"s={comparison.queries(run)}")
    return ", ".join(f"{name} at {' and '.join(found)}" for name, found in counts.items())


def _time(run: Run, link: Link) -> str:
    assert run.outcome is not None
    return problems.record_link(run, link, problems.duration(run.outcome.total))


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
        f"[Contributing]({link('CONTRIBUTING.md#a-version')}) says what belongs into its devlog "
        "entry, and how to add a design or a device.",
    )


def _newest(site: Site, link: Link) -> str:
    newest = sorted(site.runs, key=lambda run: (run.record.time, run.name), reverse=True)
    rows = [
        [
            f"{run.record.time:%Y-%m-%d}",
            cell(f"{run.record.kernel.design} {run.record.kernel.version}"),
            cell(problems.target_name(run.record.target)),
            cell(str(problems.problem_of(run.record))),
            problems.record_link(run, link),
        ]
        for run in newest[:RECENT]
    ]
    shown = table(["Made", "Version", "Where", "Problem", "Record"], rows)
    return sections(
        shown or "No record is committed yet.",
        f"[Explore all {len(site.runs)}]({link('results/explorer')})." if rows else "",
    )
