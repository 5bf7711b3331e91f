"""Makes reproducible SVG of a matplotlib figure, for light and dark pages, cached by its data.

Text and lines take the page's text color; the colors of the data keep a contrast of 3 to 1 on
both backgrounds. Ids carry a hash of the data, so that several figures can share a page.
"""

from __future__ import annotations

import contextlib
import hashlib
import html
import io
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from mla_var3.paths import repo_root, write_atomic

INK_LIGHT, INK_DARK = "#1f2328", "#e6e6e6"
COLORS = ("#2f7fc1", "#c96a00", "#23906c", "#b85c9e", "#8a7a1f", "#a2604a")
#: Stands for the page's text color, which matplotlib cannot name.
INK = "#010203"
#: Stand for the page's colours of series, ``--series-1`` and on; ``COLORS`` where it names none.
SERIES = tuple(f"#0102{index:02x}" for index in range(0xA0, 0xA0 + len(COLORS)))

_STYLE = f"""<style>
.roofline-figure {{ color: {INK_LIGHT}; max-width: 100%; height: auto; }}
@media (prefers-color-scheme: dark) {{ .roofline-figure {{ color: {INK_DARK}; }} }}
[data-md-color-scheme="default"] .roofline-figure {{ color: {INK_LIGHT}; }}
[data-md-color-scheme="slate"] .roofline-figure {{ color: {INK_DARK}; }}
</style>
"""


def data_key(data: Any) -> str:
    """Hash of what is drawn (plain data) and of the library that draws it."""
    whole = {"data": data, "matplotlib": matplotlib.__version__}
    return hashlib.sha256(json.dumps(whole, sort_keys=True).encode()).hexdigest()[:20]


def cached(
    key: str, title: str, description: str, draw: Callable[[], str], cache_dir: Path | None = None
) -> str:
    """A drawing from the cache, or drawn and put there.

    Args:
        key: See ``data_key``.
        title: Accessible name of the figure; the page states it in text as well.
        description: What the figure shows, for those who cannot see it.
        draw: Makes matplotlib's SVG, as ``text`` returns it.
        cache_dir: Holds one file per drawing; ``.cache/figures`` of the checkout by default.

    Returns:
        An ``<svg>`` element that can be inlined or written to a file; the same data give the
        same text.
    """
    file = (cache_dir or repo_root() / ".cache" / "figures") / f"{key}.svg"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    svg = _embeddable(draw(), key, title, description)
    # A cache that cannot be written costs time, not the figure.
    with contextlib.suppress(OSError):
        write_atomic(file, svg)
    return svg


def style() -> contextlib.AbstractContextManager[None]:
    """The settings under which figures are drawn."""
    inked = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    settings: Any = {
        "svg.hashsalt": "hypermla",
        "svg.fonttype": "none",
        "text.parse_math": False,
        "font.size": 10,
        **dict.fromkeys(inked, INK),
    }
    return matplotlib.rc_context(settings)


def text(figure: Figure) -> str:
    """A figure as transparent SVG text without date and creator."""
    for patch in (figure.patch, *(axes.patch for axes in figure.axes)):
        patch.set(facecolor="none", edgecolor="none")
    buffer = io.StringIO()
    metadata = {"Date": None, "Creator": None}
    # ``Figure.savefig`` would draw everything twice, the first time for a layout that is the same.
    FigureCanvasSVG(figure).print_svg(buffer, metadata=metadata)
    return buffer.getvalue()


def _embeddable(svg: str, key: str, title: str, description: str) -> str:
    """Matplotlib's document as an element that can stand in a page beside others."""
    svg = svg[svg.index("<svg") :]
    # Its metadata block and its style for every element of the page are of no use there.
    svg = re.sub(r" *<metadata>.*?</metadata>\n", "", svg, flags=re.DOTALL)
    svg = re.sub(r"<style[^>]*>\*\{[^}]*\}</style>", "", svg)
    svg = svg.replace(INK, "currentColor")
    for index, (mark, color) in enumerate(zip(SERIES, COLORS, strict=True), start=1):
        svg = svg.replace(mark, f"var(--series-{index}, {color})")
    for pattern in (r'(\bid=")', r"(\burl\(#)", r'(\bhref="#)'):
        svg = re.sub(pattern, rf"\g<1>r{key}-", svg)
    attributes = (
        f'class="roofline-figure" role="img" aria-labelledby="r{key}-title r{key}-desc" '
        'stroke-linejoin="round" stroke-linecap="butt"'
    )
    head, body = svg.split(">", 1)
    return (
        f"{head} {attributes}>\n"
        f'<title id="r{key}-title">{html.escape(title)}</title>\n'
        f'<desc id="r{key}-desc">{html.escape(description)}</desc>\n'
        f"{_STYLE}{body.lstrip()}"
    )
