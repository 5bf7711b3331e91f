"""Makes the story pages: how a design became fast, one idea per step, with code and figures."""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from generators.draw import lanes, schedule, stairs
from generators.model import pairs, stories, story_times, timelines
from generators.model.run import Run
from generators.model.site import Site
from generators.model.stories import Note, Panel, Part, Picture, Step, Story
from generators.model.story_times import Times, Together
from generators.model.timelines import Timeline
from generators.write import excerpts
from generators.write.page import Page
from generators.write.source import repo_name
from generators.write.text import cell, meta, rendered, sections
from mla_var3.errors import KnowledgeError
from mla_var3.evidence.compare import than
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Document

#: Where the pages are.
TOP = "worklog"
_FIGURE = re.compile(r"\{([a-z]+)(?::([\w-]+))?\}")
_HALVES = ("even, left", "even, right", "odd, left", "odd, right")
_LANES = {"left": ("left", "warps 0 to 3"), "right": ("right", "warps 4 to 7")}


def path_of(story: Story) -> str:
    """Page of a story."""
    return f"{TOP}/{story.key}.md"


def source_of(story: Story) -> str:
    """File of a story."""
    return f"{stories.FOLDER}/{story.key}.toml"


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
            found_by=["worklog", "story", "tutorial"],
        ),
        f'<div class="story" markdown="1">\n\n{_strip(story, found)}\n\n{_axis(story, found)}\n\n'
        f'<div class="story__main" markdown="1">\n\n{body}\n\n</div>\n\n</div>',
    )
    return Page(path_of(story), content, source_of(story), ("Worklog", story.nav))


def same_task(told: Told) -> str:
    """How the design compares with the peer at one and the same task, as home says it too."""
    if not told.story.same:
        return ""
    return f'<div class="story__same" markdown="1">\n\n{told.prose(told.story.same)}\n\n</div>'


def headline(story: Story, found: Times) -> str:
    """A story's title with the times of its first step and of its fastest."""
    first, last = _ends(story, found)
    ratio = f"{float(first) / float(last):.0f}" if first != "?" else "?"
    return story.title.format(first=first, last=last, ratio=ratio)


def _ends(story: Story, found: Times) -> tuple[str, str]:
    us = [group.us(step.key) for step in story.steps if (group := found.of(step.key))]
    return (f"{us[0]:.0f}", f"{min(us):.0f}") if us else ("?", "?")


# -- words -----------------------------------------------------------------------------------------


class Told:
    """A story with what its words and figures come from."""

    def __init__(self, site: Site, story: Story, found: Times, link: Link) -> None:
        self.site, self.story, self.times, self.link = site, story, found, link
        self.versions = story_times.versions(story)
        self.loaded: dict[str, Timeline] = {}

    @property
    def name(self) -> str:
        """The story's file, for errors."""
        return source_of(self.story)

    def prose(self, text: str) -> str:
        """Markdown of the story with its figures and the site's addresses."""
        document = Document(self.site.root / self.name, self.name, "text", text, text)
        known = rendered(document, self.site.catalogue, self.link)
        return _FIGURE.sub(lambda found: self._figure(found[1], found[2]), known).strip()

    def _figure(self, what: str, key: str | None) -> str:
        first, last = _ends(self.story, self.times)
        main = self.times.main
        whole: dict[str, Callable[[], str]] = {
            "first": lambda: first,
            "last": lambda: last,
            "peer": lambda: f"{main.peer.total.median_us:.1f}" if main and main.peer else "?",
            "sustained": lambda: _sustained(self),
        }
        if key is None and what in whole:
            return whole[what]()
        group = self.times.of(key or "")
        if key is None or group is None:
            raise KnowledgeError(f"{self.name}: no run tells {{{what}:{key}}}")
        run = group.run_of(key)
        energy = run.outcome.energy if run.outcome else None
        told: dict[str, float | None] = {
            "us": group.us(key),
            "share": group.share(key),
            "back": energy.launch_us if energy else None,
            "watts": energy.watts if energy else None,
            "clock": energy.sm_clock_mhz if energy else None,
        }
        if told.get(what) is None:
            raise KnowledgeError(f"{self.name}: no record tells {{{what}:{key}}}")
        value = told[what] or 0.0
        rounded = {"share": f"{value:.2f}", "watts": f"{value:.0f}", "clock": f"{value:,.0f}"}
        return f"[{rounded.get(what, f'{value:.1f}')}]({self.link(_cited(run))})"

    def timeline(self, key: str) -> Timeline:
        """A committed timeline, of the machine code that its version has."""
        if key not in self.loaded:
            trace = self.story.trace(key)
            version = story_times.find(self.story, trace.version)
            if version is None:
                raise KnowledgeError(f"{self.name}: there is no {trace.version} for {key}")
            self.loaded[key] = timelines.load(self.site.root, key, version)
        return self.loaded[key]


