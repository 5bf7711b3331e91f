"""Names that may stand in some rooms only; what imports what is import-linter's (nox -s lint)."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import mla_var3

ROOT = Path(mla_var3.__file__).parent
#: Rooms that may import a package, by package.
ALLOWED = {
    "cuda.tile": ("languages/cutile", "interpreter"),
    "cutlass": ("languages/cute", "emulator", "examples"),
}
#: cuTile's words, which nothing but its own rooms may know.
WORDS = ("num_worker_warps", "num_ctas", "tileiras")
#: Where a word of cuTile's means another thing of the same name.
NAMESAKES = {"num_ctas": ("emulator/triton.py",)}


def sources() -> list[Path]:
    """Python files of the package; the kernels have rules of their own."""
    return [p for p in ROOT.rglob("*.py") if not p.is_relative_to(ROOT / "kernel")]


def imported(path: Path) -> set[str]:
    """Modules that a file imports, wherever in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def inside(path: Path, rooms: tuple[str, ...]) -> bool:
    return any(path.is_relative_to(ROOT / room) for room in rooms)


@pytest.mark.parametrize("package", ALLOWED)
def test_a_languages_package_is_imported_in_its_rooms_alone(package):
    places = {
        path.relative_to(ROOT).as_posix()
        for path in sources()
        if any(name == package or name.startswith(f"{package}.") for name in imported(path))
    }
    assert places, f"nothing imports {package}: the name has changed"
    assert {p for p in places if not inside(ROOT / p, ALLOWED[package])} == set()


@pytest.mark.parametrize("word", WORDS)
def test_cutiles_words_stand_in_its_rooms_alone(word):
    places = {p for p in sources() if word in p.read_text(encoding="utf-8")}
    outside = {
        p.relative_to(ROOT).as_posix()
        for p in places
        if not inside(p, (*ALLOWED["cuda.tile"], *NAMESAKES.get(word, ())))
    }
    assert outside == set()


@pytest.mark.parametrize("word", WORDS)
def test_generators_ask_the_language_for_cutiles_words(word):
    pages = sorted((Path(__file__).parents[1] / "generators").rglob("*.py"))
    assert pages
    assert [p.name for p in pages if word in p.read_text(encoding="utf-8")] == []
