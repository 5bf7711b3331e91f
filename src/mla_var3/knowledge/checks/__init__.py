"""List ``CHECKS`` of all lint checks of the knowledge base; each is a class with an id.

A check's id is the anchor of its documentation.
"""

from __future__ import annotations

from mla_var3.knowledge.checks import claims, files, hostile, lessons, sections, text
from mla_var3.knowledge.checks.base import Check, DocumentCheck, FaultCheck, Finding, Severity


def _checks_of(module: object) -> list[Check]:
    return [
        value()
        for value in vars(module).values()
        if isinstance(value, type)
        and issubclass(value, Check)
        and value.__module__ == getattr(module, "__name__", None)
    ]


#: Every check, in the order of the documentation.
CHECKS: tuple[Check, ...] = tuple(
    check
    for module in (files, sections, text, claims, lessons, hostile)
    for check in _checks_of(module)
)

__all__ = ["CHECKS", "Check", "DocumentCheck", "FaultCheck", "Finding", "Severity"]
