"""Makes the site's home page: what the project is, which kernel to use, where to go next."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from generators.draw import stairs
from generators.model import problems, story_times
from generators.model import stories as story_files
from generators.model.site import Site
from generators.pages import analyses, diagnosis, failed, hopper, stories
from generators.pages.kernels import design_link, next_version
from generators.pages.learning_paths import path_source
from generators.pages.story_words import Told, source_of
from generators.write import figures
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, fence, meta, sections
from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version

HOME = "index.md"
FOUND_BY = (
    "install", "get started", "quick start", "what is this", "what is this site",
    "what is this thing", "about",
    "who is it for", "what is HyperMLA", "who is HyperMLA for", "overview", "in two minutes",
    "most impressive result", "headline result", "what does the site offer",
    "site for GPU kernel engineers", "GPU kernels in Python", "start page", "what can I do here",
    "where do I begin", "DeepSeek attention kernels", "teach check and measure GPU kernels",
    "check my kernel without a GPU", "bring my own kernel",
)  # fmt: skip
#: What the site is, for whom, in words of no field.
WHAT = (
    "**HyperMLA teaches, checks and measures GPU kernels in Python** (NVIDIA's cuTile and CuTe "
    "DSLs) for the attention of DeepSeek-type models. It is for who writes such kernels, who "
    "serves models with them, who chooses a card, and who wants to learn it. All but times works "
    "without a GPU."
)
#: Name of the sentence on what latent attention saves.
_SAVES = "mla-saves"


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
                    hide=["navigation", "toc"],
                    found_by=list(FOUND_BY),
                ),
                _hero(site, link),
                _command(site, link),
                _doors(site, link),
                _advice(site, link),
                "## What is wrong with my kernel?",
                f'<div class="symptoms" markdown="1">\n\n{diagnosis.doors(site, link)}\n\n</div>',
                diagnosis.messages(link),
                "## Add a version",
                _adding(site, link),
            ),
            nav=("Home",),
        )
    ]


def _hero(site: Site, link: Link) -> str:
    """One sentence, two buttons, and the picture of the first story."""
    told = [story for story in story_files.load_all(site.root) if story.peer]
    found = stories.flights(site, told[0]) if told else []
    if not found:
        return f"# See why your attention kernel is slow, and what fixes it\n\n{WHAT}"
    story, stair = told[0], [stair.us for flight in found for stair in flight.stairs]
    peers = [flight.peer for flight in found if flight.peer]
    beside = f"; {peers[0][0]} takes {peers[0][1]:.0f}" if peers else ""
    words = Told(site, story, story_times.times(site, story), link)
    same = f"{stories.largest(words)}\n\n{stories.same_task(words)}"
    said = (
        f"An attention kernel in Python went from {stair[0]:.0f} µs to {min(stair):.0f}, at "
        f"{_at(story.problem)}{beside}."
    )
    buttons = (
        f"[Read how]({link(source_of(story))}){{ .md-button .md-button--primary }} "
        f"[Bring your own kernel]({link('docs/adopt.md')}){{ .md-button }}"
    )
    apart = " Runs stand apart: times compare within one." if len(found) > 1 else ""
    caption = (
        "Latent attention on an NVIDIA H200: 32 sequences, 128 heads, one query token, 4,096 "
        f"cached tokens, bf16. Ours reads one contiguous cache here, FlashMLA pages in "
        f"random order.{apart}"
    )
    return (
        f'<div class="hero" markdown="1">\n\n<div markdown="1">\n\n# {said}\n\n{WHAT}\n\n'
        f"{_saves(site, link)}\n\n{same}\n\n"
        f"{buttons}\n\n"
        f"</div>\n\n{stairs.figure(found, caption)}\n\n</div>"
    )


def _saves(site: Site, link: Link) -> str:
    """What a workload's form saves, for who does not know it; its analysis works it out."""
    made = analyses.sentence(site, _SAVES)
    return made(site, link) if made else ""


def _at(problem: Mapping[str, Any]) -> str:
    """The sizes of a problem, in words where it has those of attention."""
    if not {"b", "h", "t"} <= problem.keys():
        return cell(problems.shown(problem))
    return f"{problem['b']} sequences of {problem['t']:,} tokens and {problem['h']} heads"


