"""Draws a story's times as SVG: bars by step for the home page, and an axis beside the steps."""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from generators.draw import shapes
from generators.draw.shapes import EDGE, INK, QUIET, rect, text

WIDE, NARROW, HEIGHT = 760, 350, 330
#: What the axis counts.
UNIT = "µs for one attention step"
#: Rows of the axis, and its width.
ROW, AXIS_WIDTH = 25, 200
#: Across a mark's dot.
DOT = 10
#: Times apart from which on an axis is by logarithms.
FAR = 20


@dataclass(frozen=True)
class Stair:
    """A step: its version, the idea in a few words, and its time."""

    version: str
    short: str
    us: float


@dataclass(frozen=True)
class Flight:
    """Stairs of one run.

    Attributes:
        said: What the run is called.
        stairs: In order.
        peer: Name and time of what they are held against; None where it was not in the run.
    """

    said: str
    stairs: tuple[Stair, ...]
    peer: tuple[str, float] | None = None


def figure(flights: Sequence[Flight], caption: str) -> str:
    """Stairs from zero up, runs apart from each other, for a wide and a narrow screen."""
    shown = shapes.responsive(
        lambda width: _rows(flights) if width == NARROW else _columns(flights), WIDE, NARROW
    )
    return f'<figure class="chart stairs">{shown}<figcaption>{caption}</figcaption></figure>'


def _message(flights: Sequence[Flight]) -> str:
    parts = []
    for flight in flights:
        times = ", ".join(f"{stair.version} {stair.us:.1f}" for stair in flight.stairs)
        beside = f"; {flight.peer[0]} {flight.peer[1]:.1f}" if flight.peer else ""
        parts.append(f"{flight.said}: {times}{beside} microseconds.")
    return " ".join(parts)


def _colors(flight: Flight) -> tuple[str, str]:
    """Of the treads and below them: runs with the peer stand out."""
    if flight.peer:
        return "var(--work-scores)", "var(--stairs-main)"
    return "var(--stairs-apart-edge)", "var(--stairs-apart)"


def _columns(flights: Sequence[Flight]) -> str:
    count = sum(len(flight.stairs) for flight in flights)
    room, gap = 66, 34
    each = (WIDE - room - gap * (len(flights) - 1)) / count
    top, bottom = 46, HEIGHT - 26
    scale = (bottom - top) / max(stair.us for flight in flights for stair in flight.stairs)
    parts, x = [text(0, 12, UNIT, fill=QUIET, size=12)], 0.0
    for flight in flights:
        start, (edge, below) = x, _colors(flight)
        for stair in flight.stairs:
            y = bottom - stair.us * scale
            note = f"{stair.version}: {stair.us:.1f} µs"
            parts += [rect(round(x, 1), round(y, 1), round(each, 1), round(bottom - y, 1), below,
                           note),
                      rect(round(x, 1), round(y, 1), round(each, 1), 4, edge)]  # fmt: skip
            middle = x + each / 2
            over = y + 26 if flight.peer else y - 9
            if flight.peer and -6 < bottom - flight.peer[1] * scale - y < 34:
                over = y - 9  # The peer's line would run through the number.
            parts += [text(round(middle, 1), round(over, 1), f"{stair.us:.1f}", anchor="middle",
                           bold=True, size=17),
                      text(round(middle, 1), bottom - 52, stair.version, anchor="middle",
                           bold=True)]  # fmt: skip
            parts += [text(round(middle, 1), bottom - 33 + 16 * i, line, anchor="middle", size=12.5)
                      for i, line in enumerate(_two(stair.short, each))]  # fmt: skip
            x += each
        parts.append(text(round(start, 1), bottom + 18, flight.said, fill=QUIET, size=12))
        if flight.peer:
            parts += _peer(flight.peer, start, x, bottom - flight.peer[1] * scale)
        x += gap
    return shapes.svg(WIDE, HEIGHT, parts, "Time of each version", _message(flights))


def _peer(peer: tuple[str, float], start: float, end: float, y: float) -> Iterator[str]:
    yield shapes.path([(start, y), (end + 4, y)], INK, dashed=True)
    yield text(round(end + 6, 1), round(y - 3, 1), peer[0], bold=True, size=12)
    yield text(round(end + 6, 1), round(y + 13, 1), f"{peer[1]:.1f} µs", bold=True, size=12)


def _two(words: str, width: float) -> list[str]:
    """Words in two lines of about one length."""
    if len(words) * 6.6 < width - 4:
        return [words]
    split = words.split()
    cut = min(range(1, len(split)), default=1,
              key=lambda i: max(len(" ".join(split[:i])), len(" ".join(split[i:]))))  # fmt: skip
    return [" ".join(split[:cut]), " ".join(split[cut:])]