def _conditions(told: Told) -> str:
    said = [*told.story.conditions, _runs_said(told)]
    text = "\n\n".join(told.prose(one) for one in said if one)
    return (
        f'<div class="story__conditions" markdown="1">\n\n**Conditions, said once**\n\n{text}'
        "\n\n</div>"
    )


def _runs_said(told: Told) -> str:
    """Which steps are of which run."""
    main, apart = told.times.main, told.times.apart
    if main is None:
        return ""
    peer = f" beside {_peer(told)}, {main.peer.total.median_us:.1f} µs" if main.peer else ""
    said = f"{_named(told.story, main)} were timed in one run on {_day(main)}{peer}."
    if apart is None:
        return f"**One run.** {said}"
    others = [s for s in told.story.steps if (g := told.times.of(s.key)) and g is apart]
    names = _series([told.story.label(step) for step in others])
    without = f", without {_peer(told)}" if told.story.peer and not apart.peer else ""
    return (
        f"**Two runs, never on one axis.** {said} {names} are of a run on {_day(apart)}{without}: "
        "they stand apart, and no share is given for them."
    )


def _peer(told: Told) -> str:
    title = {"deepseek_flash_mla": "FlashMLA"}
    return title.get(told.story.peer, told.story.peer)


def _named(story: Story, group: Together) -> str:
    return _series([story.label(step) for step in story.steps if step.key in group.runs])


