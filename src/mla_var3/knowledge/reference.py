"""Writes the reference tables of the pages in docs/contributing from the code.

Generated parts stand between a line ``[//]: # (begin NAME)`` and a line ``[//]: # (end NAME)``.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge import metrics
from mla_var3.knowledge.analysis import analyses
from mla_var3.knowledge.checks import CHECKS
from mla_var3.knowledge.directives import DIRECTIVES
from mla_var3.paths import write_atomic
from mla_var3.tables import cell, table

FOLDER = Path("docs", "contributing")


def checks_text() -> str:
    """A heading per check, which is its anchor, with what it demands."""
    parts = []
    for check in CHECKS:
        doc = inspect.cleandoc(type(check).__doc__ or "")
        mark = "" if check.severity == "error" else "\n\nA finding is a warning."
        parts.append(f"## {check.id}\n\n{doc}{mark}")
    return "\n\n".join(parts)


def metrics_text() -> str:
    """The metrics catalogue as a table."""
    rows = [
        [f"`{m.name}`", m.unit or m.type, "stage" if m.per_stage else "run", m.origin,
         m.better or "", f"`{m.source}`", cell(m.description)]
        for m in metrics.catalogue().values()
    ]  # fmt: skip
    return table(["Metric", "Unit", "Of a", "Origin", "Better", "In the record", "Meaning"], rows)


def directives_text() -> str:
    """The directives as a table."""
    rows = [[f"`{d.usage}`", cell(d.description)] for d in DIRECTIVES.values()]
    return table(["Directive", "Becomes"], rows)


def figures_text() -> str:
    """The computed figures of the directive ``analysis`` as a table."""
    rows = [
        [f"`analysis {workload} {f.usage}`", cell(f.description)]
        for workload, found in analyses().items()
        for f in found.FIGURES.values()
    ]
    return table(["Figure", "Becomes"], rows)


#: The parts of each page, by its file in ``FOLDER``.
PAGES: dict[str, dict[str, Callable[[], str]]] = {
    "knowledge.md": {"directives": directives_text, "figures": figures_text},
    "metrics.md": {"metrics": metrics_text},
    "checks.md": {"checks": checks_text},
}


def updated(page: str, text: str) -> str:
    """``text`` of a page of ``PAGES`` with every generated part renewed.

    Raises:
        KnowledgeError: A part's marks are missing.
    """
    for name, make in PAGES[page].items():
        begin, end = f"[//]: # (begin {name})", f"[//]: # (end {name})"
        pattern = re.compile(rf"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        count = len(pattern.findall(text))
        if count != 1:
            where = FOLDER / page
            raise KnowledgeError(f"{where} must hold the marks of part {name!r} once, not {count}")
        head, _, rest = text.partition(begin)
        text = f"{head}{begin}\n\n{make()}\n\n{end}{rest.partition(end)[2]}"
    return text


def reference(root: Path, *, check: bool) -> bool:
    """Renew the generated parts of the pages, or only look whether they are fresh.

    Args:
        root: Top of the checkout.
        check: Change nothing.

    Returns:
        Whether all were fresh.

    Raises:
        KnowledgeError: A page is missing or lacks a mark.
    """
    fresh = True
    for page in PAGES:
        path = root / FOLDER / page
        try:
            text = path.read_text(encoding="utf-8")
        except OSError as error:
            raise KnowledgeError(f"cannot read {FOLDER / page}: {error.strerror}") from error
        renewed = updated(page, text)
        fresh &= renewed == text
        if renewed != text and not check:
            write_atomic(path, renewed)
    return fresh
