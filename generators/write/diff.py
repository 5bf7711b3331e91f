"""Renders a side-by-side HTML diff of two versions, with devlog remarks before the lines.

``mla_var3.knowledge.changes`` compares the files.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from generators.model.site import Site
from generators.write import effects
from generators.write.devlogs import Story
from generators.write.remarks import Remark, remarks
from generators.write.text import sections
from mla_var3.knowledge.changes import Comparison, FileChange, Hunk, Line, Place, Row, compare
from mla_var3.knowledge.evidence import Link
from mla_var3.runtime.registry import Version

#: Remarks by the line that they explain.
Remarks = Mapping[Place, Sequence[Remark]]
#: What each hunk did to the compiled code, as HTML: a list of sentences per hunk.
Effects = Sequence[Sequence[str]]


def section(site: Site, before: Version, after: Version, story: Story | None, link: Link) -> str:
    """What changed between two versions.

    Args:
        site: What generators read.
        before: The earlier version.
        after: The later version, of the same design.
        story: The devlog's entry on the later version.
        link: Addresses as seen from the page.

    Raises:
        KnowledgeError: The entry explains what did not change.
    """
    changes = compare(after.path.parents[1], before.version, after.version)
    said = remarks(story.parts, changes) if story else {}
    if not changes.files:
        return "The sources are the same."
    pairs = effects.built(site, before, after)
    return sections(
        effects.summary(changes, pairs, link),
        _one_sided("New", (file.after for file in changes.files if file.before is None)),
        _one_sided("Gone", (file.before for file in changes.files if file.after is None)),
        tables(changes, said, effects.of_hunks(changes, pairs)),
    )


def _one_sided(word: str, paths: Iterable[str | None]) -> str:
    names = ", ".join(f"`{path}`" for path in paths)
    return f"{word}: {names}." if names else ""


def tables(changes: Comparison, remarks: Remarks, effects: Effects) -> str:
    """All files that differ, side by side; empty when none does.

    Args:
        changes: What changed.
        remarks: What the devlog says about changed lines.
        effects: What became of the code that was compiled from each hunk.
    """
    parts, number = [], 0
    for file in changes.files:
        bodies = []
        for hunk in file.hunks:
            rows = "".join(_rows(hunk, changes.moved, remarks)) + _effect(effects[number])
            number += 1
            bodies.append(f"{_title(number, len(changes.hunks))}{rows}</tbody>")
        parts.append(_table(changes, file, "".join(bodies)))
    return "\n\n".join(parts)


def change_id(number: int) -> str:
    """Anchor of a hunk, counted from 1 over all files."""
    return f"change-{number}"


def _title(number: int, of: int) -> str:
    said = f'<th scope="rowgroup" colspan="4">Change {number} of {of}</th>'
    return f'<tbody id="{change_id(number)}"><tr>{said}</tr>'


def _table(changes: Comparison, file: FileChange, bodies: str) -> str:
    sides = (
        (changes.before, file.before, "not there yet"),
        (changes.after, file.after, "gone"),
    )
    head = "".join(
        f'<th scope="col" colspan="2">{html.escape(f"{side} {name}" if name else missing)}</th>'
        for side, name, missing in sides
    )
    return (
        '<div class="diff" tabindex="0" role="region" aria-label="Changes, side by side">'
        f'<table class="diff__table"><thead><tr>{head}</tr></thead>{bodies}</table></div>'
    )


def _rows(hunk: Hunk, moved: Mapping[Place, Line], remarks: Remarks) -> Iterator[str]:
    """Rows of a hunk, code that moved folded into one row each, remarks before their lines."""
    rows, at = hunk.rows, 0
    while at < len(rows):
        end = at + 1
        while rows[at].kind == "moved" and end < len(rows) and rows[end].kind == "moved":
            end += 1
        for line in (line for row in rows[at:end] for line in row.lines):
            yield from map(_remark, remarks.get(line.place, ()))
        yield _moved(rows[at:end], moved) if rows[at].kind == "moved" else _row(rows[at])
        at = end


def _remark(remark: Remark) -> str:
    """What the devlog says about the line below; it leads back to the words."""
    source = f'<a href="#devlog">Devlog, {html.escape(remark.section)}</a>'
    at = f' id="{remark.anchor}"' if remark.anchor else ""
    return _whole_row("diff__remark", f"{source}: {remark.html}", at)


def _effect(sentences: Sequence[str]) -> str:
    if not sentences:
        return ""
    listed = "".join(f"<li>{sentence}</li>" for sentence in sentences)
    return _whole_row("diff__effect", f"Compiled from the changed lines:<ul>{listed}</ul>")


def _whole_row(kind: str, content: str, attributes: str = "") -> str:
    cell = f'<td class="diff__words" colspan="4"><div>{content}</div></td>'
    return f'<tr class="{kind}"{attributes}>{cell}</tr>'


def _moved(rows: Sequence[Row], moved: Mapping[Place, Line]) -> str:
    """One row for code that stands elsewhere in the other version."""
    cells = []
    for lines, verb in (([r.old for r in rows], "to"), ([r.new for r in rows], "from")):
        there = [line for line in lines if line is not None]
        if not there:
            cells.append("<td></td><td></td>")
            continue
        others = [moved[line.place] for line in there]
        said = f"{len(there)} lines moved {verb} {others[0].file}, line {others[0].number}"
        cells.append(f"<td>{there[0].number}</td><td>{html.escape(said)}</td>")
    return f'<tr class="diff__moved">{"".join(cells)}</tr>'


def _row(row: Row) -> str:
    return f'<tr class="diff__{row.kind}">{_cell(row.old, row, "-")}{_cell(row.new, row, "+")}</tr>'


def _cell(line: Line | None, row: Row, sign: str) -> str:
    if line is None:
        return "<td></td><td></td>"
    changed = row.kind == "changed"
    mark = (
        f'<span aria-label="{"removed" if sign == "-" else "added"}">{sign}</span> '
        if changed
        else ""
    )
    kind = (" class=diff__old" if sign == "-" else " class=diff__new") if changed else ""
    text = re.sub(r"^ +", lambda found: "&nbsp;" * len(found[0]), html.escape(line.text))
    return f"<td>{line.number}</td><td{kind}><code>{mark}{text}</code></td>"