def _series(names: Sequence[str]) -> str:
    if len(names) < 3:
        return " and ".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _day(group: Together) -> str:
    return f"{group.day.day} {group.day:%B %Y}"


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
        *[_picture(told, picture) for picture in step.pictures],
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
        f"<span><b>{share:.2f}</b> of {_peer(told)}'s time</span>".replace(
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


def _picture(told: Told, picture: Picture) -> str:
    panels = [_panel(told, panel) for panel in picture.panels]
    made = {told.timeline(panel.trace).version for panel in picture.panels}
    origin = " and ".join(f"<code>{html.escape(name)}</code>" for name in sorted(made))
    caption = (
        f"{_said_in_code(picture.caption)} "
        f'<span class="lanes__origin">The emulator\'s trace of {origin}</span>'
    )
    return lanes.figure(panels, html.escape(picture.title, quote=False), caption)


def _said_in_code(text: str) -> str:
    """Words as HTML; what stands between backticks is code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", html.escape(text, quote=False))


def _panel(told: Told, panel: Panel) -> lanes.Panel:
    timeline = told.timeline(panel.trace)
    shown = []
    tiles = pairs.named(timeline.lanes) if panel.tiles else {}
    for name in panel.lanes:
        if name not in timeline.lanes:
            raise KnowledgeError(
                f"{told.name}: {panel.trace} has no lane {name!r} (known: "
                f"{', '.join(timeline.lanes)})"
            )
        label, below = _lane(name)
        words = tuple((str(n.tile), n.start, n.end) for n in tiles.get(name, ()))
        shown.append(lanes.Lane(label, below, timeline.lanes[name], words))
    first, last, zero = _window(panel, timeline)
    return lanes.Panel(panel.title, tuple(shown), first, last, zero, _lines(panel, timeline))


def _lines(panel: Panel, timeline: Timeline) -> tuple[lanes.Line, ...]:
    """Weights that go from one warpgroup to the other, where a panel shows tiles."""
    at = {name: place for place, name in enumerate(panel.lanes)}
    return tuple(
        (at[found.giver], found.ready, at[found.taker], found.used)
        for found in (pairs.handovers(timeline.lanes) if panel.tiles else ())
        if found.giver in at and found.taker in at
    )


def _lane(name: str) -> tuple[str, str]:
    _, _, what = name.partition(" ")
    if what in _LANES:
        return _LANES[what]
    number = int(what.rpartition(" ")[2])
    return f"loader {number}", _HALVES[number - 1]


def _window(panel: Panel, timeline: Timeline) -> tuple[int, int, int]:
    """First and last cycle of a panel, and which one is called zero."""
    if panel.around == "all":
        return 0, timeline.cycles, 0
    at = {
        "start": 0,
        "middle": timeline.cycles // 2,
        "end": timeline.last_product,
    }.get(panel.around)
    if at is None:
        raise KnowledgeError(f"a panel is around {panel.around!r}: start, middle, end or all")
    first = max(0, at - panel.before)
    return first, at + panel.after, first if panel.around == "middle" else at


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


def _sustained(told: Told) -> str:
    """Time and clock of a call back to back, of the versions of the main run and the peer."""
    main = told.times.main
    if main is None:
        return ""
    named = [(step.version, main.runs[step.key]) for step in told.story.steps
             if step.key in main.runs]  # fmt: skip
    if main.peer:
        named.insert(0, (_peer(told), main.peer))
    rows = [
        (name, run, energy)
        for name, run in named
        if run.outcome and (energy := run.outcome.energy) and energy.sm_clock_mhz
    ]
    if not rows:
        return ""
    most = max(energy.launch_us for _, _, energy in rows)
    cells = ""
    for name, run, energy in rows:
        time = _bar(energy.launch_us / most, f"{energy.launch_us:.1f} µs", run is main.peer)
        held = ", power cap" if "power cap" in energy.throttle else ""
        title = f'<th scope="row">{html.escape(name)}</th>'
        cells += f"<tr>{title}<td>{time}</td><td>{energy.sm_clock_mhz:,.0f} MHz{held}</td></tr>"
    records = ", ".join(f"[{name}]({told.link(_cited(run))})" for name, run, _ in rows)
    return (
        '<div class="story__bars"><table class="bars"><caption>One call, back to back for a '
        f'second, in the run of {_day(main)}</caption><thead><tr><th scope="col">Version</th>'
        '<th scope="col">Time</th><th scope="col">Clock of the SMs</th></tr></thead>'
        f"<tbody>{cells}</tbody></table></div>\n\nRecords: {records}."
    )


def _bar(share: float, words: str, peer: bool) -> str:
    kind = " bars__bar--peer" if peer else ""
    return (
        f'<span class="bars__bar{kind}" style="width:{60 * share:.0f}%"></span> '
        f"<span>{words}</span>"
    )


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
            title = f"Share of FlashMLA's time, run of {_day(group)}"
            parts.append(stairs.axis(marks, title, ("FlashMLA", 1.0)))
        else:
            parts.append(stairs.axis(marks, f"µs, run of {_day(group)}", None))
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


def _cited(run: Run) -> str:
    """Address of a record in its own run, whatever was measured since."""
    return f"{run.name}@{run.record.run}"


def _sources(told: Told) -> str:
    """Every time of the page with its record."""
    lines = []
    for group in told.times.groups:
        said = [
            f"[{told.story.label(step)} {group.us(step.key):,.2f}]"
            f"({told.link(_cited(group.runs[step.key]))})"
            for step in told.story.steps
            if told.times.of(step.key) is group
        ]
        if group.peer:
            peer = group.peer.total.median_us
            said.insert(0, f"[{_peer(told)} {peer:.2f}]({told.link(_cited(group.peer))})")
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
        lines.append(f"Run `{group.run}` of {_day(group)}{how}, in µs: {', '.join(said)}.")
    design = next(iter(told.versions.values()))
    devlog = told.link(f"{repo_name(design.path.parents[1])}/devlog.md")
    again = f"All of it again, on an H200: `{told.story.command}`." if told.story.command else ""
    code = f"All versions, with predictions and records: [{design.design_key}]({devlog})."
    return (
        '<div class="story__sources" markdown="1">\n\n**Sources**\n\n'
        + "\n\n".join(filter(None, [*lines, again, code]))
        + "\n\n</div>"
    )


def picture_of(site: Site, version: story_times.Version) -> str:
    """The whole trace of a version that a story has; empty where none has it."""
    for story in stories.load_all(site.root):
        for trace in story.traces:
            if story_times.find(story, trace.version) == version:
                timeline = timelines.load(site.root, trace.key, version)
                shown = [name for name in timeline.lanes if name.startswith("0 ")]
                shown.sort(key=lambda name: ("load" in name, name))
                panel = Panel(trace=trace.key, lanes=tuple(shown))
                told = Told(site, story, story_times.Times(None, None), site.link(path_of(story)))
                sizes = ", ".join(f"{name}={value}" for name, value in trace.problem.items())
                sizes += f" on {trace.sms} SMs" * bool(trace.sms)
                return lanes.figure(
                    [_panel(told, panel)],
                    "One CTA, by warp",
                    f"At {sizes}: upper bars are the tensor cores and the copy engine, lower ones "
                    "a warp's own work. "
                    '<span class="lanes__origin">The emulator\'s trace on the clock of a table: it '
                    "shows what waits for what, and predicts no time; 1,000 cycles of an SM at 2 GHz "
                    "are half a microsecond</span>",
                )
    return ""


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
