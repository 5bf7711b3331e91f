"""Writes the start of a knowledge pattern page from a feature that a CUTLASS example shows."""

from __future__ import annotations

import datetime
import json
import re
from pathlib import Path

from mla_var3.errors import KnowledgeError, UnknownNameError
from mla_var3.examples.model import PATTERN_TITLES, Example, Found
from mla_var3.examples.show import compiled_lines
from mla_var3.paths import write_atomic

FOLDER = "knowledge/languages/cute-dsl/optimizations"
#: Sections of a pattern page, as ``knowledge.schema`` demands them.
SECTIONS = (
    "When to apply",
    "Mechanism",
    "Affected metrics",
    "Implementation",
    "Performance evidence",
    "Generalization",
    "Pitfalls",
    "Interactions",
)


def extract(root: Path, name: str, example: Example, pattern: str, page: str) -> Path:
    """Write the beginning of a page; what only a person can say stays marked as such.

    Args:
        root: Top of the checkout.
        name: The example's id.
        example: Its facts.
        pattern: Id of an entry of its checklist.
        page: Id of the page to write.

    Returns:
        The page.

    Raises:
        UnknownNameError: The example does not show the pattern.
        KnowledgeError: The page exists, or its id is not in kebab-case.
    """
    shown: dict[str, Found] = {each.pattern: each for each in example.checklist}
    if pattern not in shown:
        raise UnknownNameError(f"pattern of {name}", pattern, list(shown))
    if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", page):
        raise KnowledgeError(f"{page!r} is not a page id: lower case words joined by hyphens")
    file = root / FOLDER / f"{page}.md"
    if file.exists():
        raise KnowledgeError(f"{FOLDER}/{page}.md exists; choose another --page")
    write_atomic(file, _page(page, name, example, shown[pattern]))
    return file


def _page(page: str, name: str, example: Example, found: Found) -> str:
    title = f"CuTe DSL: {PATTERN_TITLES[found.pattern].lower()} as in {example.title}"[:90]
    front = [
        f"id: {page}",
        f"title: {json.dumps(title)}",
        "kind: optimization",
        "scope: cute-dsl",
        "impact: medium",
        "regimes: [decode, speculative, prefill]",
        f"archs: [{example.arch}]",
        "affects: {total_us: down}",
        "triggers: []",
        "basis: external",
        "evidence:",
        "  - key: example",
        f"    external: {json.dumps(f'CUTLASS, {example.path}')}",
        f"    address: {example.address(found.lines[0] if found.lines else None)}",
        '    quoted: "TODO: the words there that carry the claim"',
        "used_by: []",
        "interacts: []",
        f"since: {datetime.date.today().isoformat()}",
    ]
    body = "\n\n".join(f"## {section}\n\n{_text(section, name, example, found)}"
                       for section in SECTIONS)  # fmt: skip
    return "---\n" + "\n".join(front) + f"\n---\n\n{body}\n"


def _text(section: str, name: str, example: Example, found: Found) -> str:
    if section == "Implementation":
        lines = "\n".join(f"- [line {line}]({example.address(line)})" for line in found.lines)
        return f"The example `{name}` shows {found.seen}.\n\n{lines}".rstrip()
    if section == "Performance evidence":
        told = "\n".join(f"- {line}" for line in compiled_lines(example))
        return f"Static facts of the example, compiled for {example.arch}:\n\n{told}".rstrip()
    return f"TODO: {_QUESTIONS.get(section, 'write this section')}"


_QUESTIONS = {
    "When to apply": "which metric of which record makes this worth trying, and when it does not?",
    "Mechanism": "why does the hardware run it faster? One thought per sentence.",
    "Affected metrics": "which metrics move, and which way?",
    "Generalization": "where else does it hold, and where not?",
    "Pitfalls": "what goes wrong when it is done carelessly, and how does it show?",
    "Interactions": "which pages strengthen, replace or exclude it?",
}
