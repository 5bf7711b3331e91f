"""Runs every lint check over knowledge pages, devlogs and records, and returns the findings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from mla_var3.errors import KnowledgeError
from mla_var3.knowledge.checks import CHECKS, Check, Finding
from mla_var3.knowledge.pages import Catalogue
from mla_var3.paths import relative


def lint(catalogue: Catalogue, checks: Iterable[Check] = CHECKS) -> list[Finding]:
    """All findings, by file and line.

    Args:
        catalogue: What to look at.
        checks: The checks to run.
    """
    return sorted({finding for check in checks for finding in check.run(catalogue)})


def only(findings: Iterable[Finding], catalogue: Catalogue, paths: Iterable[Path]) -> list[Finding]:
    """The findings in ``paths`` (files or folders).

    Raises:
        KnowledgeError: A path does not exist or lies outside the checkout.
    """
    names = []
    for path in paths:
        place = path.resolve()
        if not place.exists():
            raise KnowledgeError(f"{path} does not exist")
        name = relative(place, catalogue.root)
        if Path(name).is_absolute():
            raise KnowledgeError(f"{path} lies outside {catalogue.root}")
        names.append(name)
    return [
        finding
        for finding in findings
        if any(n in (".", finding.file) or finding.file.startswith(f"{n}/") for n in names)
    ]
