"""Draws a design's roofline as SVG, with the path of its versions at a few problems."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generators.draw import shapes
from generators.draw.shapes import BLUE, EDGE, INK, ORANGE, PURPLE, QUIET, circle, path, text
from generators.model import columns, sweep, targets
from generators.model.columns import Column
from generators.model.site import Site
from generators.write.text import capital
from mla_var3.devices import Ceilings
from mla_var3.runtime.registry import Version
from mla_var3.versions import number_of

#: Widths of the drawing on a page and on a phone, its height and margins.
WIDE, NARROW, HEIGHT = 680, 350, 320
LEFT, RIGHT, TOP, BOTTOM = 52, 20, 16, 40
COLORS = (BLUE, ORANGE, PURPLE)
#: Labels stand no nearer to each other than this.
_APART = 13
#: Names of versions take about so much room.
_NAMES = 80


@dataclass(frozen=True)
class Climb:
    """The versions of a design at one problem, in order.

    Attributes:
        at: The problem, in short.
        steps: Version, FLOP per byte and TFLOP/s.
    """

    at: str
    steps: tuple[tuple[str, float, float], ...]

    @property
    def said(self) -> str:
        """Every step in words."""
        steps = ", ".join(f"{version} {rate:.3g}" for version, _, rate in self.steps)
        return f"at {self.at}: {steps} TFLOP/s"


@dataclass(frozen=True)
class Mountain:
    """What is drawn.

    Attributes:
        roof: Rates that nothing can beat.
        climbs: A path per problem.
    """

    roof: Ceilings
    climbs: tuple[Climb, ...]

    @property
    def message(self) -> str:
        """The roof, then every path."""
        roof = f"Bound: {self.roof.tflops:g} TFLOP/s and {self.roof.gbps:g} GB/s"
        return f"{'. '.join([roof, *(capital(climb.said) for climb in self.climbs)])}."

    @property
    def limits(self) -> tuple[float, float, float, float]:
        """Least and largest FLOP per byte and TFLOP/s, with room around."""
        xs = [x for climb in self.climbs for _, x, _ in climb.steps]
        ys = [y for climb in self.climbs for _, _, y in climb.steps]
        low = min(*xs, self.roof.ridge) / 3
        return low, max(*xs, self.roof.ridge) * 4, min(ys) / 3, self.roof.tflops * 2


def mountain(site: Site, versions: Sequence[Version]) -> Mountain | None:
    """The paths of a design; None where fewer than two versions were timed at one problem."""
    runs = [run for version in versions for run in site.runs_of(version)]
    where = sweep.setting(versions[0].layer, runs)
    if where is None:
        return None
    peers, _ = columns.first_peer(site, where.layer)
    shown = columns.columns(site, [*versions, *peers], where)  # The runs of the ladder.
    climbs = [
        Climb(f"{where.axis}={value:g}", tuple(_steps(shown[value], versions)))
        for value in where.named()
        if value in shown
    ]
    climbs = [climb for climb in climbs if len(climb.steps) > 1]
    roof = _roof(where)
    return Mountain(roof, tuple(climbs)) if climbs and roof else None


def _steps(column: Column, versions: Sequence[Version]) -> Iterator[tuple[str, float, float]]:
    for version in versions:
        run = column.runs.get(version)
        if run and (work := run.work) and work.flops and work.bytes:
            us = run.total.median_us
            yield version.version, work.flops / work.bytes, work.flops / us / 1e6


def _roof(where: sweep.Setting) -> Ceilings | None:
    roofs = targets.roofs(where.target, next(iter(where.problems.values())).dtype)
    return roofs[0] if roofs else None


def figure(site: Site, versions: Sequence[Version]) -> str:
    """The picture as HTML; empty where there is no path."""
    found = mountain(site, versions)
    if found is None:
        return ""
    shown = shapes.responsive(lambda width: _draw(found, width), WIDE, NARROW)
    return shapes.figure(shown, found.message, title="The path under the roof", kind="chart")


def _draw(found: Mountain, width: float) -> str:
    parts = [*_axes(found, width), path(_ridge(found, width), INK)]
    drawn = [_climb(found, climb, color, width)
             for climb, color in zip(found.climbs, COLORS, strict=False)]  # fmt: skip
    drawn.sort(key=lambda climb: climb.x)
    for left, climb, right in zip([None, *drawn], drawn, [*drawn[1:], None], strict=False):
        parts += climb.marks(_side(left, climb, right))
    parts += _titles(drawn)
    said = "Roofline with the path of the versions"
    return shapes.svg(width, HEIGHT, parts, said, found.message)


def _place(found: Mountain, width: float, x: float, y: float) -> tuple[float, float]:
    left, right, low, high = (math.log10(limit) for limit in found.limits)
    across = (math.log10(x) - left) / (right - left)
    up = (math.log10(y) - low) / (high - low)
    return LEFT + across * (width - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)


def _ridge(found: Mountain, width: float) -> list[tuple[float, float]]:
    left, right, low, _ = found.limits
    roof = found.roof
    start = max(left, low * 1e3 / roof.gbps)
    return [
        _place(found, width, x, min(x * roof.gbps / 1e3, roof.tflops))
        for x in (start, roof.ridge, right)
    ]


def _axes(found: Mountain, width: float) -> Iterator[str]:
    left, right, low, high = found.limits
    for x in _decades(left, right):
        at, _ = _place(found, width, x, low)
        yield path([(at, TOP), (at, HEIGHT - BOTTOM)], EDGE)
        yield text(at, HEIGHT - 22, f"{x:g}", anchor="middle", fill=QUIET, size=11)
    for y in _decades(low, high):
        _, at = _place(found, width, left, y)
        yield path([(LEFT, at), (width - RIGHT, at)], EDGE)
        yield text(LEFT - 6, at + 4, f"{y:g}", anchor="end", fill=QUIET, size=11)
    yield text(width - RIGHT, HEIGHT - 6, "FLOP per byte", anchor="end", fill=QUIET, size=11)
    yield text(2, 11, "TFLOP/s", fill=QUIET, size=11)
    x, y = _place(found, width, right, found.roof.tflops)
    yield text(x, y - 6, f"bound, {found.roof.tflops:g}", anchor="end", size=12)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    return [10.0**power for power in range(first, last + 1)]


@dataclass(frozen=True)
class _Drawn:
    """A path where it stands in the drawing: a place, name and note per version."""

    at: str
    color: str
    places: tuple[tuple[float, float], ...]
    names: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def x(self) -> float:
        """Distance of the path's lowest mark from the left edge."""
        return self.bottom[0]

    @property
    def bottom(self) -> tuple[float, float]:
        """Its lowest mark."""
        return max(self.places, key=lambda place: place[1])

    def marks(self, side: int) -> Iterator[str]:
        """The path with a mark per version; names that would touch stand as one."""
        yield path(self.places, self.color)
        for (x, y), note in zip(self.places, self.notes, strict=True):
            yield circle(x, y, 4, self.color, note)
        named = [(x, y, name) for (x, y), name in zip(self.places, self.names, strict=True)]
        for x, y, words in _apart(named):
            anchor = "start" if side > 0 else "end"
            yield text(x + 8 * side, y + 4, words, anchor=anchor, fill=self.color, size=12)


