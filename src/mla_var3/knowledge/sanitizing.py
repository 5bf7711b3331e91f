"""HTML sanitizer of pages: drops all that is not on an allow-list; finds beforehand what it drops.

The site passes each page's HTML through ``sanitized`` before the theme takes it, so that no script
in a text runs. Lint renders Markdown as the site does and names what would be dropped.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import yaml

from mla_var3 import inputs
from mla_var3.paths import repo_root

#: What Markdown makes, with the site's extensions.
_GLOBAL = {"class", "id", "title"}
_TEXT = {
    *("p", "br", "hr", "em", "strong", "del", "sub", "sup", "small", "code", "pre", "blockquote"),
    *("h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "dl", "dt", "dd", "div", "span", "a"),
    *("table", "thead", "tbody", "tr", "th", "td", "details", "summary", "label", "input"),
}
_TEXT_ATTRIBUTES: dict[str, set[str]] = {
    "*": _GLOBAL,
    "a": {"href", "name", "rel"},
    "th": {"style"},
    "td": {"style"},
    "ol": {"start"},
    "details": {"open"},
    "label": {"for"},
    "input": {"checked", "name", "type", "disabled"},
}
#: What generators make beside it: charts, tables that sort, tools.
_DRAWN = {
    *(
        "svg",
        "g",
        "path",
        "rect",
        "circle",
        "line",
        "text",
        "tspan",
        "title",
        "desc",
        "defs",
        "use",
    ),
    *("clipPath", "pattern", "polyline", "polygon", "ellipse", "marker"),
    *("figure", "figcaption", "section", "caption"),
    *("form", "select", "option", "output", "button"),
}
_DRAWN_ATTRIBUTES = {
    "*": {
        *("hidden", "role", "tabindex", "scope", "colspan", "rowspan", "style"),
        *("x", "y", "x1", "y1", "x2", "y2", "cx", "cy", "r", "rx", "ry", "d", "points", "dx", "dy"),
        *("width", "height", "viewBox", "transform", "fill", "opacity", "clip-path", "version"),
        *("stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "stroke-linecap"),
        *("text-anchor", "font-size", "font-weight", "patternUnits", "patternTransform", "xmlns"),
        *("dominant-baseline", "xlink:href", "xmlns:xlink", "preserveAspectRatio", "overflow"),
        *("refX", "refY", "orient", "markerWidth", "markerHeight", "marker-end"),
    },
    "a": {"target"},
    "input": {
        *("min", "max", "step", "value", "inputmode", "autocomplete", "required", "placeholder"),
    },
    "select": {"name"},
    "option": {"value", "selected"},
    "output": {"for", "name"},
    "button": {"type", "disabled"},
}
#: Renderers take time by the square of some lines' length.
MAX_LINE = 5000
#: Without one of these no text is more than words.
_MARKUP = re.compile(r"[<>&{\[\x00-\x08]")
_PREFIXES = {"aria-", "data-"}
SCHEMES = {"http", "https", "mailto"}
#: What generators turn into addresses: citations and names in code.
_OWN_SCHEMES = {"source", "code"}
#: A style that fetches or runs in some browser; a pattern of the same drawing is neither.
_ACTIVE_STYLE = re.compile(r"url\s*\((?!#)|expression|import|[@\\]|behavior|binding", re.IGNORECASE)
#: Directives of mkdocstrings, snippets and macros.
_BUILD = re.compile(r":::|-8<-|\{%[-+\s]")
#: Where generators write into hand-written pages.
_MARK = re.compile(r"<!-- (?:[a-z]+: [\w .-]+|/[a-z]+) -->")


def sanitized(html: str) -> str:
    """The HTML of a page without whatever is not on the allow-list."""
    tags = _TEXT | _DRAWN
    merged = {
        tag: _TEXT_ATTRIBUTES.get(tag, set()) | _DRAWN_ATTRIBUTES.get(tag, set())
        for tag in _TEXT_ATTRIBUTES.keys() | _DRAWN_ATTRIBUTES.keys()
    }
    return _cleaned(html, tags, merged, _PREFIXES, SCHEMES)


def faults(text: str) -> list[tuple[int, str]]:
    """What in a Markdown text is not made of Markdown, as the site renders it.

    Args:
        text: Markdown of an author, without its front matter.

    Returns:
        Offset, as near as the renderer tells it, and one sentence for each.
    """
    if found := _BUILD.search(text):
        said = "a directive that runs code while the site is built"
        if found[0] != ":::":
            said = "made by generators alone: it would bring in files or code in a build"
        return [(found.start(), f"{found[0].strip()!r} is {said}")]
    if not _MARKUP.search(text):
        return []
    if (longest := max(map(len, text.splitlines()))) > MAX_LINE:
        return [(0, f"a line of {longest} characters is more than {MAX_LINE}, and slow to render")]
    made = renderer(repo_root()).reset().convert(_MARK.sub("", text))
    kept = _cleaned(made, _TEXT, _TEXT_ATTRIBUTES, {"aria-"}, SCHEMES | _OWN_SCHEMES)
    before, after = _pieces(made), _pieces(kept)
    if before == after:
        texts = (piece for piece in before if piece.startswith(_WORDS))
        shown = [found[0] for piece in texts if (found := _HTML.search(piece))]
        said = "looks like HTML; code and comparisons do not"
    else:
        shown = sorted(set(before) - set(after)) or sorted(set(after) - set(before)) or before
        said = "is not made of Markdown"
    return [(_offset(text, piece), f"{piece!r:.80} {said}") for piece in shown[:3]]


def _offset(text: str, piece: str) -> int:
    """Where a piece of HTML seems to come from."""
    tag = re.match(r"<[/!?]?[\w-]*", piece)
    start = tag[0] if tag else piece.removeprefix(_WORDS).removeprefix(_CODE)[:20]
    found = re.search(re.escape(start), text, re.IGNORECASE) or re.search("[<{(]", text)
    return found.start() if found else 0


def _cleaned(
    html: str,
    tags: set[str],
    attributes: dict[str, set[str]],
    prefixes: set[str],
    schemes: set[str],
) -> str:
    import nh3

    return str(
        nh3.clean(
            html,
            tags=tags,
            clean_content_tags={"script", "style"},
            attributes=attributes,
            attribute_filter=_attribute,
            generic_attribute_prefixes=prefixes,
            url_schemes=schemes,
            link_rel=None,
        )
    )


def _attribute(tag: str, name: str, value: str) -> str | None:
    """An attribute's value as it may stand, or None."""
    if name == "style" and _ACTIVE_STYLE.search(value):
        return None
    if name == "xlink:href" and not value.startswith("#"):
        return None
    return value


