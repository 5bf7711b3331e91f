"""Makes a story's pictures: lanes of emulated traces, cut to the cycles that a panel shows."""

from __future__ import annotations

import html
import re

from generators.draw import lanes
from generators.model import pairs, stories, story_times, timelines
from generators.model.site import Site
from generators.model.stories import Panel, Picture
from generators.model.timelines import Timeline
from generators.pages.kernels import version_page
from generators.pages.story_words import Told
from mla_var3.errors import KnowledgeError

_HALVES = ("even, left", "even, right", "odd, left", "odd, right")
_LANES = {"left": ("left", "warps 0 to 3"), "right": ("right", "warps 4 to 7")}


def figure(told: Told, picture: Picture) -> str:
    """A step's picture, with the versions whose traces it shows."""
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


def picture_of(site: Site, version: story_times.Version) -> str:
    """The whole trace of a version that a story has; empty where none has it."""
    for story in stories.load_all(site.root):
        for trace in story.traces:
            if story_times.find(story, trace.version) == version:
                timeline = timelines.load(site.root, trace.key, version)
                shown = [name for name in timeline.lanes if name.startswith("0 ")]
                shown.sort(key=lambda name: ("load" in name, name))
                panel = Panel(trace=trace.key, lanes=tuple(shown))
                told = Told(
                    site, story, story_times.Times(None, None), site.link(version_page(version))
                )
                sizes = ", ".join(f"{name}={value}" for name, value in trace.problem.items())
                sizes += f" on {trace.sms} SMs" * bool(trace.sms)
                said = (
                    f"At {sizes}: upper bars are the tensor cores and the copy engine, lower ones "
                    "a warp's own work. "
                    '<span class="lanes__origin">The emulator\'s trace on the clock of a table: '
                    "it shows what waits for what, and predicts no time; 1,000 cycles of an SM at "
                    "2 GHz are half a microsecond</span>"
                )
                return lanes.figure([_panel(told, panel)], "One CTA, by warp", said)
    return ""
