"""Makes the story pages: how a design became fast, one idea per step, with code and figures."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from generators.draw import schedule, stairs
from generators.model import stories, story_times
from generators.model.site import Site
from generators.model.stories import Note, Part, Step, Story
from generators.model.story_times import Times, Together
from generators.pages.story_pictures import figure
from generators.pages.story_words import Told, cited, day_of, ends, peer_name, source_of
from generators.write import excerpts
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, meta, sections
from mla_var3.errors import KnowledgeError
from mla_var3.evidence.compare import than

#: Where the pages are.
TOP = "worklog"
FOUND_BY = (
    "worklog", "story", "tutorial", "which change helped most", "which single change mattered",
    "what made the kernel so much faster", "biggest gain of one step", "largest speedup",
    "which optimization mattered most", "the one optimization with the largest gain",
    "how was the kernel made fast", "step by step optimization", "optimization diary",
    "order of optimizations", "speedup per step",
    "how do I reach FlashMLA's speed",
)  # fmt: skip


def path_of(story: Story) -> str:
    """Page of a story."""
    return f"{TOP}/{story.key}.md"


def places(site: Site) -> Mapping[str, str]:
    """Page of each story's file."""
    return {source_of(story): path_of(story) for story in stories.load_all(site.root)}


def pages(site: Site) -> list[Page]:
    """A page per story."""
    return [_page(site, story) for story in stories.load_all(site.root)]


def _page(site: Site, story: Story) -> Page:
    found = story_times.times(site, story)
    link = site.link(path_of(story))
    told = Told(site, story, found, link)
    body = sections(
        f"# {cell(headline(story, found))}",
        f'<p class="story__lead">{html.escape(story.lead, quote=False)}</p>',
        largest(told),
        same_task(told),
        told.prose(story.needs),
        _conditions(told),
        *[_part(told, part) for part in story.before],
        *[_step(told, number, step) for number, step in enumerate(story.steps, 1)],
        *[_part(told, part) for part in story.after],
        _next(told),
        _sources(told),
    )
    content = sections(
        meta(
            description=f"{headline(story, found)}: one idea per step, with code and pictures",
            hide=["navigation", "toc"],
            found_by=list(FOUND_BY),
        ),
        f'<div class="story" markdown="1">\n\n{_strip(story, found)}\n\n{_axis(story, found)}\n\n'
        f'<div class="story__main" markdown="1">\n\n{body}\n\n</div>\n\n</div>',
    )
    return Page(path_of(story), content, source_of(story), ("Worklog", story.nav))


def largest(told: Told) -> str:
    """The step that saved the most time against the one before it in its run, and why."""
    found = [
        (group.us(before.key) / group.us(step.key), group, before, step)
        for group in told.times.groups
        for before, step in pairwise([s for s in told.story.steps if s.key in group.runs])
    ]
    if not found:
        return ""
    _, group, before, step = max(found, key=lambda one: one[0])
    us = [
        f"[{group.us(key):,.1f} µs]({told.link(cited(group.runs[key]))})"
        for key in (before.key, step.key)
    ]
    address = f"{told.link(source_of(told.story))}#{step.key}"
    return (
        f"**The change that helped most:** [{cell(told.story.label(step))}, {cell(step.short)}]"
        f"({address}), from {us[0]} to {us[1]} "
        f"({than(group.us(before.key), group.us(step.key), told.story.label(before))}). Why: "
        f"{told.prose(step.title[:1].lower() + step.title[1:])}."
    )


def same_task(told: Told) -> str:
    """How the design compares with the peer at one and the same task, as home says it too."""
    if not told.story.same:
        return ""
    return f'<div class="story__same" markdown="1">\n\n{told.prose(told.story.same)}\n\n</div>'


def headline(story: Story, found: Times) -> str:
    """A story's title with the times of its first step and of its fastest."""
    first, last = ends(story, found)
    ratio = f"{float(first) / float(last):.0f}" if first != "?" else "?"
    return story.title.format(first=first, last=last, ratio=ratio)


# -- words -----------------------------------------------------------------------------------------


def _conditions(told: Told) -> str:
    said = [*told.story.conditions, _runs_said(told), _again(told)]
    text = "\n\n".join(told.prose(one) for one in said if one)
    return (
        f'<div class="story__conditions" markdown="1">\n\n**Conditions, said once**\n\n{text}'
        "\n\n</div>"
    )


def _again(told: Told) -> str:
    """The command that takes all times again."""
    return f"**All of it again,** on an H200: `{told.story.command}`." if told.story.command else ""