def _climb(found: Mountain, climb: Climb, color: str, width: float) -> _Drawn:
    return _Drawn(
        climb.at,
        color,
        tuple(_place(found, width, x, y) for _, x, y in climb.steps),
        tuple(version for version, *_ in climb.steps),
        tuple(
            f"{version} at {climb.at}: {y:.3g} TFLOP/s at {x:,.0f} FLOP/byte"
            for version, x, y in climb.steps
        ),
    )


def _side(left: _Drawn | None, own: _Drawn, right: _Drawn | None) -> int:
    """Where names stand: right of their marks, or left (-1) where that side has more room."""
    room_left = own.x - left.x if left else math.inf
    room_right = right.x - own.x if right else math.inf
    return -1 if room_right < _NAMES <= room_left else 1


def _titles(drawn: Sequence[_Drawn]) -> Iterator[str]:
    """The problem below each path, lowered where it would touch another one."""
    placed: list[tuple[float, float]] = []
    for climb in drawn:
        x, y = climb.bottom[0], climb.bottom[1] + 20
        while any(abs(x - a) < _NAMES and abs(y - b) < _APART for a, b in placed):
            y += _APART
        placed.append((x, y))
        yield text(x, y, climb.at, anchor="middle", fill=climb.color, bold=True, size=12)


def _apart(named: Sequence[tuple[float, float, str]]) -> Iterator[tuple[float, float, str]]:
    """Names at their marks, from the lowest; those that would touch share one line."""
    groups: list[list[tuple[float, float, str]]] = []
    for mark in sorted(named, key=lambda mark: -mark[1]):
        if groups and groups[-1][0][1] - mark[1] < _APART:
            groups[-1].append(mark)
        else:
            groups.append([mark])
    for group in groups:
        names = sorted((name for *_, name in group), key=lambda name: (len(name), name))
        yield max(at for at, *_ in group), group[0][1], _in_short(names)


def _in_short(versions: Sequence[str]) -> str:
    """Versions, those in a row by their ends: ``v0, v3 to v9``."""
    rows: list[list[int]] = []
    for number in map(number_of, versions):
        if rows and rows[-1][-1] == number - 1:
            rows[-1].append(number)
        else:
            rows.append([number])
    return ", ".join(
        f"v{row[0]} to v{row[-1]}" if len(row) > 2 else ", ".join(f"v{n}" for n in row)
        for row in rows
    )
