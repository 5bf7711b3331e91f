"""Draws roofline plots (ceilings and kernels as points) as SVG for report.html."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator

from mla_var3.devices.ceilings import Ceilings
from mla_var3.errors import PlanError
from mla_var3.roofline import svg
from mla_var3.roofline.prediction import Prediction

#: Part of every cache key: raise it when the drawing changes.
STYLE_VERSION = 1

_MARKERS = "osD^vP"
_DASHES: tuple[str | tuple[int, tuple[int, ...]], ...] = ("-", (0, (6, 3)), (0, (2, 2)))


@dataclass(frozen=True)
class Roof:
    """A named pair of ceilings."""

    label: str
    ceilings: Ceilings


@dataclass(frozen=True)
class Point:
    """A kernel under the roof.

    Attributes:
        label: What the legend says.
        intensity: FLOP per byte.
        tflops: TFLOP/s reached, or allowed by the ceilings.
        kind: ``measured`` is drawn filled, ``predicted`` hollow.
    """

    label: str
    intensity: float
    tflops: float
    kind: Literal["measured", "predicted"]

    def __post_init__(self) -> None:
        for name, value in (("intensity", self.intensity), ("throughput", self.tflops)):
            if not 0 < value < math.inf:
                raise PlanError(
                    f"{self.label!r} has no place in a roofline: its {name} is {value}, "
                    "and both axes are logarithmic"
                )

    @classmethod
    def predicted(cls, label: str, prediction: Prediction) -> Point:
        """Where the ceilings allow a stage to be."""
        return cls(label, prediction.intensity, _tflops(prediction, None), "predicted")

    @classmethod
    def measured(cls, label: str, prediction: Prediction, time_us: float) -> Point:
        """Where a stage was, by its algorithmic work and the time it took."""
        return cls(label, prediction.intensity, _tflops(prediction, time_us), "measured")


def _tflops(prediction: Prediction, time_us: float | None) -> float:
    time = prediction.time_us if time_us is None else time_us
    return prediction.flops / time / 1e6 if time > 0 else math.nan


def roofline_svg(
    title: str,
    roofs: Sequence[Roof],
    points: Sequence[Point],
    *,
    cache_dir: Path | None = None,
) -> str:
    """Draw a roofline with points, or take the drawing from the cache.

    Args:
        title: Accessible name of the figure; the page states it in text as well.
        roofs: One to three pairs of ceilings.
        points: Kernels.
        cache_dir: Holds one file per drawing, named by the hash of its data; ``.cache/figures`` of
            the checkout by default.

    Returns:
        An ``<svg>`` element that can be inlined or written to a file; the same data give the
        same text.

    Raises:
        PlanError: There is no roof, or there are more than can be told apart.
    """
    if not 1 <= len(roofs) <= len(_DASHES):
        raise PlanError(f"a roofline has 1 to {len(_DASHES)} roofs, got {len(roofs)}")
    key = data_key(title, roofs, points)
    return svg.cached(key, title, _describe(roofs, points), lambda: _draw(roofs, points), cache_dir)


def data_key(title: str, roofs: Sequence[Roof], points: Sequence[Point]) -> str:
    """Hash of what is drawn and of what draws it."""
    data = {
        "title": title,
        "roofs": [[roof.label, roof.ceilings.tflops, roof.ceilings.gbps] for roof in roofs],
        "points": [dataclasses.astuple(point) for point in points],
        "style": STYLE_VERSION,
    }
    return svg.data_key(data)


def _draw(roofs: Sequence[Roof], points: Sequence[Point]) -> str:
    with svg.style():
        # One legend row per entry: its texts are too long, and their fonts too uncertain, for two.
        rows = len(roofs) + len(points)
        figure = Figure(figsize=(7.0, 3.8 + 0.22 * rows), layout="constrained")
        axes = figure.add_subplot()
        _draw_roofs(axes, roofs, _span(roofs, points))
        _draw_points(axes, points)
        axes.set(xscale="log", yscale="log")
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axis.set_major_formatter("{x:g}")
            axis.set_minor_locator(NullLocator())
        axes.set_xlabel("arithmetic intensity (FLOP/byte)")
        axes.set_ylabel("throughput (TFLOP/s)")
        axes.grid(True, which="major", color=svg.INK, alpha=0.15, linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower left", frameon=False, handlelength=3)
        return svg.text(figure)


def _span(roofs: Sequence[Roof], points: Sequence[Point]) -> tuple[float, float]:
    places = [roof.ceilings.ridge for roof in roofs] + [point.intensity for point in points]
    return min(places) / 6, max(places) * 6


def _draw_roofs(axes: Axes, roofs: Sequence[Roof], span: tuple[float, float]) -> None:
    low, high = span
    for roof, dashes in zip(roofs, _DASHES, strict=False):
        ceilings = roof.ceilings
        # Between low and high there always lies the ridge.
        corners = [low, ceilings.ridge, high]
        heights = [min(x * ceilings.gbps / 1e3, ceilings.tflops) for x in corners]
        label = f"{roof.label}: {ceilings.tflops:g} TFLOP/s, {ceilings.gbps:g} GB/s"
        axes.plot(corners, heights, color=svg.INK, linestyle=dashes, linewidth=1.4, label=label)


def _draw_points(axes: Axes, points: Sequence[Point]) -> None:
    for index, point in enumerate(points):
        color = svg.COLORS[index % len(svg.COLORS)]
        filled = point.kind == "measured"
        axes.plot(
            [point.intensity],
            [point.tflops],
            linestyle="none",
            marker=_MARKERS[index % len(_MARKERS)],
            markersize=7.5,
            color=color,
            markerfacecolor=color if filled else "none",
            markeredgewidth=1.6,
            label=f"{point.label}: {point.tflops:.3g} TFLOP/s {point.kind}",
        )


def _describe(roofs: Sequence[Roof], points: Sequence[Point]) -> str:
    lines = [
        f"{roof.label}: {roof.ceilings.tflops:g} TFLOP/s, {roof.ceilings.gbps:g} GB/s, "
        f"ridge at {roof.ceilings.ridge:.4g} FLOP/byte."
        for roof in roofs
    ]
    lines += [
        f"{point.label}: {point.tflops:.3g} TFLOP/s {point.kind} "
        f"at {point.intensity:.4g} FLOP/byte."
        for point in points
    ]
    return " ".join(lines)
