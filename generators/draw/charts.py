"""Draws SVG charts of records, times over sizes and rooflines, at two widths for all screens.

Each states its message in words, as a title and a description inside the drawing. A mark says its
values when a pointer rests on it. Colours follow the page's scheme and stand beside a marker shape
and a label, never alone.
"""

from __future__ import annotations

import html
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from generators.draw import shapes
from generators.model.compare import level
from generators.write.text import us
from mla_var3.devices.ceilings import Ceilings
from mla_var3.evidence.compare import NOISE
from mla_var3.knowledge import metrics
from mla_var3.roofline import svg

#: Part of every cache key: raise it when a drawing changes.
STYLE_VERSION = 6
_MARKERS = "osD^vPX*"
#: Widths in inches: of a page's text, and of a phone.
WIDE, NARROW = 7.4, 3.75
#: Labels come no nearer to each other than this share of the height.
_GAP = 0.042
#: An axis that spans less has ticks between the powers of ten.
_FEW_DECADES = 50


@dataclass(frozen=True)
class Line:
    """Times of one version.

    Attributes:
        label: The version.
        points: Value of the sweep and microseconds, in order.
        color: Which colour and marker; grey where it is negative.
        leads: Whether it is drawn thick.
        labelled: Whether its label stands at its end on a wide screen.
        first: Whether it has its label before others, on every screen.
    """

    label: str
    points: tuple[tuple[float, float], ...]
    color: int
    leads: bool = False
    labelled: bool = True
    first: bool = False


class Chart(Protocol):
    """A chart that can be drawn at two widths."""

    @property
    def title(self) -> str:
        """Name of the figure."""

    @property
    def message(self) -> str:
        """What it shows, in words."""

    def tips(self) -> list[str]:
        """What each mark says, in the order in which ``draw`` makes them."""

    def draw(self, width: float) -> str:
        """Matplotlib's SVG."""


def _per_byte(intensity: float) -> str:
    return metrics.metric("intensity").text(intensity)


@dataclass(frozen=True)
class Times:
    """Time over the sweep, both axes logarithmic, with the bound below.

    Attributes:
        title: What it shows.
        axis: The sweep.
        meaning: The sweep in words.
        lines: All versions.
        bound: Value of the sweep and microseconds that nothing can beat.
    """

    title: str
    axis: str
    meaning: str
    lines: tuple[Line, ...]
    bound: tuple[tuple[float, float], ...]

    @property
    def message(self) -> str:
        """Slowest and fastest at both ends of the sweep, and how far the bound is."""
        values = sorted({x for line in self.lines for x, _ in line.points})
        return " ".join(self._at(value) for value in dict.fromkeys((values[0], values[-1])))

    def _at(self, value: float) -> str:
        found = sorted((y, line.label) for line in self.lines for x, y in line.points if x == value)
        (best, fastest), (worst, slowest) = found[0], found[-1]
        near = [label for y, label in found[1:] if level(y, best)]
        tied = f", {near[0]} within {NOISE:.1%}" if near else ""
        text = f"At {self.axis}={value:g} {fastest} is the fastest with {us(best)}{tied}"
        if len(found) > 1:
            text += f", {slowest} the slowest with {us(worst)}"
        least = dict(self.bound).get(value)
        return f"{text}; the bound is {us(least)}." if least else f"{text}."

    def tips(self) -> list[str]:
        """A version, where, and its time."""
        return [
            f"{line.label}, {self.axis}={x:g}: {us(y)}"
            for line in self.lines
            for x, y in line.points
        ]

    def draw(self, width: float) -> str:
        """Lines, bound and labels at one width."""
        with svg.style():
            figure, axes = _axes(width, 4.6 if width == WIDE else 4.2)
            marks = 0
            for line in self.lines:
                marks = _line(axes, line, marks, wide=width == WIDE)
            if self.bound:
                _bound(axes, self.bound)
            values = sorted({x for line in self.lines for x, _ in line.points})
            every = 1 if width == WIDE or len(values) < 6 else 3
            shown = _spread(values)[::every]
            axes.set_xticks(shown, [f"{value:g}" for value in shown])
            axes.yaxis.set_major_formatter(FuncFormatter(_tick))
            axes.yaxis.set_major_locator(LogLocator())
            axes.set_xlabel(f"{self.axis}: {self.meaning}" if width == WIDE else self.axis)
            axes.set_ylabel("median time")
            labels = [
                (line.points[-1], line.label, _color(line))
                for line in self.lines
                if line.leads or line.first or (line.labelled and width == WIDE)
            ]
            if self.bound:
                labels.append((self.bound[-1], "bound", svg.INK))
            for (x, y), _, color in labels:
                axes.plot([x, values[-1]], [y, y], color=color, linestyle=":", linewidth=0.8)
            _label_ends(axes, labels)
            return svg.text(figure)