def _command(site: Site, link: Link) -> str:
    """One command, and what it says of a mistake: that of the first page on Hopper."""
    course = hopper.load(site.root)
    if course is None:
        return ""
    page = course.pages[0]
    output = fence(f"$ nox -s run -- {hopper.script(page)}\n{page.says}", "console")
    return (
        '<div class="command" markdown="1">\n\n<div markdown="1">\n\n'
        "## Check your own kernel, without a GPU { #check }\n\n"
        "After `python -m pip install nox` in a clone, on "
        f"[Linux (x86-64)]({link('docs/scope.md')}), [one command]({link('docs/emulator.md')}) "
        "runs a script on your CPU as it is, and says which two lines race and what would have "
        "ordered them. Here it is given "
        f"[an example]({link(hopper.script(page))}) with one wait deleted. "
        f"[Adopt]({link('docs/adopt.md')}) a kernel of your own (cuTile, CuTe DSL, Triton or "
        "PyTorch) and it is checked, profiled and matched with remedies as ours are. A server that "
        f"calls FlashMLA can call our kernels instead: [a drop-in]({link('docs/serving.md')})."
        f"\n\n</div>\n\n{output}\n\n</div>"
    )


def _first_path(site: Site, link: Link) -> str:
    """Where to begin with the CuTe DSL; nothing without a path."""
    name = next(iter(site.learning.paths), None)
    return f", [the CuTe DSL from its first path]({link(path_source(name))})" if name else ""


def _from_zero(site: Site, link: Link) -> str:
    """Where somebody begins who never saw a GPU; nothing where no page says."""
    page = "docs/learn/from-zero.md"
    if not (site.root / page).is_file():
        return ""
    return f"Nothing of GPUs yet? [From zero to reading a kernel]({link(page)}). "


def _doors(site: Site, link: Link) -> str:
    advisors = "".join(f"{advisor}, " for advisor in analyses.advisors(site, link))
    guided = "".join(
        f"{words[:1]}{words[1:2].upper()}{words[2:]}. " for words in analyses.guides(site, link)
    )
    doors = {
        "Choose": "Which design for your problem and device, how sure that is, and what it "
        f"reaches: {advisors}[kernels]({link('kernels')}), [results]({link('results')}), "
        f"[devices]({link('knowledge/devices')}). {guided}[Which GPU do I need, and what is here?]"
        f"({link('docs/scope.md')}#which-gpu-do-i-need) "
        f"[How times are taken]({link('docs/how-times-are-taken.md')}). "
        f"[Another model than DeepSeek-V3?]({link('docs/your-model.md')}) "
        "[What does it bring in tokens per second?]"
        f"({link('docs/own-kernel-or-library.md')}#what-it-brings-in-tokens-per-second)",
        "Improve": "What to try next, by symptom, with code, what it brought and when it fails: "
        f"{diagnosis.first_door(site, link)}[all symptoms](#what-is-wrong-with-my-kernel). For a "
        f"file of yours, Triton included: [bring your own kernel]({link('docs/adopt.md')}). "
        f"On a GPU: [profile]({link('docs/profiling.md')}). What did not pay: "
        f"[what failed]({link(failed.SOURCE)}); what changed: "
        f"[two versions compared]({link('docs/compare-versions.md')}).",
        "Learn": f"{_from_zero(site, link)}"
        "From [attention and MLA in ten minutes]"
        f"({link('docs/learn/attention-and-mla.md')}) "
        f"and [a first kernel]({link('docs/learn/first-kernel.md')}) to lessons that run on a "
        "laptop: "
        f"[all lessons]({link('docs/learn/index.md')}){_first_path(site, link)}.",
        "Write": "Edit a version and know within seconds, without a GPU, whether it is right and "
        "what the compiler made of it; measure it when there is one: "
        f"[add a version](#add-a-version), [let an agent optimize a kernel, by a campaign]"
        f"({link('docs/campaign.md')}) ([skills for agents]"
        f"({link('generators/pages/skills')})), "
        f"[run any cuTile kernel]({link('docs/interpreter.md')}), "
        f"[on a laptop without a GPU]({link('docs/laptop.md')}); hand in "
        f"[a faster kernel]({link('CONTRIBUTING.md')}), "
        f"[an idea that is still open]({link('docs/open-ideas.md')}) or "
        f"[times of a GPU of yours]({link('docs/contribute.md')}).",
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
        "Set up once: clone the repository (Source, at the top), enter it, and `pip install nox`. "
        f"It needs [Linux on x86-64, Python 3.11 to 3.13]({link('docs/scope.md')}) and no GPU. "
        f"From the newest version of {design_link(latest, link)}, say, without a GPU:",
        f"```console\n{''.join(lines)}```",
        f"`clone` writes `{repo_name(copy)}/`. Where two languages have a design, its name alone "
        "means cuTile's. Write your prediction into the copy's devlog entry before the first edit: "
        f"[contributing]({link('CONTRIBUTING.md#add-a-version')}) says how, and how to add "
        f"[mutants]({link('CONTRIBUTING.md#mutants')}), a design or a device.",
    )
