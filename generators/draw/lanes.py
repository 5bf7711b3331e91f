"""Draws timelines of a launch as SVG lanes: the work of each warp or unit over emulated cycles."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from generators.draw import shapes
from generators.draw.shapes import EDGE, INK, QUIET, rect, text
from generators.model.timelines import Bar

#: Widths of the drawing on a page and on a phone, and the room left of it.
WIDE, NARROW, LEFT, LEFT_NARROW = 720, 350, 92, 62
#: Heights: a lane, its products, the warp's own work, a title, and the axis below.
LANE, UPPER, LOWER, TITLE, AXIS = 36, 17, 11, 26, 24
#: Bars that are narrower are drawn that wide, in pixels.
LEAST = 0.8


@dataclass(frozen=True)
class Kind:
    """A kind of work.

    Attributes:
        name: What readers call it.
        color: Of its bars.
        upper: Whether the tensor cores do it, or the copy engine: it stands in the upper half.
        order: In the key.
    """

    name: str
    color: str
    upper: bool
    order: int


KINDS = {
    "scores": Kind("scores (wgmma)", "var(--work-scores)", True, 0),
    "output": Kind("output (wgmma)", "var(--work-output)", True, 1),
    "load": Kind("loads (TMA)", "var(--work-load)", True, 2),
    "send": Kind("on its way to the other CTA", "var(--work-send)", True, 6),
    "softmax": Kind("softmax", "var(--work-softmax)", False, 3),
    "rescale": Kind("rescale", "var(--work-rescale)", False, 4),
    "merge": Kind("merge (give away, add)", "var(--work-merge)", False, 5),
    "store": Kind("store", "var(--work-store)", False, 7),
    "wait": Kind("waits", "var(--work-wait)", False, 8),
}


@dataclass(frozen=True)
class Lane:
    """A row of bars.

    Attributes:
        label: In bold.
        below: In small letters under it.
        bars: Kind, start and end.
        words: What stands in the upper bars, with start and end; their kinds where it is empty.
    """

    label: str
    below: str
    bars: tuple[Bar, ...]
    words: tuple[Bar, ...] = ()


#: From a lane and cycle to a later one: what is handed over.
Line = tuple[int, int, int, int]


@dataclass(frozen=True)
class Panel:
    """Lanes under a title; ``first`` to ``last`` are the cycles shown, ``zero`` is their zero.

    ``lines`` lead from the work of one lane to the product of another.
    """

    title: str
    lanes: tuple[Lane, ...]
    first: int
    last: int
    zero: int
    lines: tuple[Line, ...] = ()

    @property
    def span(self) -> int:
        """Cycles shown."""
        return self.last - self.first


def figure(panels: Sequence[Panel], title: str, caption: str) -> str:
    """A picture with its key, for a wide and a narrow screen.

    Args:
        panels: From the top; all on one scale.
        title: Its message.
        caption: What to see, as HTML.
    """
    shown = shapes.responsive(lambda width: _draw(panels, width, title), WIDE, NARROW)
    return (
        f'<figure class="chart lanes"><p class="lanes__title">{title}</p>'
        f'<p class="lanes__key">{"".join(_key(panels))}</p>{shown}'
        f"<figcaption>{caption}</figcaption></figure>"
    )


def _key(panels: Sequence[Panel]) -> Iterator[str]:
    used = {what for p in panels for lane in p.lanes for what, *_ in _seen(lane.bars, p)}
    for name, kind in sorted(KINDS.items(), key=lambda item: item[1].order):
        if name in used:
            thin = " lanes__swatch--thin" if name == "wait" else ""
            yield (
                f'<span><span class="lanes__swatch{thin}" style="background:{kind.color}"></span>'
                f"{kind.name}</span>"
            )


def _seen(bars: Iterable[Bar], panel: Panel) -> Iterator[Bar]:
    """Bars of a panel's window, cut at its edges."""
    for what, start, end in bars:
        if what in KINDS and end > panel.first and start < panel.last:
            yield what, max(start, panel.first), min(end, panel.last)


def _draw(panels: Sequence[Panel], width: float, title: str) -> str:
    left = LEFT if width > NARROW else LEFT_NARROW
    scale = (width - left - 4) / max(panel.span for panel in panels)
    parts: list[str] = []
    top = 0.0
    for panel in panels:
        if panel.title:
            parts.append(text(0, top + 15, panel.title, bold=True, size=13))
            top += TITLE
        first = top
        for lane in panel.lanes:
            parts += _lane(lane, panel, left, top, scale, width)
            top += LANE
        parts += _lines(panel, left, first, scale)
        top += 8
    parts += _axis(panels[0], left, top, scale, width)
    return shapes.svg(width, top + AXIS, parts, title, _said(panels))


