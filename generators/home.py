"""The home page: what this is, which kernel to use, and where to go from there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from generators import kernels, problems
from generators.page import Page
from generators.source import repo_name
from generators.text import cell, meta, sections, table
from mla_var3 import devices
from mla_var3.knowledge import regimes
from mla_var3.knowledge.evidence import Link

if TYPE_CHECKING:
    from generators.site import Run, Site

HOME = "index.md"
CONTEXT = kernels.CONTEXT
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
                _adding(link),
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
    device = devices.default_for_arch("sm_90")
    shape, ceilings = regimes.Shape(), regimes.ceilings_of(device.key)
    found = [regimes.cell(shape, s, CONTEXT, ceilings) for s in regimes.S_VALUES]
    rows = [
        [
            f"{point.s}",
            f"**{_design(site, point.winner, link)}**",
            *(f"{point.time_us[kernel]:,.0f} us" for kernel in regimes.KERNELS),
            f"{point.n}" if point.winner == "mla_var6_plus" else "",
            _measured(site, device.key, point.s, link),
        ]
        for point in found
    ]
    head = ["s", "Use", *(f"Floor of {cell(k)}" for k in regimes.KERNELS), "n", "Fastest measured"]
    spec = f"[{cell(device.name)}]({link(f'knowledge/devices/{device.key}.toml')})"
    return sections(
        f"It depends on s, the query tokens of a sequence: 1 when decoding, a few in speculative "
        f"decoding, many in prefill. On {spec} (ridge point {ceilings.ridge:.0f} FLOP/byte), for "
        f"{shape.b} sequences, {shape.h} heads and {CONTEXT} keys:",
        "\n".join(_reasons(site, found, link)),
        table(head, rows),
        "Floors are run times that the cost model and the device's ceilings allow, with perfect "
        "overlap; n counts the newest tokens that the mixed design keeps decompressed. What "
        "kernels reach stands in the last column and on their pages; where it names another "
        "design, the recommended one does not reach its floor yet. With few sequences the keys "
        f"are split over blocks: {_design(site, 'flash_mla_split_kv', link)}. For another device, "
        f"batch or head count see [regimes]({link('knowledge/regimes.md')}).",
    )


def _reasons(site: Site, found: list[regimes.Cell], link: Link) -> Iterator[str]:
    """Why each design is the one to use, with the query counts at which it is."""
    reasons: dict[regimes.Kernel, str] = {
        "flash_mla": "stay latent. The cache is the least to read, and all heads share each load.",
        "mla_var6_plus": "mix. The latent kernel alone is bound by arithmetic here; keeping the "
        "newest tokens decompressed trades FLOPs for bytes, until both bind.",
        "flash_attention": "decompress. It takes the fewest FLOPs, and so many queries share each "
        "key that reading them no longer binds.",
    }
    for kernel, reason in reasons.items():
        wins = [point.s for point in found if point.winner == kernel]
        if wins:
            span = f"s = {wins[0]}" + (f" to {wins[-1]}" if len(wins) > 1 else "")
            yield f"- **{span}**: {_design(site, kernel, link)}, {reason}"


def _design(site: Site, design: str, link: Link) -> str:
    folder = repo_name(site.designs()[design][0].path.parents[1])
    return f"[{cell(design)}]({link(folder)})"


def _measured(site: Site, device: str, s: int, link: Link) -> str:
    """The fastest record at s, of those with the most sequences."""
    sizes = regimes.Shape()
    runs = [
        run
        for run in site.runs
        if run.is_timed
        and run.record.target == device
        and run.record.problem.get("s") == s
        and run.record.problem.get("h") == sizes.h
        and run.record.problem.get("t") == CONTEXT
        and not run.record.problem.get("causal")
    ]
    most = max((_batch(run) for run in runs), default=0)
    for run in problems.fastest(run for run in runs if _batch(run) == most)[:1]:
        assert run.outcome is not None
        kernel = run.record.kernel
        label = f"{kernel.design} {kernel.version}"
        time = problems.record_link(run, link, problems.duration(run.outcome.total))
        return f"{cell(label)}, b={most}: {time}"
    return ""


def _batch(run: Run) -> int:
    return int(run.record.problem.get("b") or 0)


def _questions(site: Site, link: Link) -> str:
    lines = []
    for question, ids in QUESTIONS.items():
        answers = (site.catalogue.page(id_) for id_ in ids)
        lines.append(f"- {question} " + " · ".join(
            f"[{cell(page.pattern.title)}]({link(page.name)})" for page in answers
        ))  # fmt: skip
    return "\n".join(lines)


def _adding(link: Link) -> str:
    return sections(
        "On a fresh checkout, after `pip install nox`, and without a GPU:",
        "```console\n"
        "$ nox -s clone -- mla_var6_plus_v2 v5     # a copy that passes its checks\n"
        "$ nox -s check -- mla_var6_plus v5        # after each edit: is it right?\n"
        "$ nox -s profile -- mla_var6_plus v5      # registers, spills, roofline, what to try\n"
        "$ nox -s compare -- mla_var6_plus v2 v5\n"
        "```",
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