def _rows(flights: Sequence[Flight]) -> str:
    longest = max(stair.us for flight in flights for stair in flight.stairs)
    scale = (NARROW - 4) / longest
    parts, y = [text(0, 12, UNIT, fill=QUIET, size=12)], 22.0
    for flight in flights:
        edge, below = _colors(flight)
        parts.append(text(0, y + 13, flight.said, fill=QUIET, size=12))
        y += 22
        first = y = y + (18 if flight.peer else 0)
        for stair in flight.stairs:
            long = stair.us * scale
            crossed = flight.peer is not None and 4 < long - flight.peer[1] * scale < 46
            parts += [rect(0, y, round(long, 1), 32, below),
                      rect(round(long - 4, 1), y, 4, 32, edge),
                      text(8, y + 21, stair.version, bold=True),
                      text(44, y + 21, stair.short, size=12.5),
                      # Beside the bar where the peer's line would run through the number.
                      text(round(long + (6 if crossed else -10), 1), y + 21, f"{stair.us:.1f}",
                           anchor="start" if crossed else "end", bold=True)]  # fmt: skip
            y += 36
        if flight.peer:
            at = flight.peer[1] * scale
            said = f"{flight.peer[0]} {flight.peer[1]:.1f} µs"
            parts += [shapes.path([(at, first - 4), (at, y)], INK, dashed=True),
                      text(round(at, 1), first - 8, said, anchor="middle", bold=True,
                           size=12)]  # fmt: skip
        y += 10
    return shapes.svg(NARROW, y, parts, "Time of each version", _message(flights))


# -- the axis beside the steps ---------------------------------------------------------------------


@dataclass(frozen=True)
class Mark:
    """A step on the axis: its key, version, place and what is written there."""

    key: str
    version: str
    value: float
    shown: str


def axis(marks: Sequence[Mark], title: str, one: tuple[str, float] | None) -> str:
    """Marks at their height, each a link to its step.

    Args:
        marks: In the order of the steps.
        title: What stands above.
        one: Words and place of a line across.
    """
    values = [mark.value for mark in marks] + ([one[1]] if one else [])
    low, high = min(values), max(values)
    if high > FAR * low:  # Else all but the first would stand as one.
        logs = [replace(mark, value=math.log10(mark.value)) for mark in marks]
        return axis(logs, f"{title}, log scale", one)
    pad = (high - low) * 0.12 or 0.05 * high
    low, high = low - pad, high + pad
    height = max(150, ROW * len(marks) + 50)
    place = lambda value: 14 + (high - value) / (high - low) * (height - 28)  # noqa: E731
    parts = [rect(70, 14, 1.5, height - 28, EDGE)]
    if one:
        y = place(one[1])
        parts += [shapes.path([(0, y), (84, y)], INK, dashed=True),
                  text(0, round(y - 6, 1), one[0], bold=True, size=12.5)]  # fmt: skip
    rows = _apart([place(mark.value) for mark in marks], height)
    parts += [_mark(mark, place(mark.value), row) for mark, row in zip(marks, rows, strict=True)]
    said = html.escape(title)
    links = [_link(mark, row) for mark, row in zip(marks, rows, strict=True)]
    return (
        f'<p class="story__axis-title">{said}</p><div class="story__scale">'
        f'<svg viewBox="0 0 {AXIS_WIDTH} {height}" width="{AXIS_WIDTH}" height="{height}" '
        f'role="img" aria-label="{said}: {_told(marks)}">{"".join(parts)}</svg>'
        f"{''.join(links)}</div>"
    )


def _told(marks: Sequence[Mark]) -> str:
    return ", ".join(f"{mark.version} {mark.shown}" for mark in marks)


def _mark(mark: Mark, y: float, row: float) -> str:
    line = shapes.path([(76, y), (98, row)], EDGE)
    return (
        f'<g class="story__mark" data-mark="{mark.key}">{line}'
        f'<circle cx="70.8" cy="{y:.1f}" r="5"/></g>'
    )


def _link(mark: Mark, row: float) -> str:
    """Beside the drawing: the theme turns addresses of pages, and stumbles over those in one."""
    return (
        f'<a class="story__link" data-mark="{mark.key}" href="#{mark.key}" '
        f'style="top:{row - 11:.0f}px"><span>{mark.version}</span><span>{mark.shown}</span></a>'
    )


def _apart(places: Sequence[float], height: float) -> list[float]:
    """Rows near the marks that do not touch; marks that lie on each other keep their order."""
    order: list[int] = []
    for group in _touching(places):
        order += sorted(group)
    rows = [0.0] * len(places)
    last = -float(ROW)
    for i in order:
        last = rows[i] = max(places[i], last + ROW)
    over = max(0.0, last - (height - 14))
    for i in reversed(order):
        rows[i] = min(rows[i] - over if rows[i] - over > 0 else rows[i], height - 14)
    for near, far in itertools.pairwise(order):
        rows[far] = max(rows[far], rows[near] + ROW - 2)
    return [round(row, 1) for row in rows]


def _touching(places: Sequence[float]) -> Iterator[list[int]]:
    """Marks from the top, those together whose dots lie on each other."""
    group: list[int] = []
    for i in sorted(range(len(places)), key=lambda i: (places[i], i)):
        if group and places[i] - places[group[-1]] > DOT:
            yield group
            group = []
        group.append(i)
    if group:
        yield group
