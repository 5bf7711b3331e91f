"""The variable that an expression is assigned to, by where the expression stands."""

from __future__ import annotations

import linecache
from types import SimpleNamespace

import pytest

from mla_var3.interpreter.names import assigned_name

SOURCE = """\
a = f(1)
long = f(
    2,
)
b: int = f(3)
c: int
first, second = f(4)
one = two = f(5)
x.field = f(6)
d = e = (f(7) +
         f(8))
f(9)
"""


def name_at(text: str, filename: str = "<names>", source: str = SOURCE) -> str | None:
    """The name at an expression of the source, by its text."""
    lines = source.splitlines(keepends=True)
    linecache.cache[filename] = (len(source), None, lines, filename)
    try:
        start = source.index(text)
        before, until = source[:start], source[: start + len(text)]
        loc = SimpleNamespace(
            filename=filename,
            line=before.count("\n") + 1, col=start - (before.rfind("\n") + 1),
            last_line=until.count("\n") + 1, end_col=len(until) - (until.rfind("\n") + 1),
        )  # fmt: skip
        if loc.last_line == loc.line:
            loc.last_line = None  # As the front end leaves it.
        return assigned_name(loc)
    finally:
        del linecache.cache[filename]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("f(1)", "a"),
        ("f(\n    2,\n)", "long"),
        ("f(3)", "b"),
        ("f(4)", None),
        ("f(5)", "one"),
        ("f(6)", None),
        ("f(7) +\n         f(8)", "d"),
        ("f(8)", None),
        ("f(9)", None),
        ("2", None),
    ],
)
def test_an_expression_has_the_name_that_it_is_assigned_to(text: str, name: str | None) -> None:
    assert name_at(text) == name


def test_what_is_no_source_names_nothing() -> None:
    assert name_at("f(1)", source="a = f(1)\n%magic\n") is None
    assert assigned_name(SimpleNamespace(filename=None, line=1, col=4)) is None
    assert assigned_name(
        SimpleNamespace(filename="/nowhere.py", line=1, col=4, last_line=None, end_col=None)
    ) is None  # fmt: skip
