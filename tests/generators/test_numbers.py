"""Nobody typed a number with a unit into what makes the pages."""

from __future__ import annotations

import ast
import re

import pytest

from generators.pages import machine
from mla_var3.knowledge.markdown import NUMBER_WITH_UNIT
from tests.generators.checking import ROOT

MODULES = sorted((ROOT / "generators").glob("*.py"))


def typed(text: str) -> list[str]:
    return [" ".join(match.group().split()) for match in NUMBER_WITH_UNIT.finditer(text)]


def strings(source: str):
    """String constants of a module that are not documentation."""
    tree = ast.parse(source)
    documentation = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
        and node.body and isinstance(node.body[0], ast.Expr)
    }  # fmt: skip
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
    ]


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_modules(file):
    assert [n for text in strings(file.read_text()) for n in typed(text)] == []


@pytest.mark.parametrize("name", machine.skill_names())
def test_templates(name):
    text = (machine.TEMPLATES / f"{name}.md").read_text()
    assert typed(re.sub(r"\{[{%].*?[%}]\}", "", text)) == []


def test_a_typed_number_would_be_seen():
    assert typed('x = "takes 75.5 us"')
    assert strings('"""doc 5 us"""\nx = f"about {y} or 53 us"\n') == ["about ", " or 53 us"]
