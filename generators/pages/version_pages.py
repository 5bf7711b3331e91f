"""Makes a page per kernel version: verdict first, then devlog entry, code and facts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from generators.draw import schedule
from generators.model import compare, problems
from generators.model.columns import design_title
from generators.model.compare import Verdict
from generators.model.problems import together
from generators.model.run import Run
from generators.model.site import Site, relative
from generators.pages import bars, ladder, proofs, story_pictures, version_facts
from generators.pages.kernels import (
    also_typed,
    compiled_for,
    design_link,
    diff_of,
    language_title,
    own_files,
    run_version,
    titles,
    version_page,
)
from generators.write import devlogs, diff, figures, verdicts
from generators.write.devlogs import Story
from generators.write.page import Page
from generators.write.source import annotated, repo_name, tabs
from generators.write.text import cell, docstring, fold, meta, sections
from mla_var3.evidence.compare import NOISE, than
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.flattening import flatten, is_composed
from mla_var3.runtime.registry import Version
from mla_var3.workloads import workloads


def places(site: Site) -> Mapping[str, str]:
    """A version's files stand among those of its design."""
    return {}


def pages(site: Site) -> list[Page]:
    """A page per version, design by design, and each composed version as one file."""
    whole = [
        Page(whole_file(version), flatten(version), repo_name(version.path))
        for versions in site.designs().values()
        for version in versions
        if is_composed(version.path)
    ]
    return whole + [
        _version(site, version, before, after)
        for versions in site.designs().values()
        for before, version, after in zip(
            [None, *versions], versions, [*versions[1:], None], strict=False
        )
    ]


def whole_file(version: Version) -> str:
    """Path of a composed version as one file."""
    return version_page(version).replace(".md", f"/{version.design}_{version.version}.py")


def _version(site: Site, version: Version, before: Version | None, after: Version | None) -> Page:
    path = version_page(version)
    link, runs = site.link(path), site.runs_of(version)
    called = f"{design_title(version)} {version.version}"
    devlog = site.catalogue.devlogs.get(version.design_key)
    story = devlogs.entry(devlog, version.version, site.catalogue, link) if devlog else None
    found = compare.nearest(site, version)
    sources = own_files(version)
    return Page(
        path,
        sections(
            meta(title=called, description=docstring(version.path)),
            f"# {cell(called)}",
            also_typed(version),
            proofs.never_ran(site, version, link),
            ladder.idea(version),
            _card(site, version, found, story, before, after, link),
            bars.section(site, version, found.before, found),
            f"## Against {found.before.version}, problem by problem"
            if found.steps and found.before
            else "",
            verdicts.chips(found.steps),
            _chips_note(found),
            _over_time(site, version, found, link),
            "## The story { #devlog }",
            _story(story),
            f"## What changed in the code since {before.version} {{ data-search-exclude }}"
            if before
            else "",
            diff.section(site, before, version, story, link) if before else "",
            "## Facts",
            version_facts.section(site, version, before, _patterns(site, version, link), link),
            "## Source { data-search-exclude }",
            _whole_note(version),
            fold(
                "Read it here",
                ", ".join(file.name for file in sources),
                sections(
                    _source_note(runs),
                    tabs({file.name: annotated(file, repo_name(file), runs) for file in sources}),
                ),
            ),
        ),
        source=repo_name(version.path),
        nav=titles(version, version.version),
    )


def _over_time(site: Site, version: Version, found: Verdict, link: Link) -> str:
    """Who does what when: by the emulator where a story has the version, else by the records."""
    picture = story_pictures.picture_of(site, version) or schedule.section(
        site, version, found.largest.run if found.largest else None, link
    )
    return f"## One launch over time\n\n{picture}" if picture else ""


#: Sections of an entry that stand open; the card has the points of the others.
_TOLD = ("What changed", "Insights")
#: Sections of an entry that the verdict card sums up, with what the card calls them.
_SUMMED = {"Changed": "What changed", "Why": "Why", "Predicted": "Predicted"}


def _card(
    site: Site, version: Version, found: Verdict, story: Story | None, before: Version | None,
    after: Version | None, link: Link,
) -> str:  # fmt: skip
    """Verdict first: how it went, in one sentence, then why, and what to read next."""
    parts = {name: story.lead(title) for name, title in _SUMMED.items()} if story else {}
    parts["Measured"] = (
        f"{headline}.{_passed_over(site, version, found)}"
        if (headline := verdicts.headline(found))
        else proofs.unmeasured(site, version, story, link)
    )
    parts["Compiled"] = proofs.compiled(site, version, link)
    parts["Right"] = proofs.right(site, version, link)
    if story:
        parts["Learnt"] = story.lead("Insights")
    listed = "\n".join(f"-   **{name}**\n\n    {text}\n" for name, text in parts.items() if text)
    verdict = [f"**{story.verdict}**" if story else "", verdicts.badge(found)]
    return sections(
        f'<div class="verdict verdict--{found.word.split()[0]}" markdown="1">',
        " ".join(reversed([text for text in verdict if text])),
        _fastest_there(site, version, found, link),
        f'<div class="verdict__parts" markdown="1">\n\n{listed}\n</div>',
        _identity(version, link),
        f"**Only what changed in the code since {before.version}:** [the diff]({diff_of(before)})"
        if before
        else "",
        "Read next: " + " · ".join([
            *(f"[{cell(other.key)}]({link(repo_name(other.path))})"
              for other in (before, after) if other),
            f"[all of {cell(version.design_key)}]({link(repo_name(version.path.parents[1]))})",
            *_named_patterns(site, version, link),
        ]) + "\n{ data-search-exclude }",
        "</div>",
    )  # fmt: skip


