"""No module of the generators needs itself, not for a type either.

import-linter holds the rooms and leaves out what only type checkers import; this does not.
"""

from __future__ import annotations

import ast
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from tests.generators.checking import ROOT


def modules_of(root: Path) -> dict[str, Path]:
    """Files of the generators by the name that imports them."""
    found = {}
    for path in sorted((root / "generators").rglob("*.py")):
        parts = path.relative_to(root).with_suffix("").parts
        found[".".join(parts).removesuffix(".__init__")] = path
    return found


def imports(path: Path, modules: dict[str, Path]) -> set[str]:
    """Modules among ``modules`` that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = (f"{node.module}.{alias.name}" for alias in node.names)
            found |= {name if name in modules else node.module for name in names}
    return found & modules.keys()


def in_order(root: Path) -> list[str]:
    modules = modules_of(root)
    graph = {name: imports(path, modules) for name, path in modules.items()}
    return list(TopologicalSorter(graph).static_order())


def test_no_module_needs_itself():
    order = in_order(ROOT)
    assert len(order) > 60
    place = {name: order.index(name) for name in order}
    assert place["generators.model.run"] < place["generators.model.site"]
    assert place["generators.model.site"] < place["generators.families"]


def test_a_circle_of_types_is_found(tmp_path):
    folder = tmp_path / "generators" / "model"
    folder.mkdir(parents=True)
    (folder / "run.py").write_text("if TYPE_CHECKING:\n    from generators.model import site\n")
    (folder / "site.py").write_text("def f():\n    from generators.model.run import Run\n")
    with pytest.raises(CycleError):
        in_order(tmp_path)
