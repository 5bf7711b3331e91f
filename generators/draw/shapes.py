"""SVG primitives of all drawings: boxes, lines, text and figures with a text alternative."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable

#: Colors of series, and those with a meaning, from the site's style sheet; what they color is told
#: apart by more than its color.
BLUE, ORANGE, PURPLE = "var(--series-2)", "var(--series-1)", "var(--series-4)"
INK, QUIET, EDGE, SUNK = "currentColor", "var(--quiet)", "var(--edge)", "var(--sunk)"
SLOWER, FASTER = "var(--slower)", "var(--faster)"


def rect(
    x: float, y: float, width: float, height: float, fill: str, note: str = "", opacity: float = 1
) -> str:
    """A box; ``note`` shows where the pointer is on it."""
    inner = f"<title>{html.escape(note)}</title>" if note else ""
    faint = f' opacity="{opacity:g}"' if opacity != 1 else ""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" '
        f'style="fill:{fill}"{faint}>{inner}</rect>'
    )


def circle(x: float, y: float, radius: float, fill: str, note: str) -> str:
    """A mark; ``note`` shows where the pointer is on it."""
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" style="fill:{fill}">'
        f"<title>{html.escape(note)}</title></circle>"
    )


def squares(which: Iterable[int], columns: int, pitch: float, fill: str, *, top: float = 0) -> str:
    """Squares of a grid, by their numbers from the top left."""
    side = pitch - (2 if pitch > 6 else 1)
    steps = (
        f"M{i % columns * pitch:g} {top + i // columns * pitch:g}h{side:g}v{side:g}h-{side:g}z"
        for i in which
    )
    return f'<path d="{"".join(steps)}" style="fill:{fill}"/>'


def text(
    x: float, y: float, words: str, *, anchor: str = "start", fill: str = INK, bold: bool = False,
    size: float = 13,
) -> str:  # fmt: skip
    """Words whose baseline starts, ends or is centered at a point."""
    weight = ' font-weight="600"' if bold else ""
    return (
        f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" font-size="{size:g}"{weight} '
        f'style="fill:{fill}">{html.escape(words)}</text>'
    )


def path(points: Iterable[tuple[float, float]], color: str, *, dashed: bool = False) -> str:
    """A line through points."""
    steps = " ".join(f"{'L' if i else 'M'}{x:.1f} {y:.1f}" for i, (x, y) in enumerate(points))
    dashes = ' stroke-dasharray="5 4"' if dashed else ""
    return f'<path d="{steps}" fill="none" stroke-width="2"{dashes} style="stroke:{color}"/>'


def svg(width: float, height: float, parts: Iterable[str], title: str, message: str) -> str:
    """A drawing.

    Args:
        width: In pixels, at most; narrow screens shrink it.
        height: In the same unit.
        parts: Shapes.
        title: Its accessible name.
        message: What it shows, in a sentence, for those who cannot see it.
    """
    label = html.escape(f"{title}: {message}")
    return (
        f'<svg class="drawing" role="img" viewBox="0 0 {width:g} {height:g}" '
        f'width="{width:g}" aria-label="{label}">{"".join(parts)}</svg>'
    )


def hatched(name: str, color: str) -> str:
    """A pattern of slanted lines, to fill with as ``url(#name)``."""
    return (
        f'<defs><pattern id="{name}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><path d="M0 0v6" style="stroke:{color}" stroke-width="2"/>'
        "</pattern></defs>"
    )


def responsive(draw: Callable[[float], str], wide: float, narrow: float) -> str:
    """A drawing at two widths; styles show the one that fits the screen."""
    return (
        f'<div class="chart__wide">{draw(wide)}</div>'
        f'<div class="chart__narrow">{draw(narrow)}</div>'
    )


def figure(drawing: str, caption: str = "", *, title: str = "", kind: str = "drawn") -> str:
    """A drawing with its caption, as Markdown takes it.

    Args:
        drawing: HTML.
        caption: Plain words below it.
        title: What leads the caption, in bold.
        kind: Classes of the style sheet.
    """
    lead = f"<strong>{html.escape(title, quote=False)}.</strong> " if title else ""
    words = f"{lead}{html.escape(caption, quote=False)}"
    below = f"<figcaption>{words}</figcaption>" if words else ""
    return f'<figure class="{kind}">{drawing}{below}</figure>'
