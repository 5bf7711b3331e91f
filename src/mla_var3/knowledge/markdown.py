"""Finds code, directives, citations and numbers with a unit in Markdown, by offset in the text.

Not the tokens of markdown-it-py 4.3.0, which were tried: they know the same fences in all 276
files, but of 2,797 code spans and links not one has a place in the text, and all that is looked for
here is replaced or reported by its place.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

Region = tuple[int, int]

# A fence as both CommonMark and Python-Markdown understand it; what only one of them would take
# for a fence is treated as prose, since the other would interpret the markup inside.
_FENCE = re.compile(r"^(?P<indent>(?: {4})*)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$", re.MULTILINE)
_INFO = re.compile(r'[A-Za-z0-9_+-]*(?: title="[^"<>&]*")?\s*')
_SPAN = re.compile(r"(?<![\\`])(`+)(?!`)([^\n]*?[^`\n])\1(?!`)")
DIRECTIVE = re.compile(r"\{\{[ \t]*([a-z][a-z-]*)((?:[ \t]+[^\s{}]+)*)[ \t]*\}\}")
CITATION = re.compile(r"(?<!!)\[([^\[\]\n]+)\]\(source:([^\s()]*)\)")
#: What an identifier looks like that words may point at, in changed code.
CODE_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
CODE_LINK = re.compile(rf"(?<!!)\[([^\[\]\n]+)\]\(code:({CODE_NAME})\)")
_LINK_TARGET = re.compile(r"\]\([^()\n]*(?:\([^()\n]*\)[^()\n]*)*\)|https?://[^\s<>)\]]+")

_UNITS = r"""
    (?:n|u|µ|μ|m)s | (?:nano|micro|milli)?seconds? | secs? | minutes? | hours?
  | [kKMGTP]?i?B(?:/s)? | (?:kilo|mega|giga|tera)?bytes?
  | [kMGTPE]?(?:FLOPs?|FLOPS|OPS)(?:/s)?
  | [kMG]?Hz | k?W | [Ww]atts?
  | SMs | registers? | instructions? | LDLs? | STLs? | cycles?
  | fold
  | times(?=\s+(?:faster|slower|as|more|less|fewer|higher|lower|larger|smaller|the)\b)
