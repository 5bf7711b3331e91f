"""Finds in a kernel's source the variable that an expression is assigned to, for reports.

The typed IR keeps few of these names.
"""

from __future__ import annotations

import ast
import functools
import linecache
from typing import Any

#: Line and column at which an expression starts and ends.
_Span = tuple[int, int, int, int]


@functools.lru_cache(maxsize=64)
def _assigned(text: str) -> dict[_Span, str]:
    """Returns the variable that each expression of a source file is assigned to."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # an IPython cell, say
        return {}
    found: dict[_Span, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name, value = node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            name, value = node.target.id, node.value
        else:
            continue
        end_line, end_col = value.end_lineno or value.lineno, value.end_col_offset or 0
        found[value.lineno, value.col_offset, end_line, end_col] = name
    return found


def assigned_name(loc: Any) -> str | None:
    """Returns the variable to which the expression at a location is assigned, if it is."""
    if not loc.filename:
        return None
    text = "".join(linecache.getlines(loc.filename))
    last = loc.last_line or loc.line
    return _assigned(text).get((loc.line, loc.col, last, loc.end_col or 0))