def _passed_over(site: Site, version: Version, found: Verdict) -> str:
    """The version before, where no run timed it beside this one."""
    own = site.designs()[version.design_key]
    before = own[own.index(version) - 1]
    if found.before in (None, before):
        return ""
    return f" No run timed it beside {before.version}."


def _fastest_there(site: Site, version: Version, found: Verdict, link: Link) -> str:
    """How far the version is from the fastest of its run, where the verdict was read."""
    runs = [run for run in site.runs_of(version) if run.is_timed]
    step = found.largest
    mine = step.run if step else next(iter(compare.fastest(runs)), None)
    if mine is None or mine.record.run is None:
        return ""
    same = site.companions.get(together(mine), [mine])
    best = min(same, key=lambda run: run.total.median_us)
    at, own = cell(str(problems.problem_of(mine.record))), _time(mine, link)
    beside = _peer_there(site, same, mine, best, link)
    name = cell(f"{design_title(version)} {version.version}")
    if best is mine:
        return f"At {at} {name} is the fastest of all that this run timed: {own}{beside}."
    peers = workloads()[mine.record.kernel.layer].peers
    named, known_as = run_version(site, best, link), peers.get(best.record.kernel.design)
    if known_as and (version_of := site.version_of(best)):
        named = f"[{cell(known_as)}]({link(repo_name(version_of.path))})"
    behind = than(best.total.median_us, mine.total.median_us, named)
    return (
        f"At {at} {name} is {behind}, the fastest of all that the same run timed "
        f"({own} against {_time(best, link)}){beside}."
    )


def _time(run: Run, link: Link) -> str:
    return figures.record_link(run, link, figures.duration(run.total))


def _peer_there(site: Site, same: list[Run], mine: Run, best: Run, link: Link) -> str:
    """The library that all compare with, where the run had it and it is not named already."""
    peers = workloads()[mine.record.kernel.layer].peers
    first = next(iter(peers), None)
    theirs = next((run for run in same if run.record.kernel.design == first), None)
    if first is None or theirs in (None, best, mine):
        return ""
    shown, called = f"; {peers[first]} in that run {_time(theirs, link)}", site.version_of(theirs)
    if called is None or len(site.designs().get(called.design_key, ())) < 2:
        return shown
    folder = link(repo_name(called.path.parents[1]))
    return (
        f"{shown} (at this problem, by its {called.version}; [others]({folder}) read other caches)"
    )


def _chips_note(found: Verdict) -> str:
    if not found.steps or found.before is None:
        return ""
    return (
        f"Each figure is the change in time against {found.before.version} at one problem, and one "
        "run timed both versions there. A minus means that the new version is faster. A change of "
        f"less than {NOISE:.1%} counts as none."
    )


def _story(story: Story | None) -> str:
    if story is None:
        return "The devlog has no entry for this version yet."
    told = {title: text for title, text in story.parts.items() if text}
    shown = [title for title in _TOLD if title in told] or list(told)[:1]
    rest = [title for title in told if title not in shown]
    return sections(
        *(f"### {title}\n\n{told[title]}" for title in shown),
        fold(
            "More of the entry",
            ", ".join(title.lower() for title in rest),
            sections(*(f"### {title}\n\n{told[title]}" for title in rest)),
        ),
    )


def _identity(version: Version, link: Link) -> str:
    run = f"nox -s profile -- {version.key}"
    made = f"Check, compile and predict it without a GPU: `{run}`."
    return (
        f"Design {design_link(version, link)}, workload "
        f"[{cell(figures.layer_title(version.layer))}]({link(f'kernels#{version.layer}')}), "
        f"language {cell(language_title(version.language))}. "
        + (made if compiled_for(version) else f"Check it: `nox -s check -- {version.key}`.")
    )


def _patterns(site: Site, version: Version, link: Link) -> str:
    applied, shown = (
        "\n".join(f"- {text}" for text in found) for found in _pattern_links(site, version, link)
    )
    return sections(
        "Applies:" if applied else "No pattern of the catalogue names this version as applying it.",
        applied,
        "Shows or leaves out:" if shown else "",
        shown,
    )


def _pattern_links(site: Site, version: Version, link: Link) -> tuple[list[str], list[str]]:
    """Patterns that a version applies, and those that it shows or leaves out."""
    applied, shown = [], []
    for page in site.catalogue.patterns:
        entry = f"[{cell(page.pattern.title)}]({link(page.name)})"
        if _is_named(site, page.pattern.used_by, version):
            applied.append(entry)
        if _is_named(site, page.pattern.violated_by, version):
            shown.append(entry)
    return applied, shown


def _named_patterns(site: Site, version: Version, link: Link) -> list[str]:
    """The first pattern that a version applies, and the first that it shows."""
    return [text for found in _pattern_links(site, version, link) for text in found[:1]]


def _is_named(site: Site, keys: Iterable[str], version: Version) -> bool:
    own = site.catalogue.version(version.key)
    return own is not None and own in map(site.catalogue.version, keys)


def _whole_note(version: Version) -> str:
    if not is_composed(version.path):
        return ""
    address = relative(version_page(version), whole_file(version))
    return (
        f"The version with all that it takes of the kit: [one file]({address}), "
        f"as `nox -s flatten -- {version.design_key} {version.version}` prints it."
    )


def _source_note(runs: list[Run]) -> str:
    compiled = [run for run in runs if run.record.mode == "static"]
    if compiled and all(run.stale for run in compiled):
        return (
            "The records of compiling this version are stale, so that their remarks no longer "
            "belong to these lines; `nox -s profile` makes them anew."
        )
    if compiled:
        return "Marked lines carry what the compilers said about them, by arch."
    return ""