@dataclass(frozen=True)
class Path:
    """Where one design stands under the roof at each problem, in order.

    Attributes:
        label: The design.
        points: FLOP per byte, TFLOP/s and the problem.
        color: Which colour and marker; grey and without a label where it is negative.
    """

    label: str
    points: tuple[tuple[float, float, str], ...]
    color: int


@dataclass(frozen=True)
class Roofline:
    """The roofline of a device with the problems of each design as a path.

    Attributes:
        title: What it shows.
        roofs: Name and ceilings; the first is the bound.
        paths: The designs.
    """

    title: str
    roofs: tuple[tuple[str, Ceilings], ...]
    paths: tuple[Path, ...]

    @property
    def message(self) -> str:
        """The rates, and the best that each design with a name reached."""
        said = [
            f"{name.capitalize()}: {roof.tflops:g} TFLOP/s and {roof.gbps:g} GB/s, which meet at "
            f"{_per_byte(roof.ridge)}."
            for name, roof in self.roofs
        ]
        for path in (path for path in self.paths if path.color >= 0):
            intensity, reached, problem = max(path.points, key=lambda point: point[1])
            said.append(
                f"{path.label} reaches {reached:.3g} TFLOP/s at most, "
                f"at {problem} ({_per_byte(intensity)})."
            )
        return " ".join(said)

    def tips(self) -> list[str]:
        """A design, where, and its rate."""
        return [
            f"{path.label}, {at}: {y:.3g} TFLOP/s at {_per_byte(x)}"
            for path in self.paths
            for x, y, at in path.points
        ]

    def draw(self, width: float) -> str:
        """Roofs, paths and labels at one width."""
        with svg.style():
            figure, axes = _axes(width, 4.2)
            marks = 0
            for path in self.paths:
                points = tuple((x, y) for x, y, _ in path.points)
                marks = _line(axes, Line(path.label, points, path.color), marks, wide=True)
            self._roofs(axes)
            for axis in (axes.xaxis, axes.yaxis):
                low, high = axis.get_view_interval()
                subs = (1, 2, 5) if high / low < _FEW_DECADES else (1,)
                axis.set_major_locator(LogLocator(subs=subs))
                axis.set_major_formatter("{x:g}")
            axes.set_xlabel("FLOP per byte")
            axes.set_ylabel("TFLOP/s")
            _label_ends(
                axes,
                [
                    (path.points[-1][:2], path.label, svg.SERIES[path.color % len(svg.SERIES)])
                    for path in self.paths
                    if path.color >= 0
                ],
            )
            return svg.text(figure)

    def _roofs(self, axes: Axes) -> None:
        places = [x for path in self.paths for x, _, _ in path.points]
        for (name, roof), dashes in zip(self.roofs, ("-", "--", ":"), strict=False):
            low, high = min(*places, roof.ridge) / 2, max(*places, roof.ridge) * 2
            corners = [low, roof.ridge, high]
            heights = [min(x * roof.gbps / 1e3, roof.tflops) for x in corners]
            axes.plot(corners, heights, color=svg.INK, linestyle=dashes, linewidth=1.2)
            axes.annotate(
                f"{name}, {roof.tflops:g}", (corners[1], roof.tflops), xytext=(4, 3),
                textcoords="offset points", fontsize=8,
            )  # fmt: skip


def _spread(values: list[float]) -> list[float]:
    """Values of an axis that have room for a label: powers of two, where there are several."""
    powers = [value for value in values if math.log2(value).is_integer()]
    return powers if len(powers) > 1 else values


def _tick(value: float, _: object) -> str:
    """A power of ten of microseconds in the largest unit that keeps it whole."""
    return f"{value:g} us" if value < 1e3 else f"{value / 1e3:g} ms"