"""
NUMBER = r"\d[\d,_]*(?:\.\d+)?(?:[eE][+-]?\d+)?"
NUMBER_WITH_UNIT = re.compile(
    rf"""(?<![\w.,]) {NUMBER}
    (?: [\s\u00a0\u202f~-]{{0,2}} (?: % | per\s?cent(?:age)?\b )
      | -? x (?!\w)
      | \s? \u00d7 (?! \s* (?: [\d$\\] | \w\b ) )
      | (?: [\s\u00a0\u202f~-] | \\[,;\x20] )? (?: \\(?:text|mathrm)\{{ \s* )?
        (?: {_UNITS} ) (?![\w=]) )""",
    re.VERBOSE,
)


def fences(text: str) -> Iterator[tuple[Region, str | None]]:
    """Every fenced block with what is wrong with it.

    Yields:
        The region from the start of the opening line to the end of the closing line (or of the
        text), and a sentence when the block is not one that every renderer takes for code.
    """
    position = 0
    opening = re.compile(r"^[ \t>]*(`{3,}(?=[^`\n]*$)|~{3,})", re.MULTILINE)
    while found := opening.search(text, position):
        mark = found.group(1)
        regular = _FENCE.match(text, found.start())
        closing = re.compile(
            rf"^[ \t>]*{re.escape(mark[0])}{{{len(mark)},}}[ \t]*$", re.MULTILINE
        ).search(text, text.find("\n", found.end()) + 1 or len(text))
        end = closing.end() if closing else len(text)
        fault = None
        if regular is None:
            fault = "the code fence is indented by other than a multiple of four spaces"
        elif closing is None:
            fault = "the code fence is never closed"
        elif not _INFO.fullmatch(regular["info"]):
            fault = f"the code fence's info string {regular['info'].strip()!r} is not a language"
        yield (found.start(), end), fault
        position = end
        if closing is None:
            return


def _spans(text: str) -> Iterator[re.Match[str]]:
    """One-line code spans, given text whose fences are blanked out.

    Renderers pair backticks differently as soon as one is left over, and look for HTML blocks line
    by line. So in a paragraph where some line has a backtick without partner, nothing is code.
    """
    position = 0
    for paragraph in re.split(r"(\n[ \t]*(?=\n))", text):
        start, position = position, position + len(paragraph)
        if "`" not in paragraph:
            continue
        found = list(_SPAN.finditer(text, start, position))
        rest = blank(paragraph, ((m.start() - start, m.end() - start) for m in found))
        if "`" not in rest:
            yield from found


def code_regions(text: str) -> list[Region]:
    """Regions of ``text`` that are code for every renderer: sound fences and one-line spans."""
    regions = [region for region, fault in fences(text) if fault is None]
    return sorted(regions + [match.span() for match in _spans(blank(text, regions))])


def code_spans(text: str) -> Iterator[tuple[int, str]]:
    """Offset and content of each inline code span."""
    regions = [region for region, fault in fences(text) if fault is None]
    for match in _spans(blank(text, regions)):
        yield match.start(2), match.group(2).strip()


def blank(text: str, regions: Iterable[Region]) -> str:
    """``text`` with ``regions`` overwritten by blanks; line ends stay."""
    pieces, position = [], 0
    for start, end in sorted(regions):
        if end <= position:
            continue
        start = max(start, position)
        pieces += [text[position:start], re.sub(r"[^\n]", " ", text[start:end])]
        position = end
    return "".join([*pieces, text[position:]])


@dataclass(frozen=True)
class Directive:
    """``{{ name arguments }}`` in the body, outside code."""

    name: str
    arguments: tuple[str, ...]
    start: int
    end: int


def directives(prose: str) -> Iterator[Directive]:
    """The directives of ``prose`` (a body with its code blanked out)."""
    for match in DIRECTIVE.finditer(prose):
        yield Directive(match.group(1), tuple(match.group(2).split()), *match.span())


@dataclass(frozen=True)
class Citation:
    """``[label](source:key)`` in the body, outside code."""

    label: str
    key: str
    start: int
    end: int


def citations(prose: str) -> Iterator[Citation]:
    """The citations of ``prose``."""
    for match in CITATION.finditer(prose):
        yield Citation(match.group(1), match.group(2), *match.span())


def numbers_with_unit(body: str, prose: str) -> Iterator[tuple[int, str]]:
    """Offset and text of every number with a unit that is typed by hand.

    Citations, directives and link targets are left out; code is not.

    Args:
        body: The body.
        prose: The body with its code blanked out.
    """
    hidden = [m.span() for m in DIRECTIVE.finditer(prose)]
    hidden += [m.span() for m in CITATION.finditer(prose)]
    hidden += [m.span() for m in _LINK_TARGET.finditer(prose)]
    for match in NUMBER_WITH_UNIT.finditer(blank(body, hidden)):
        yield match.start(), " ".join(match.group().split())


def _plain(text: str) -> str:
    """``text`` for comparing figures: single blanks, no case, one spelling of micro and times."""
    text = text.replace("µ", "u").replace("μ", "u").replace("\u00d7", "x").replace(",", "")
    return " ".join(text.split()).casefold()


def figures(text: str) -> list[tuple[str, str]]:
    """The numbers of ``text`` with their unit, which may be empty; commas and case dropped."""
    found, rest = [], text
    for match in NUMBER_WITH_UNIT.finditer(text):
        number = re.match(NUMBER, match.group())
        assert number is not None  # The expression starts with it.
        unit = _plain(match.group()[number.end() :]).lstrip("-~ ")
        found.append((_plain(number.group()), unit))
        rest = blank(rest, [match.span()])
    return found + [(_plain(n), "") for n in re.findall(rf"(?<![\w.,]){NUMBER}(?![\w])", rest)]


def states(quoted: str, number: str, unit: str) -> bool:
    """Whether ``quoted`` holds a number, not as part of a longer one, and its unit.

    The unit may stand elsewhere in the quotation, as in ``226 / 255 us``, and in the singular.
    """
    words = _plain(quoted)
    if not re.search(rf"(?<![\d.]){re.escape(number)}(?!\.?\d)", words):
        return False
    stem = re.escape(unit.removesuffix("s") if len(unit) > 3 else unit)
    return not unit or re.search(rf"(?<![a-z]){stem}s?(?![a-z])", words) is not None


def slug(heading: str) -> str:
    """Anchor of a heading, as Python-Markdown's table of contents makes it."""
    import unicodedata

    plain = re.sub(r"[`*\[\]]", "", heading)
    ascii_ = unicodedata.normalize("NFKD", plain).encode("ascii", "ignore").decode()
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", ascii_).strip().lower())


# A link whose target is plain: https, a citation, or a relative path without scheme or entity.
_PLAIN_TARGET = (
    r"(?:https://(?:[^\s()<>\"]|\([^\s()<>\"]*\))+|source:[a-z0-9-]+|code:[\w.]+|[^\s()<>\"&:]*)"
    r'(?:[ ]+"[^"<>\n]*")?\)'
)
ODD_LINK = re.compile(rf"\]\((?!{_PLAIN_TARGET})")
ODD_DEFINITION = re.compile(r"\]:(?!\s*https://)")
_DANGEROUS = (
    # Entities would be decoded inside a link target.
    (re.compile(r"&(?=#|[A-Za-z][A-Za-z0-9]*;)"), "&amp;"),
    (re.compile(r"<(?!https?://[^\s<>\"]*>)(?=[A-Za-z/!?])"), "&lt;"),
    (ODD_LINK, "]&#40;"),
    (ODD_DEFINITION, "]&#58;"),
    # Attribute lists that set more than an id or a class.
    (
        re.compile(r"\{(?=\s*:|[^}\n]*\b(?:on\w+|style|href|src\w*)\s*=)", re.IGNORECASE),
        "&#123;",
    ),
    (re.compile(r"^([ \t>]*-*)-8<-", re.MULTILINE), r"\1&#45;8<-"),
)


def neutralise(body: str) -> str:
    """``body`` with raw HTML, odd links, attribute lists and includes outside code disarmed.

    Lint refuses all of them. The allow-list that every page passes keeps script out, and has to let
    through what generators draw with: styles, forms, sections. Here a text that was not linted
    loses those too.
    """
    body = body.replace("\r\n", "\n").replace("\r", "\n")
    pieces, position = [], 0
    for start, end in [*code_regions(body), (len(body), len(body))]:
        prose = body[position:start]
        for pattern, replacement in _DANGEROUS:
            prose = pattern.sub(replacement, prose)
        pieces += [prose, body[start:end]]
        position = end
    return "".join(pieces)


_RELATIVE = re.compile(r"\]\((?!(?:[a-zA-Z][a-zA-Z0-9+.-]*:|#|/))([^\s()]+)(?=[)\s])")


def relative_targets(prose: str) -> Iterator[tuple[int, int, str]]:
    """Start, end and text of each link target that is a relative path."""
    for match in _RELATIVE.finditer(prose):
        yield match.start(1), match.end(1), match.group(1)