def _runs_said(told: Told) -> str:
    """Which steps are of which run."""
    main, apart = told.times.main, told.times.apart
    if main is None:
        return ""
    peer = f" beside {peer_name(told)}, {main.peer.total.median_us:.1f} µs" if main.peer else ""
    said = f"{_named(told.story, main)} were timed in one run on {day_of(main)}{peer}."
    if apart is None:
        return f"**One run.** {said}"
    others = [s for s in told.story.steps if (g := told.times.of(s.key)) and g is apart]
    names = _series([told.story.label(step) for step in others])
    without = f", without {peer_name(told)}" if told.story.peer and not apart.peer else ""
    return (
        f"**Two runs, never on one axis.** {said} {names} are of a run on {day_of(apart)}"
        f"{without}: they stand apart, and no share is given for them."
    )


def _named(story: Story, group: Together) -> str:
    return _series([story.label(step) for step in story.steps if step.key in group.runs])


def _series(names: Sequence[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


# -- parts and steps -------------------------------------------------------------------------------


def _columns(told: Told, text: str, notes: Sequence[Note]) -> str:
    beside = "\n\n".join(_note(told, note) for note in notes)
    aside = f'<div class="story__notes" markdown="1">\n\n{beside}\n\n</div>' if notes else ""
    return (
        f'<div class="story__columns" markdown="1">\n\n<div class="story__text" markdown="1">\n\n'
        f"{text}\n\n</div>\n\n{aside}\n\n</div>"
    )


def _note(told: Told, note: Note) -> str:
    kind = " story__note--failed" if note.failed else ""
    return (
        f'<div class="story__note{kind}" markdown="1">\n\n**{told.prose(note.title)}**\n\n'
        f"{told.prose(note.text)}\n\n</div>"
    )


def _part(told: Told, part: Part) -> str:
    return (
        f'<div class="story__step" markdown="1">\n\n## {told.prose(part.title)} {{ #{part.key} }}'
        f"\n\n{_columns(told, told.prose(part.text), part.notes)}\n\n</div>"
    )


def _step(told: Told, number: int, step: Step) -> str:
    version = told.versions.get(step.key)
    where = f"{told.name}: {step.key}"
    if version is None:
        raise KnowledgeError(f"{where}: there is no such version")
    named = version.key if len({v.design for v in told.versions.values()}) > 1 else step.version
    page = told.link(repo_name(version.path))
    body = sections(told.prose(step.text), _chip(told, step), _outcome(told, step))
    code = [excerpts.block(excerpt, told.site.root, where) for excerpt in step.excerpts]
    return sections(
        f'<div class="story__step" data-step="{step.key}" markdown="1">',
        f'<p class="story__kicker"><span>Step {number}</span> <code>{cell(named)}</code></p>',
        f"## {told.prose(step.title)} {{ #{step.key} }}",
        _columns(told, body, step.notes),
        *[figure(told, picture) for picture in step.pictures],
        _scheduled(told, step),
        f'<div class="story__code" markdown="1">\n\n**{step.code}** · [all of the version]({page})'
        "\n\n" + "\n\n".join(code) + "\n\n</div>"
        if code
        else "",
        "</div>",
    )


def _chip(told: Told, step: Step) -> str:
    group = told.times.of(step.key)
    if group is None:
        return '<p class="story__time">not measured at this problem</p>'
    share = group.share(step.key)
    beside = (
        f"<span><b>{share:.2f}</b> of {peer_name(told)}'s time</span>".replace(
            "<b>", "<strong>"
        ).replace("</b>", "</strong>")
        if share is not None
        else f"<span>{_step_ratio(told, step, group)}</span>"
    )
    return (
        f'<p class="story__time"><span><strong>{group.us(step.key):,.1f}</strong> µs</span> '
        f"{beside}</p>"
    )


def _step_ratio(told: Told, step: Step, group: Together) -> str:
    """A step that has no share, against the one before it of the same run."""
    before = [s for s in told.story.steps if s.key in group.runs]
    at = [s.key for s in before].index(step.key)
    if not at:
        return "the first of its run" if told.story.peer else "where we start"
    last = before[at - 1]
    return f"{than(group.us(last.key), group.us(step.key), told.story.label(last))}, same run"


def _outcome(told: Told, step: Step) -> str:
    if not step.outcome:
        return ""
    kind = {"slower": "negative"}.get(step.tone, step.tone)
    badge = f'<span class="badge badge--{kind}">{html.escape(step.badge)}</span> '
    return f"{badge if step.badge else ''}{told.prose(step.outcome)}"


# -- pictures --------------------------------------------------------------------------------------


def _scheduled(told: Told, step: Step) -> str:
    """The launch over time, from records, where a step asks for it."""
    if not step.schedule:
        return ""
    group = told.times.of(step.key)
    run = group.runs[step.key] if group else None
    if run is None:
        return ""
    version = told.versions[step.key]
    compiled = [other for other in told.site.runs_of(version) if not other.is_timed]
    alone = replace(told.site, runs=(run, *compiled), earlier=())
    return schedule.section(alone, version, run, told.link)


# -- the axis, the end, home -----------------------------------------------------------------------


def _marks(story: Story, group: Together) -> Iterator[stairs.Mark]:
    for step in story.steps:
        if step.key in group.runs:
            share = group.share(step.key)
            us = group.us(step.key)
            shown = f"{share:.2f}" if share is not None else f"{us:,.1f}"
            at = share if share is not None else us
            yield stairs.Mark(step.key, story.label(step), at, shown)


def _axis(story: Story, found: Times) -> str:
    parts = []
    for group in found.groups:
        marks = [m for m in _marks(story, group) if found.of(m.key) is group]
        if group.peer:
            title = f"Share of FlashMLA's time, run of {day_of(group)}"
            parts.append(stairs.axis(marks, title, ("FlashMLA", 1.0)))
        else:
            parts.append(stairs.axis(marks, f"µs, run of {day_of(group)}", None))
    return f'<div class="story__axis" role="navigation" aria-label="Steps">{"".join(parts)}</div>'


def _strip(story: Story, found: Times) -> str:
    """The axis of narrow screens: where the reader is, and that step's figure."""
    marks = [mark for group in found.groups for mark in _marks(story, group)
             if found.of(mark.key) is group]  # fmt: skip
    dots = "".join(
        f'<span class="story__dot" data-mark="{mark.key}" '
        f'data-said="{html.escape(_said(found, mark))}"></span>'
        for mark in marks
    )
    return (
        '<div class="story__strip" aria-hidden="true"><p><strong class="story__now">'
        f'{cell(headline(story, found))}</strong></p><div class="story__track">{dots}</div></div>'
    )


def _said(found: Times, mark: stairs.Mark) -> str:
    group = found.of(mark.key)
    if group and group.peer:
        return f"{mark.version}: {mark.shown} of FlashMLA's time"
    return f"{mark.version}: {mark.shown} µs"


def _next(told: Told) -> str:
    first = True
    parts = []
    for words, target in told.story.next:
        kind = "md-button md-button--primary" if first else "md-button"
        parts.append(f"[{words}]({told.link(target)}){{ .{' .'.join(kind.split())} }}")
        first = False
    return " ".join(parts)


def _sources(told: Told) -> str:
    """Every time of the page with its record."""
    lines = []
    for group in told.times.groups:
        said = [
            f"[{told.story.label(step)} {group.us(step.key):,.2f}]"
            f"({told.link(cited(group.runs[step.key]))})"
            for step in told.story.steps
            if told.times.of(step.key) is group
        ]
        if group.peer:
            peer = group.peer.total.median_us
            said.insert(0, f"[{peer_name(told)} {peer:.2f}]({told.link(cited(group.peer))})")
        any_run = next(iter(group.runs.values()))
        protocol = any_run.outcome.protocol if any_run.outcome else None
        how = ""
        if protocol is not None:
            many, rounds = protocol.bench_runs, protocol.rounds
            how = (
                f", {rounds} rounds in which each version ran {many // rounds} times, {many} in all"
                if rounds
                else f", {many} runs each"
            )
        lines.append(f"Run `{group.run}` of {day_of(group)}{how}, in µs: {', '.join(said)}.")
    design = next(iter(told.versions.values()))
    devlog = told.link(f"{repo_name(design.path.parents[1])}/devlog.md")
    code = f"All versions, with predictions and records: [{design.design_key}]({devlog})."
    return (
        '<div class="story__sources" markdown="1">\n\n**Sources**\n\n'
        + "\n\n".join(filter(None, [*lines, _again(told), code]))
        + "\n\n</div>"
    )


def flights(site: Site, story: Story) -> list[stairs.Flight]:
    """A story's times as stairs: a flight per run."""
    found = story_times.times(site, story)
    made = []
    for group in found.groups:
        steps = [step for step in story.steps if found.of(step.key) is group]
        peer = ("FlashMLA", group.peer.total.median_us) if group.peer else None
        beside = "" if peer or not story.peer else ", without FlashMLA"
        stair = tuple(stairs.Stair(s.version, s.short, group.us(s.key)) for s in steps)
        made.append(stairs.Flight(f"run of {group.day.day} {group.day:%B}{beside}", stair, peer))
    return made
