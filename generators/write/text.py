"""Markdown helpers of all page families: front matter, tables, folds, fences, relative links."""

from __future__ import annotations

import ast
import html
import json
import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from mla_var3.blobs import once_per_content
from mla_var3.errors import HyperMlaError, KnowledgeError
from mla_var3.knowledge import directives, markdown, metrics
from mla_var3.knowledge.evidence import Link
from mla_var3.knowledge.pages import Catalogue, Document
from mla_var3.tables import cell, code, table

__all__ = [
    "at_line", "at_words", "boxed", "capital", "cell", "choices", "code", "docstring", "factored",
    "fence", "fold", "meta", "rebase", "rendered", "sections", "table", "us",
]  # fmt: skip


def capital(words: str) -> str:
    """Words as the start of a sentence."""
    return words[:1].upper() + words[1:]


def us(value: float) -> str:
    """Microseconds as tables have them."""
    return metrics.metric("total_us").text(value)


def meta(**fields: str | list[str] | dict[str, bool] | dict[str, list[str]]) -> str:
    """Front matter of a page; the theme puts it into HTML as it is, so it is escaped here.

    A field that says nothing is left out.
    """
    safe = {
        name: html.escape(value) if isinstance(value, str) else value
        for name, value in fields.items()
        if value
    }
    # JSON is YAML, whatever the text holds.
    lines = (f"{name}: {json.dumps(value)}" for name, value in safe.items())
    return "\n".join(["---", *lines, "---"])


def sections(*parts: str) -> str:
    """The parts that are not empty, a blank line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"


def factored(head: Sequence[str], rows: Sequence[Sequence[str]], every: str) -> str:
    """A table whose columns that do not vary are said once before it.

    The first and the last column always stand in the table; a single row says the others once, as
    a list, which fits every screen.

    Args:
        head: Titles of the columns.
        rows: Cells, as Markdown.
        every: What the columns said once hold for.
    """
    shared = {i for i in range(1, len(head) - 1) if len({row[i] for row in rows}) == 1}
    said = "\n".join(f"- {head[i]}: {rows[0][i]}" for i in sorted(shared) if rows[0][i])
    kept = [i for i in range(len(head)) if i not in shared]
    shown = table([head[i] for i in kept], [[row[i] for i in kept] for row in rows])
    lead = f"In every {every}:" if said and len(rows) > 1 else ""
    return sections(lead, said, shown).strip()


def fold(title: str, said: str, text: str) -> str:
    """Section that opens on a click; its summary line says what is in it. Empty without text."""
    if not text.strip():
        return ""
    told = f"<span>{cell(said)}</span>" if said else ""
    return (
        f'<details class="facts" markdown="1">\n<summary><strong>{title}</strong> {told}'
        f"</summary>\n\n{text.strip()}\n\n</details>"
    )


def boxed(kind: str, title: str, *parts: str) -> str:
    """A box with a title; every part is indented into it."""
    body = "\n\n".join(part for part in parts if part)
    return f'!!! {kind} "{title}"\n\n' + "\n".join(
        f"    {row}".rstrip() for row in body.split("\n")
    )


def choices(name: str, options: Sequence[str]) -> str:
    """Answers of which a reader picks one; ``name`` tells them from others of the page."""
    rows = "".join(
        f'<label><input type="radio" name="{name}"> {html.escape(option)}</label>'
        for option in options
    )
    return f'<div class="choices">{rows}</div>' if rows else ""


def fence(text: str, language: str, anchor: str = "", **options: str) -> str:
    """A fenced code block, whatever the text holds; ``anchor`` names its lines, see ``at_line``."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    # The highlighter escapes what the attributes hold; a quote would end one.
    quoted = {name: value.replace('"', "'") for name, value in options.items()}
    attributes = "".join(f' {name}="{value}"' for name, value in quoted.items())
    named = f" #{anchor}" if anchor else ""
    return f"{ticks} {{ .{language}{named}{attributes} }}\n{text.rstrip()}\n{ticks}"


def at_line(file: str, line: int) -> str:
    """Address of a line of a source where a page shows it: the file's, with the line's anchor."""
    return f"{file}#__span-{Path(file).stem}-{line}"


def at_words(file: str, words: str) -> str:
    """Address of the first line of ``words`` in a file without anchors: browsers scroll to it."""
    first = words.strip().splitlines()[0]
    return f"{file}#:~:text={quote(first, safe='').replace('-', '%2D')}"


def rendered(
    document: Document,
    catalogue: Catalogue,
    link: Link,
    override: directives.Override = directives.no_override,
) -> str:
    """A knowledge page, text or devlog as Markdown; see ``mla_var3.knowledge.render``.

    Raises:
        KnowledgeError: A figure or citation cannot be made; names the file.
    """
    try:
        return directives.render(document, catalogue, link, override).strip()
    except HyperMlaError as error:
        raise KnowledgeError(f"{document.name}: {error}; knowledge lint names the line") from error
    finally:
        # The tokens of hundreds of pages fill memory; whoever needs them again makes them anew.
        vars(document).pop("tokens", None)


def rebase(text: str, name: str, link: Link) -> str:
    """A hand-written Markdown file with its relative links turned to where the site has them.

    Args:
        text: The file.
        name: Its path from the top of the checkout.
        link: Addresses as seen from the page.
    """
    prose = markdown.blank(text, markdown.code_regions(text))
    for start, end, target in reversed(list(markdown.relative_targets(prose))):
        text = text[:start] + link(directives.resolve(name, target)) + text[end:]
    return text


@once_per_content  # Tables name the same versions on many pages.
def docstring(file: Path) -> str:
    """First line of a module's docstring; empty without one."""
    found = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8")))
    return found.splitlines()[0] if found else ""
