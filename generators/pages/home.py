"""Makes the site's home page: what the project is, which kernel to use, where to go next."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model import problems, targets
from generators.model.run import Run
from generators.model.site import Site
from generators.pages import analyses, diagnosis, kernels, ladder
from generators.pages.kernels import design_link, next_version, run_version
from generators.pages.learning_paths import path_source
from generators.write import figures
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, meta, sections, table
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version

HOME = "index.md"


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
                "# See why your attention kernel is slow, and what fixes it",
                "HyperMLA is a workbench and knowledge base for GPU kernels in Python (NVIDIA's "
                "cuTile and CuTe DSLs), Multi-head Latent Attention first. Every step keeps its "
                "prediction, its measurement and its mistakes. Kernels run, are checked and are "
                "compiled without a GPU; only times need one.",
                _ladder(site, link),
                "## Where to go",
                _doors(site, link),
                _advice(site, link),
                "## Workloads",
                _workloads(site, link),
                "## What is wrong with my kernel?",
                diagnosis.doors(site, link),
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


def _ladder(site: Site, link: Link) -> str:
    """Every step of the workload with the longest history: drawn, and as a table to unfold."""
    layers = site.layers()
    if not layers:
        return ""
    layer = max(layers, key=lambda key: sum(map(len, layers[key])))
    title = f"Time of every {figures.layer_title(layer)} kernel here"
    found = ladder.section(site, layers[layer], link, title=title, folded=True)
    return sections("## The ladder", found) if found else ""


def _first_path(site: Site, link: Link) -> str:
    """Where to begin with the CuTe DSL; nothing without a path."""
    name = next(iter(site.learning.paths), None)
    return f", [the CuTe DSL from its first path]({link(path_source(name))})" if name else ""


def _doors(site: Site, link: Link) -> str:
    advisors = "".join(f"{advisor}, " for advisor in analyses.advisors(site, link))
    doors = {
        "Choose": "Which design for your problem and device, how sure that is, and what it "
        f"reaches: {advisors}[kernels]({link('kernels')}), [results]({link('results')}), "
        f"[devices]({link('knowledge/devices')}).",
        "Improve": "What to try next, by symptom, with code, what it brought and when it fails: "
        f"{diagnosis.first_door(site, link)}[all symptoms](#what-is-wrong-with-my-kernel).",
        "Learn": "From attention and MLA in ten minutes to lessons that run on a laptop: "
        f"[all lessons]({link('docs/learn/index.md')}){_first_path(site, link)}.",
        "Write": "Edit a version and know within seconds, without a GPU, whether it is right and "
        "what the compiler made of it; measure it when there is one: "
        f"[add a version](#add-a-version), [run any cuTile kernel]({link('docs/interpreter.md')}).",
    }
    cards = "\n".join(f"-   **{title}**\n\n    {text}\n" for title, text in doors.items())
    return f'<div class="grid cards" markdown>\n\n{cards}\n</div>'


def _advice(site: Site, link: Link) -> str:
    """Which design to use, from the workloads that have an analysis."""
    parts = []
    for layer in site.layers():
        if analysis := site.analyses.get(layer):
            parts += [f"## Which {cell(figures.layer_title(layer))} kernel to use",
                      analysis.home(site, link)]  # fmt: skip
    return sections(*parts) if parts else ""


def _workloads(site: Site, link: Link) -> str:
    """The workloads with their designs."""
    rows = [
        [
            f"[{cell(figures.layer_title(layer))}]({link(f'kernels#{layer}')})",
            ", ".join(design_link(versions[0], link) for versions in designs),
            str(len([run for run in site.runs if run.record.kernel.layer == layer])),
        ]
        for layer, designs in site.layers().items()
    ]
    return table(["Workload", "Designs", "Records"], rows)


def example(site: Site) -> list[Version]:
    """The design with the longest history, whose next version examples add.

    Raises:
        KnowledgeError: There is no design.
    """
    designs = site.designs().values()
    if not designs:
        raise KnowledgeError("there is no design to take an example from")
    return max(designs, key=len)


def _adding(site: Site, link: Link) -> str:
    versions = example(site)
    latest, new = versions[-1], next_version(versions)
    design = latest.design_key
    copy = latest.path.parents[1] / f"{latest.design}_{new}"
    steps = {
        f"clone -- {design} {latest.version} {new}": "a copy; predict in its devlog, then edit",
        f"check -- {design} {new}": "after each edit: is it right?",
        f"profile -- {design} {new}": "registers, spills, roofline, what to try",
        f"compare -- {design} {latest.version} {new}": "what the edit changed",
    }
    width = max(map(len, steps))
    lines = (f"$ nox -s {step:{width}}  # {comment}\n" for step, comment in steps.items())
    return sections(
        "Set up once: clone the repository (Source, at the top), enter it, and `pip install nox`; "
        "the first session installs the rest. From the newest version of "
        f"{design_link(latest, link)}, say, and without a GPU:",
        f"```console\n{''.join(lines)}```",
        f"`clone` writes `{repo_name(copy)}/`. Where two languages have the design, its name alone "
        "means cuTile's, and `@cute-dsl` after it the other. The "
        f"tests ask for an entry of the new version among the [mutants]"
        f"({link('CONTRIBUTING.md#mutants')}). Write your prediction into the copy's devlog entry "
        f"before the first edit: [contributing]({link('CONTRIBUTING.md#add-a-version')}) says what "
        "belongs there, and how to add a design or a device.",
    )


def _newest(site: Site, link: Link) -> str:
    """The newest record of each design."""
    newest: dict[tuple[str, str], Run] = {}
    for run in sorted(site.runs, key=lambda run: (run.record.time, run.name), reverse=True):
        newest.setdefault((run.record.kernel.language, run.record.kernel.design), run)
    rows = [
        [
            f"{run.record.time:%Y-%m-%d}",
            run_version(site, run, link),
            cell(kernels.language_title(run.record.kernel.language)),
            cell(targets.target_name(run.record.target)),
            cell(f"{figures.layer_title(run.record.kernel.layer)}: "
                 f"{problems.problem_of(run.record)}"),
            figures.record_link(run, link),
        ]
        for run in newest.values()
    ]  # fmt: skip
    shown = table(["Made", "Version", "Language", "Where", "Problem", "Record"], rows)
    return sections(
        shown or "No record is committed yet.",
        f"[Explore all {len(site.runs)}]({link('results/explorer')})." if rows else "",
    )