def _axes(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.set(xscale="log", yscale="log")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.grid(True, which="major", color=svg.INK, alpha=0.12, linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _line(axes: Axes, line: Line, marks: int, *, wide: bool) -> int:
    """Draw one line; each mark is addressed by its number, for its tip."""
    color, grey = _color(line), line.color < 0
    x, y = zip(*line.points, strict=True)
    alpha = 1 if line.leads else 0.35 if grey else 0.8
    axes.plot(x, y, color=color, linewidth=2.4 if line.leads else 1.1, alpha=alpha)
    found = axes.scatter(
        x, y, s=(30 if wide else 22) / (2 if grey else 1), color=color, zorder=3, alpha=alpha,
        marker=_MARKERS[line.color % len(_MARKERS)],
    )  # fmt: skip
    found.set_urls([f"mark:{marks + index}" for index in range(len(x))])
    return marks + len(x)


def _color(line: Line) -> str:
    return svg.INK if line.color < 0 else svg.SERIES[line.color % len(svg.SERIES)]


#: Lines of a chart that have a colour and a name of their own.
MOST = min(8, len(svg.SERIES))


def told_apart(lines: Sequence[Line], alike: bool) -> tuple[Line, ...]:
    """Lines of which a few have a colour and a label, each its own; the rest is grey.

    Args:
        lines: All, those that matter most thick.
        alike: Whether all are of one design, so that each has a colour of its own.
    """
    several = [line for line in lines if line.labelled and len(line.points) > 1]
    named = sorted(
        several or (line for line in lines if line.labelled),
        key=lambda line: (not (line.first or (alike and line.leads)),
                          statistics.geometric_mean(y for _, y in line.points)),
    )[:MOST]  # fmt: skip
    colors = {line.label if alike else line.color: index for index, line in enumerate(named)}
    made = []
    for line in lines:
        color = colors.get(line.label if alike else line.color, -1)
        chosen = line in named
        made.append(replace(line, color=color, labelled=chosen, leads=line.leads and color >= 0))
    return tuple(made)


def _bound(axes: Axes, bound: Sequence[tuple[float, float]]) -> None:
    x, y = zip(*bound, strict=True)
    axes.plot(x, y, color=svg.INK, linewidth=1)
    low = axes.get_ylim()[0]
    axes.fill_between(
        x, y, [min(low, *y) / 1.3] * len(x), facecolor="none", edgecolor=svg.INK, alpha=0.25,
        hatch="////", linewidth=0,
    )  # fmt: skip
    axes.set_ylim(bottom=min(low, *y) / 1.3)


def _label_ends(axes: Axes, labels: Sequence[tuple[Sequence[float], str, str]]) -> None:
    """Names at the ends of lines, moved apart where they would touch."""
    low, high = (math.log10(limit) for limit in axes.get_ylim())
    span = high - low
    wanted = sorted((math.log10(end[1]), text, color) for end, text, color in labels)
    placed: list[float] = []
    for y, _, _ in wanted:
        least = placed[-1] + _GAP * span if placed else low
        placed.append(max(y, least))
    # What was pushed out at the top comes back down as a whole.
    over = max(0.0, (placed[-1] if placed else low) - high)
    for (_, text, color), y in zip(wanted, placed, strict=True):
        axes.annotate(
            text, (1.0, (y - over - low) / span), xycoords="axes fraction", xytext=(6, 0),
            textcoords="offset points", color=color, fontsize=9, va="center",
            annotation_clip=False,
        )  # fmt: skip


# -- into a page -----------------------------------------------------------------------------------


def figure(chart: Chart) -> str:
    """Wide and narrow drawing as one element of a page; styles show the one that fits."""
    shown = "\n".join(
        f'<div class="chart__{name}">\n{_svg(chart, width).strip()}\n</div>'
        for name, width in (("wide", WIDE), ("narrow", NARROW))
    )
    return shapes.figure(shown, chart.message, title=chart.title, kind="chart")


def _svg(chart: Chart, width: float) -> str:
    key = svg.data_key([STYLE_VERSION, width, repr(chart)])
    text = svg.cached(key, chart.title, chart.message, _drawer(chart, width))
    return _with_tips(text, chart.tips())


def _drawer(chart: Chart, width: float) -> Callable[[], str]:
    return lambda: chart.draw(width)


def _with_tips(text: str, tips: Sequence[str]) -> str:
    """The drawing with what each mark says in place of its number."""
    text = re.sub(
        r'<a xlink:href="mark:(\d+)"[^>]*>',
        lambda found: f'<g class="mark"><title>{html.escape(tips[int(found[1])])}</title>',
        text,
    )
    return text.replace("</a>", "</g>")