def _lane(
    lane: Lane, panel: Panel, left: float, top: float, scale: float, width: float
) -> Iterator[str]:
    yield text(0, top + 15, lane.label, bold=True, size=13)
    if lane.below and width > NARROW:
        yield text(0, top + 29, lane.below, fill=QUIET, size=11.5)
    yield rect(left, top + LANE - 4, width - left - 4, 1, EDGE)
    boxes: dict[str, list[str]] = {}
    words: list[str] = []
    for what, start, end in _wide(_seen(lane.bars, panel), 0.6 / scale):
        x, long = left + (start - panel.first) * scale, (end - start) * scale
        kind = KINDS[what]
        y, high = (2, UPPER) if kind.upper else (24.5, 2.5) if what == "wait" else (20, LOWER)
        across = max(long - (0 if what == "wait" else 0.5), LEAST)
        boxes.setdefault(what, []).append(_box(x, top + y, across, high))
        named = kind.upper and what not in ("load", "send") and not lane.words
        if named and long > 7.5 * len(what):
            words.append(_inside(x + long / 2, top + y + 13, what))
    for word, start, end in lane.words:
        x, long = left + (start - panel.first) * scale, (end - start) * scale
        if panel.first <= start and end <= panel.last and long > 7.5 * len(word):
            words.append(_inside(x + long / 2, top + 15, word))
    for what in sorted(boxes, key=lambda what: what != "wait"):
        yield f'<path d="{"".join(boxes[what])}" style="fill:{KINDS[what].color}"/>'
    yield from words


def _lines(panel: Panel, left: float, top: float, scale: float) -> Iterator[str]:
    """From under the giver's work, or over it, to the taker's product."""
    for giver, ready, taker, used in panel.lines:
        if panel.first <= ready and used <= panel.last:
            down = giver < taker
            y0 = top + giver * LANE + (31 if down else 20)
            y1 = top + taker * LANE + (2 if down else 2 + UPPER)
            x0, x1 = (left + (at - panel.first) * scale for at in (ready, used))
            yield shapes.path([(x0, y0), (x1, y1)], INK)
            yield shapes.circle(x0, y0, 3, INK, "the weights are ready")


def _wide(bars: Iterable[Bar], least: float) -> Iterator[Bar]:
    """Bars of a kind that are too near to be told apart, as one."""
    held: dict[str, Bar] = {}
    for what, start, end in sorted(bars, key=lambda bar: bar[1]):
        last = held.get(what)
        if last and start - last[2] <= least:
            held[what] = (what, last[1], max(end, last[2]))
            continue
        if last:
            yield last
        held[what] = (what, start, end)
    yield from held.values()


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:.1f} {y:g}h{width:.1f}v{height:g}h-{width:.1f}z"


def _inside(x: float, y: float, word: str) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:g}" text-anchor="middle" font-size="11.5" font-weight="600" '
        f'style="fill:var(--work-ink)">{word}</text>'
    )


def _axis(panel: Panel, left: float, top: float, scale: float, width: float) -> Iterator[str]:
    step = _step(panel.span, 5 if width > NARROW else 3)
    first = math.ceil((panel.first - panel.zero) / step)
    for tick in range(first, (panel.last - panel.zero) // step + 1):
        x = left + (tick * step + panel.zero - panel.first) * scale
        yield rect(round(x, 1), top - 6, 1, 6, QUIET)
        anchor = "middle" if left + 12 < x < width - 28 else "start" if x <= left + 12 else "end"
        yield text(round(x, 1), top + 12, f"{tick * step:,}", anchor=anchor, fill=QUIET, size=11.5)
    yield text(0, top + 12, "cycles", fill=QUIET, size=11.5)


def _step(span: int, ticks: int) -> int:
    power = 10 ** int(math.log10(span / ticks))
    return next(power * f for f in (1, 2, 5, 10) if span / (power * f) <= ticks)


def _said(panels: Sequence[Panel]) -> str:
    """Shares of each lane, for those who cannot see it."""
    parts = []
    for panel in panels:
        for lane in panel.lanes:
            sums: dict[str, int] = {}
            for what, start, end in _seen(lane.bars, panel):
                sums[what] = sums.get(what, 0) + end - start
            told = ", ".join(
                f"{KINDS[what].name} {total / panel.span:.0%}" for what, total in sums.items()
            )
            name = f"{panel.title}: {lane.label}" if panel.title else lane.label
            parts.append(f"{name}: {told or 'nothing'}.")
    return " ".join(parts)
