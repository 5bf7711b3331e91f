"""Lint checks of running text: HTML, links, paths, numbers without a source, and directives."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from markdown_it.token import Token

from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.knowledge import markdown
from mla_var3.knowledge.changes import compare, place_of
from mla_var3.knowledge.checks.base import DocumentCheck, Problem
from mla_var3.knowledge.directives import DIRECTIVES, Context, cited, is_block, render_directive
from mla_var3.knowledge.evidence import quoted_words, repo_path
from mla_var3.knowledge.pages import Catalogue, Document, parse_markdown, sections_of
from mla_var3.knowledge.schema import Cited

_MATH = re.compile(r"\$\$.*?\$\$|\$[^$\n]+\$", re.DOTALL)
_DISPLAY = re.compile(r"\$\$.+?\$\$", re.DOTALL)
_ATTRIBUTES = re.compile(
    r"\{\s*:|\{\s*[.#][A-Za-z][^{}\n]*\}|\{[^{}\n]*\b[a-z-]+\s*=\s*[\"'][^{}\n]*\}"
)
_EVENT = re.compile(r"\{[^{}\n]*\bon[a-z]+\s*=", re.I)
_SNIPPET = re.compile(r"^[ \t]*-+8<-+", re.MULTILINE)
_REPO_PATH = re.compile(
    r"(?:\./)?(?:kernels|knowledge|src|docs|results|tests|scripts|generators|third_party|\.\.)/"
    r"[A-Za-z0-9_./-]+"
)


_SCHEMES = ("https", "source", "code")
_BULLET = re.compile(
    r"^(?P<indent> *)(?:[-*] |\d+\. )(?P<text>.*(?:\n(?P=indent) {2,}\S.*)*)", re.MULTILINE
)
_BULLET_MAX = 400
_FIRST_PRONOUN = re.compile(
    r"^(?:#{2,6} [^\n]*\n+| *(?:[-*]|\d+\.) )(?P<said>(?:It|They|Its|Their|These|Those|This|That)\b"
    r"(?! (?:page|entry|version|design|kernel|file)\b))",
    re.MULTILINE,
)
_TWO_PRONOUNS = re.compile(
    r"\b(?P<said>[Tt]hat one's|[Tt]he former|[Tt]he latter|"
    r"[Ww]hat (?:waits|comes|goes|holds|needs) (?:for|from|with|to) (?:it|them|that)|"
    r"[Tt]o the one that|[Ff]or the one that|[Tt]he others?'s?|"
    r"what (?:they|both|each|all|it) (?:has|have|had|left|leaves?|takes?)|(?:is|are) waited for)"
    r"(?=\W)"
)
#: A sentence ends where a reader may rest.
_RESTS = re.compile(r"(?<=[.!?:;])\s+")
_SENTENCE_MAX = 45
_PARAGRAPH = re.compile(r"^(?P<text>[^\s|#>`$!?].*(?:\n(?![\s>|#]|[-*] |\d+\. ).+)*)", re.MULTILINE)
_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")
_FIGURE = "00.0 us"


class CodeFence(DocumentCheck):
    """A code fence is closed, names at most a language, and is indented by multiples of four.

    Renderers disagree about all others, and what one takes for code another takes for HTML.
    """

    id = "code-fence"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for (start, _), fault in markdown.fences(document.body):
            if fault:
                yield document.line_at(start), fault


class AttributeList(DocumentCheck):
    """No text sets HTML attributes through `{: ... }` lists."""

    id = "attribute-list"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        prose = document.prose
        plain = markdown.blank(prose, (m.span() for m in _MATH.finditer(prose)))
        plain = markdown.blank(plain, (m.span() for m in markdown.DIRECTIVE.finditer(plain)))
        found = {m.start() for m in _ATTRIBUTES.finditer(plain)}
        # Event handlers are refused inside formulas too: a renderer may not see the formula.
        found |= {m.start() for m in _EVENT.finditer(prose)}
        for start in sorted(found):
            yield document.line_at(start), "an attribute list sets HTML attributes"


class FormulaAlone(DocumentCheck):
    """A display formula, between `$$`, is a paragraph of its own, blank lines around it.

    Inside a paragraph it would be shown as a small formula between two dollar signs.
    """

    id = "formula-alone"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in _DISPLAY.finditer(document.prose):
            before = document.prose[: match.start()].rsplit("\n", 2)
            after = document.prose[match.end() :].split("\n", 2)
            if any(part.strip() for part in (*before[-2:], *after[:2])):
                yield document.line_at(match.start()), "a display formula shares its paragraph"


class SnippetInclude(DocumentCheck):
    """No text includes another file through a snippet mark."""

    id = "snippet-include"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in _SNIPPET.finditer(document.body):
            yield document.line_at(match.start()), "a snippet mark would include another file"


def _links(document: Document) -> Iterator[tuple[int, str, str]]:
    """Line, ``href`` or ``src``, and target of every link and image."""
    for token in document.tokens:
        if token.type != "inline" or not token.map:
            continue
        start, stop = token.map
        rows = document.body.split("\n")[start:stop]
        for child in token.children or ():
            attribute = {"link_open": "href", "image": "src"}.get(child.type)
            if attribute is None:
                continue
            target = str(child.attrs[attribute])
            plain = unquote(target)
            offset = next((i for i, row in enumerate(rows) if plain in row or target in row), 0)
            yield document.body_line + start + offset, attribute, plain


class LinkScheme(DocumentCheck):
    """A link is relative, `https:`, a citation `source:` or, in a devlog, `code:`; nothing else."""

    id = "link-scheme"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, _, target in _links(document):
            scheme = re.match(r"\s*([A-Za-z][\w+.-]*):", target)
            if target.startswith("//") or (scheme and scheme[1].lower() not in _SCHEMES):
                yield line, f"link {target!r} is neither relative, https:, source: nor code:"


class CodeLinkDead(DocumentCheck):
    """A link `code:NAME` stands in an entry of a devlog, and a line changed there holds the name.

    The version's page shows the sentence beside that line. The first version has no changes.
    """

    id = "code-link-dead"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in markdown.CODE_LINK.finditer(document.prose):
            line = document.line_at(match.start())
            if fault := _unexplained(document, line, match[2], catalogue):
                yield line, fault


def _unexplained(document: Document, line: int, name: str, catalogue: Catalogue) -> str | None:
    """Why a link at a line of a devlog leads to no changed code; None where it does."""
    design = catalogue.design_of(document)
    above = [entry.version for entry in document.entries if entry.line < line]
    if design is None or not above or above[-1] not in design.versions:
        return f"code:{name} stands in no entry of a version"
    at = design.versions.index(above[-1])
    if at == 0:
        return f"code:{name} explains a change, and {above[-1]} is the first version"
    before, after = design.versions[at - 1], above[-1]
    changes = compare(document.path.parent, before, after)
    if place_of(name, changes) is None:
        return f"no line that changed from {before} to {after} holds {name!r}"
    return None


class LinkForm(DocumentCheck):
    """A link is written `[words](target)`, its target plain: no blanks, entities or brackets.

    Renderers read anything else differently. A reference definition `[name]: target` leads to
    `https:`.
    """

    id = "link-form"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in markdown.ODD_LINK.finditer(document.prose):
            shown = document.prose[match.start() : match.start() + 30].split("\n")[0]
            yield document.line_at(match.start()), f"{shown!r} has no plain link target"
        for match in re.finditer(r"^[ \t>]*\[[^\]\n]*", document.prose, re.MULTILINE):
            if markdown.ODD_DEFINITION.match(document.prose, match.end()):
                line = document.line_at(match.start())
                yield line, "a reference definition leads to https: only"


def _relative(document: Document) -> Iterator[tuple[int, str, str]]:
    """Line, path and anchor of every relative link."""
    for line, _, target in _links(document):
        if not re.match(r"\s*[A-Za-z][\w+.-]*:|//", target):
            path, _, anchor = target.partition("#")
            yield line, path, anchor


def _inside(path: Path, root: Path) -> bool:
    return path.resolve().is_relative_to(root.resolve())


class LinkEscape(DocumentCheck):
    """No link and no named path leads out of the checkout."""

    id = "link-escape"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, path, _ in _relative(document):
            place = document.path.parent / path
            if path.startswith("/") or "\\" in path or not _inside(place, catalogue.root):
                yield line, f"link {path!r} leads out of the checkout"
        for offset, span in markdown.code_spans(document.body):
            if _REPO_PATH.fullmatch(span) and not _inside(catalogue.root / span, catalogue.root):
                yield document.line_at(offset), f"path {span!r} leads out of the checkout"


class LinkDead(DocumentCheck):
    """A relative link leads to a file or folder that exists."""

    id = "link-dead"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, path, _ in _relative(document):
            place = document.path.parent / path
            if path.startswith("/") or not _inside(place, catalogue.root):
                continue  # link-escape
            if path and not place.exists():
                yield line, f"link {path!r} leads to no file"


class LinkAnchor(DocumentCheck):
    """The anchor of a link is a heading of the page it leads to."""

    id = "link-anchor"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for line, path, anchor in _relative(document):
            place = document.path.parent / path if path else document.path
            if not anchor or place.suffix != ".md" or not _inside(place, catalogue.root):
                continue
            if place.is_file() and anchor not in _anchors(place):
                yield line, f"{path or 'this page'} has no heading #{anchor}"


def _anchors(path: Path) -> set[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    tokens: list[Token] = parse_markdown(text)
    return {markdown.slug(section.title) for section in sections_of(text, 1, tokens)}


class LinkText(DocumentCheck):
    """A link has words and an image a description, for readers who hear the page."""

    id = "link-text"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in re.finditer(r"\[(\s*)\]\(", document.prose):
            if not document.body[slice(*match.span(1))].strip():  # Code is blank in the prose.
                yield document.line_at(match.start()), "a link or image has no text"


class PathDead(DocumentCheck):
    """A path of the checkout that is named in code type exists.

    Paths with a placeholder (`<version>`, `*`) are not looked up.
    """

    id = "path-dead"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for offset, span in markdown.code_spans(document.body):
            path = re.sub(r":\d+$", "", span)
            if not _REPO_PATH.fullmatch(path) or not _inside(catalogue.root / path, catalogue.root):
                continue
            if not (catalogue.root / path).exists() and path not in catalogue.records:
                yield document.line_at(offset), f"path {path!r} does not exist"


class NumberWithoutSource(DocumentCheck):
    """A number with a unit comes from a directive or stands in a citation.

    `[62 TFLOP/s](source:key)` cites the figure from the evidence entry `key` of the page's front
    matter; the directives `record`, `ratio`, `device` and `analysis` compute it. Code is no
    exception. Sizes without a unit (s=16, 64x512, 8 warps) are free.
    """

    id = "number-without-source"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for offset, text in markdown.numbers_with_unit(document.body, document.prose):
            yield document.line_at(offset), f"{text!r} is a figure without a source"


class TableNumber(DocumentCheck):
    """A table column whose heading names a unit holds only cited or computed numbers."""

    id = "table-number"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        heads: list[bool] = []
        column, in_head = 0, False
        for token in document.tokens:
            if token.type in ("thead_open", "thead_close"):
                in_head = token.type == "thead_open"
                heads = [] if in_head else heads
            elif token.type == "tr_open":
                column = 0
            elif token.type == "inline" and token.level >= 4 and token.map and _in_table(token):
                if in_head:
                    heads.append(_names_unit(token.content))
                elif column < len(heads) and heads[column] and _bare_number(token.content):
                    line = document.body_line + token.map[0]
                    yield line, f"{token.content!r} is a figure without a source"
                column += 1


def _in_table(token: Token) -> bool:
    # Cells are the only inline content whose map comes from a table row: one line.
    assert token.map is not None
    return token.map[1] - token.map[0] == 1


def _names_unit(heading: str) -> bool:
    return any(
        markdown.NUMBER_WITH_UNIT.search(f"1 {word}") for word in re.findall(r"[^\s(),]+", heading)
    )


def _bare_number(content: str) -> bool:
    hidden = [m.span() for m in markdown.CITATION.finditer(content)]
    hidden += [m.span() for m in markdown.DIRECTIVE.finditer(content)]
    return re.search(rf"(?<![\w.]){markdown.NUMBER}", markdown.blank(content, hidden)) is not None


class CitationUnknown(DocumentCheck):
    """A citation names the key of an evidence entry of its page."""

    id = "citation-unknown"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for item in markdown.citations(document.prose):
            if cited(document, item.key) is None:
                yield document.line_at(item.start), f"no evidence entry has the key {item.key!r}"


class CitationMismatch(DocumentCheck):
    """Every figure of a citation stands in the quoted words of its source, unit included."""

    id = "citation-mismatch"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for item in markdown.citations(document.prose):
            source = cited(document, item.key)
            words = _words(source, catalogue)
            for number, unit in markdown.figures(item.label) if words else ():
                if not markdown.states(words, number, unit):
                    line, figure = document.line_at(item.start), f"{number} {unit}".rstrip()
                    yield line, f"{figure!r} is not in the words quoted from {item.key!r}"


def _words(source: Cited | None, catalogue: Catalogue) -> str:
    """What a source says; empty where the checks of evidence say why that is not known."""
    try:
        return "" if source is None else quoted_words(source, catalogue)
    except KnowledgeError:
        return ""


class CitationKeyTwice(DocumentCheck):
    """No two evidence entries of a page have the same key."""

    id = "citation-key-twice"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        assert document.meta is not None
        seen: set[str] = set()
        for index, item in enumerate(document.meta.evidence):
            key = getattr(item, "key", None)
            if key in seen:
                yield document.line_of("evidence", index, "key"), f"key {key!r} is taken already"
            if key:
                seen.add(key)


class QuotationFormula(DocumentCheck):
    """A quotation holds no TeX: a formula stands in it as readers of the source see it.

    Quotations are shown as plain words, in tables and where a pointer rests on a citation.
    """

    id = "quotation-formula"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        assert document.meta is not None
        for index, item in enumerate(document.meta.evidence):
            if tex := re.search(r"\\[A-Za-z]+", getattr(item, "quoted", "")):
                line = document.line_of("evidence", index, "quoted")
                yield line, f"{tex.group()!r} is TeX: write what the source shows"


class DirectiveUnknown(DocumentCheck):
    """Everything between double braces outside code is a directive that exists, well written."""

    id = "directive-unknown"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        known = {item.start for item in markdown.directives(document.prose)
                 if item.name in DIRECTIVES}  # fmt: skip
        plain = markdown.blank(document.prose, (m.span() for m in _MATH.finditer(document.prose)))
        for match in re.finditer(r"\{\{", plain):
            if match.start() not in known:
                shown = document.prose[match.start() : match.start() + 30].split("\n")[0]
                yield document.line_at(match.start()), f"{shown!r} is not a directive"


class LongBullet(DocumentCheck):
    """A bullet stays under 400 characters, counted as a reader sees it.

    A longer one carries several thoughts: split it. Link targets do not count, and a directive
    counts as the figure that it becomes.
    """

    id = "long-bullet"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in _BULLET.finditer(document.prose):
            shown = _LINK.sub(r"\1", markdown.DIRECTIVE.sub(_FIGURE, match["text"]))
            if len(shown) > _BULLET_MAX:
                what = (
                    f"a bullet of {len(shown)} characters, at most {_BULLET_MAX} are easy to read"
                )
                yield document.line_at(match.start("text")), what


class LongSentence(DocumentCheck):
    """A sentence has at most 45 words from one rest to the next.

    A full stop, a colon and a semicolon are rests. What is longer holds more than one mechanism:
    say who does what to which data, then begin another sentence.
    """

    id = "long-sentence"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for match in _PARAGRAPH.finditer(document.prose):
            shown = _LINK.sub(r"\1", markdown.DIRECTIVE.sub("1", match["text"]))
            for sentence in _RESTS.split(re.sub(r"`[^`]*`", "x", shown)):
                if (words := len(sentence.split())) > _SENTENCE_MAX:
                    begins = " ".join(sentence.split()[:6])
                    what = f"{begins!r} begins a sentence of {words} words: split it"
                    yield document.line_at(match.start("text")), what


class PronounWithoutNoun(DocumentCheck):
    """A pronoun has its noun in sight.

    The first sentence of a section or bullet begins with no pronoun, since nothing stands before
    it, and no phrase has a pronoun for both sides ("that one's", "what waits for it", "the
    other's", "what they left", "is waited for").
    """

    id = "pronoun-without-noun"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for pattern in (_FIRST_PRONOUN, _TWO_PRONOUNS):
            for match in pattern.finditer(document.prose):
                what = f"{match['said']!r} has no noun in sight: name what it stands for"
                yield document.line_at(match.start("said")), what


class DirectiveAlone(DocumentCheck):
    """A directive that becomes a table stands alone on its line."""

    id = "directive-alone"

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        rows = document.prose.split("\n")
        for item in markdown.directives(document.prose):
            row = rows[document.prose.count("\n", 0, item.start)]
            if (
                is_block(item.name, item.arguments)
                and row.strip() != document.prose[item.start : item.end]
            ):
                yield document.line_at(item.start), f"{item.name} must stand alone on its line"


class DirectiveFailed(DocumentCheck):
    """Every directive can be rendered: its record, metric, stage, device or figure exists."""

    id = "directive-failed"
    needs_meta = True

    def _problems(self, document: Document, catalogue: Catalogue) -> Iterator[Problem]:
        for item in markdown.directives(document.prose):
            if item.name not in DIRECTIVES:
                continue  # directive-unknown
            if item.name == "evidence" and not item.arguments:
                continue  # The checks of evidence say more than this could.
            context = Context(document, catalogue, repo_path, document.body[: item.start])
            try:
                render_directive(context, item.name, item.arguments)
            except HyperMlaError as error:
                yield document.line_at(item.start), f"{item.name}: {error}"
