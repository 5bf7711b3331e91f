"""Makes the page of what was tried and failed, over all designs: idea, times, problem, reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from generators.model import compare, problems
from generators.model.compare import Step, Verdict
from generators.model.site import Site
from generators.pages import tried
from generators.pages.kernels import design_link
from generators.write import devlogs, figures
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, meta, sections, table, us
from mla_var3.evidence.compare import median_us, than
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.markdown import slug
from mla_var3.knowledge.pages import Document
from mla_var3.languages import languages
from mla_var3.runtime.registry import Version

PATH = "kernels/what-failed.md"
#: This file, by which other pages name the page.
SOURCE = "generators/pages/failed.py"
#: Where those that deserve a second try stand.
OPEN = "docs/open-ideas.md"
#: What readers ask for.
FOUND_BY = (
    *tried.FOUND_BY,
    "what did not make it faster", "did not pay off", "no gain", "did not help",
    "failed optimizations", "attempts that failed", "what did you try", "lessons from failures",
    "dead ends", "dead ends on the decode kernel", "failed experiments",
    "ideas that made it slower", "what not to try",
    "optimization made it slower", "has this been tried before", "did anybody try this",
    "idea already tried", "falsified predictions", "wasted optimizations",
    "tricks that did not work on Hopper",
    "which optimizations are not worth it", "cases where it got slower",
)  # fmt: skip
#: Insights of an entry whose first sentences say why: what came of it, and one or two reasons.
REASONS = 3


def places(site: Site) -> Mapping[str, str]:
    """This file stands for the page."""
    return {SOURCE: PATH}


def pages(site: Site) -> list[Page]:
    """The page."""
    link = site.link(PATH)
    negative: dict[str, list[list[str]]] = {}
    slower: list[list[str]] = []
    for versions in sorted(_ours(site), key=_most_told):
        for kind, row in _negative(site, versions, link):
            negative.setdefault(kind, []).append(row)
        slower += [_loss(site, version, lost, link) for version, lost in _losses(site, versions)]
    head = ["Idea", "Time before, after", "What came of it, and why"]
    kinds = sorted(negative, key=lambda kind: -len(negative[kind]))
    count = sum(map(len, negative.values()))
    failed = sections(
        *(f"## {kind} {{ #{slug(kind)} }}\n\n{table(head, negative[kind])}" for kind in kinds)
    )
    lost = table(["Version", "Against", "Where it lost most", "Time before, after"], slower)
    content = sections(
        meta(
            description="Ideas of all designs that did not make a kernel faster, and why",
            found_by=list(FOUND_BY),
        ),
        "# What failed",
        f"**{count} ideas that did not pay**, by what they were tried on: "
        f"{', '.join(f'[{kind}](#{slug(kind)}) {len(negative[kind])}' for kind in kinds)}; then "
        "every step that cost time somewhere. The times in a column of their own are of "
        "records, each pair of one run, and lead there. *(unrecorded)* marks times of a trial "
        "without a record. The version leads "
        "to its entry with sources, prediction and what falsified it.",
        f"Failed by the tool and not in principle: [worth a second try]"
        f"({link(OPEN)}#a-second-try)." if OPEN in site.addresses else "",
        failed if negative else "No entry of a devlog is marked negative.",
        "## Slower than the version before { #slower }" if lost else "",
        "Where one run timed a version and the one before it, and the later one lost at some "
        "problem. It may have won at others: its page says." if lost else "",
        lost,
        "More of each design, insight by insight, stands on its page under *Tried and failed*. "
        f"Faults of code, not of ideas, are [anti-patterns]({link('knowledge/anti-patterns')}).",
    )  # fmt: skip
    return [Page(PATH, content, None, ("Kernels", "What failed"))]


def _ours(site: Site) -> Iterator[list[Version]]:
    """Designs whose versions are steps, as a library's are not."""
    known = languages()
    for versions in site.designs().values():
        found = known.get(versions[0].language)
        if found is not None and found.archs:
            yield versions


def _most_told(versions: list[Version]) -> tuple[int, str]:
    """The design with the longest history first."""
    return -len(versions), versions[0].design_key


def _kind(site: Site, versions: list[Version], step: Step | None) -> str:
    """What an idea was tried on: the workload, and the regime of the problem that tells of it."""
    layer = versions[0].layer
    runs = [step.run] if step else [run for v in versions for run in site.timed_of(v)]
    regimes = Counter(problems.problem_of(run.record).regime for run in runs)
    regime = regimes.most_common(1)[0][0] if regimes else ""
    return f"{figures.layer_title(layer)}{f', {regime}' if regime else ''}"


def _negative(site: Site, versions: list[Version], link: Link) -> Iterator[tuple[str, list[str]]]:
    """A row per version whose entry says that it failed, with what it was tried on."""
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    if devlog is None:
        return
    told = {entry.version for entry in devlog.entries if tried.is_negative(entry)}
    for version in versions:
        if version.version in told:
            found = compare.nearest(site, version)
            step = min(found.steps, key=lambda step: step.gain, default=None)
            kind = _kind(site, versions, step)
            yield kind, _idea(site, devlog, version, (found, step), link)


def _idea(
    site: Site, devlog: Document, version: Version, worst: tuple[Verdict, Step | None], link: Link
) -> list[str]:
    """A row, with the times of the problem at which the version lost most."""
    story = devlogs.entry(devlog, version.version, site.catalogue, link)
    assert story is not None  # Its entry was found.
    reasons = [text for text in tried.insights(story) if len(text.split()) > 2][:REASONS]
    return [
        f"{design_link(version, link)} {_named(version, link)}: **{story.verdict}**",
        _times(*worst, link),
        " ".join(reasons),
    ]


def _named(version: Version, link: Link) -> str:
    return f"[{version.version}]({link(repo_name(version.path))}#devlog)"


def _times(found: Verdict, step: Step | None, link: Link) -> str:
    """Both times of a problem with their record, or that there is none."""
    if step is None or found.before is None:
        return "no pair of times in a record"
    said = f"{_pair(step, link)} ({_than(step, found.before.version)}, {cell(step.at)})"
    if step.word != "faster":
        return said
    return f"{said}; faster than that one everywhere: what it lost against is said beside"


def _than(step: Step, before: str) -> str:
    return than(median_us(step.compared.before), median_us(step.compared.after), before)


def _losses(site: Site, versions: list[Version]) -> Iterator[tuple[Version, Verdict]]:
    """Versions that lost somewhere against the one before, and are not told above."""
    devlog = site.catalogue.devlogs.get(versions[0].design_key)
    told = {e.version for e in devlog.entries if tried.is_negative(e)} if devlog else set()
    for version in versions:
        found = compare.nearest(site, version)
        if version.version not in told and found.before and "slower" in found.words:
            yield version, found


def _loss(site: Site, version: Version, found: Verdict, link: Link) -> list[str]:
    lost = [step for step in found.steps if step.word == "slower"]
    worst = min(lost, key=lambda step: step.gain)
    assert found.before is not None  # It has steps.
    many = f"slower at {len(lost)} of {len(found.steps)} problems"
    return [
        f"{design_link(version, link)} {_named(version, link)}",
        cell(found.before.version),
        f"{cell(worst.at)}, {worst.compared.said}; {many}",
        _pair(worst, link),
    ]


def _pair(step: Step, link: Link) -> str:
    before, after = (us(median_us(r)) for r in (step.compared.before, step.compared.after))
    return figures.record_link(step.run, link, f"{before}, {after}")