#: How pieces that are text begin.
_WORDS, _CODE = "text ", "code "
#: Text outside of code that a reader, or another renderer, would take for HTML.
_HTML = re.compile(r"<(?!https?://|class ')[A-Za-z/!?][^>]{0,40}")


class _Pieces(HTMLParser):
    """Tags with their attributes, and text, in a form that two spellings share."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[str] = []
        self.code = 0

    def handle_endtag(self, tag: str) -> None:
        self.code -= tag == "code"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.code += tag == "code"
        told = "".join(f' {name}="{value or ""}"' for name, value in sorted(attrs))
        self.found.append(f"<{tag}{told}>")

    def handle_data(self, data: str) -> None:
        if words := " ".join(data.split()):
            self.found.append(f"{_CODE if self.code else _WORDS}{words}")

    def handle_comment(self, data: str) -> None:
        self.found.append(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self.found.append(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self.found.append(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self.found.append(f"<![{data}]>")


def _pieces(html: str) -> list[str]:
    parser = _Pieces()
    parser.feed(html)
    parser.close()
    return parser.found


class _Tolerant(yaml.SafeLoader):
    """Reads what mkdocs.yml says of Markdown, whatever its other tags."""


_Tolerant.add_multi_constructor("!", lambda loader, suffix, node: None)
_Tolerant.add_multi_constructor("tag:", lambda loader, suffix, node: None)


@functools.cache
def renderer(root: Path) -> Any:
    """Python-Markdown with the extensions of the site.

    Raises:
        InputError: There is no sound mkdocs.yml.
    """
    import markdown

    names, configs = [], {}
    for name, config in _extensions(root):
        names.append(name)
        configs[name] = config
    # Colors of code change nothing of what is code.
    configs["pymdownx.highlight"] = {"use_pygments": False}
    return markdown.Markdown(extensions=names, extension_configs=configs)


def _extensions(root: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    path = root / "mkdocs.yml"
    text = inputs.read_text(path)
    read = inputs.parsed(lambda t: yaml.load(t, _Tolerant), text, str(path), "YAML")
    for item in read["markdown_extensions"]:
        name, config = next(iter(item.items())) if isinstance(item, dict) else (item, {})
        if not name.startswith("generators."):  # They link terms and save searches.
            yield name, config or {}
