"""Statements are found wherever Python allows one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from mla_var3 import syntax
from mla_var3.syntax import statements

NESTED = """
class A:
    def f(self):
        try:
            import a
        except E:
            import b
        else:
            import c
        finally:
            import d
        match x:
            case 1:
                import e
        for i in y:
            import f
        else:
            import g
        with z:
            if u:
                import h
            else:
                import i
        while v:
            async def j(): import k
"""
OWN = sorted((Path(__file__).parents[1] / "src" / "mla_var3" / "runtime").glob("*.py"))


@pytest.mark.parametrize("text", [NESTED, *(file.read_text() for file in OWN)])
def test_they_are_those_of_a_walk_over_everything(text):
    tree = ast.parse(text)
    found = list(statements(tree))
    walked = [node for node in ast.walk(tree) if isinstance(node, ast.stmt)]
    assert len(found) == len(walked)
    assert set(found) == set(walked)
    inside = {(outer, inner) for outer in found for inner in ast.walk(outer)}
    places = {node: place for place, node in enumerate(found)}
    assert all(places[a] <= places[b] for a, b in inside if b in places)


def test_comments_docstrings_and_layout_are_no_part_of_a_bare_source():
    text = (
        '"""Doc."""\n\n# why\n\n\ndef f(a):\n    """Doc."""\n    return (a\n        + 1)  # sum\n'
    )
    assert syntax.bare(text) == syntax.bare("def f(a): return a + 1")
    assert syntax.bare('class A:\n    """Doc."""') == syntax.bare("class A:\n    pass")
    assert syntax.bare("def f(b): return b + 1") != syntax.bare(text)
