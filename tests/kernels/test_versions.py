"""What holds of every version: a composition that stands apart from the others of its design."""

from __future__ import annotations

import ast
import re
import statistics
from collections.abc import Iterator
from pathlib import Path

import pytest

from mla_var3.paths import kernels_dir
from mla_var3.runtime import registry

#: Lines of a version, of a block of the kit, and of half of the versions of a language with a kit.
VERSION_LINES, KIT_LINES, MEDIAN_LINES = 350, 400, 120
#: What says of a name which version it is of: ``flash_mla_v12``, ``FlashMlaV12Plan``.
NUMBERED = re.compile(r".*(?:_[vV]\d+|[a-z]V\d+)(?![a-z0-9]).*")

VERSIONS = [pytest.param(v, id=f"{v.package}-{v.name}") for v in registry.versions()]
KIT = [p for p in sorted(kernels_dir().glob("*/kit/**/*.py")) if p.name != "__init__.py"]
#: What finds a version by name, and would be seen by no contract of imports.
DYNAMIC = re.compile(r"\bimport_module\b|\b__import__\b|runtime(?:\.| import )registry\b")


def files_of(version: registry.Version) -> list[Path]:
    """Python files of a version's own package."""
    return [p for p in sorted(version.path.parent.glob("*.py")) if p.name != "__init__.py"]


def lines(paths: list[Path]) -> int:
    return sum(len(path.read_text().splitlines()) for path in paths)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_imports_no_other(version):
    packages = {other.path.parent: other.key for other in registry.versions()}
    reached = {packages.get(file.parent, version.key) for file in version.source_files()}
    assert reached == {version.key}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_imports_its_own_modules_relatively_so_that_a_copy_is_a_version(version):
    own = version.module.rpartition(".")[0]
    for file in files_of(version):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith(own)


def names_in(file: Path) -> Iterator[str]:
    """Names that a file defines: of classes, functions, parameters and whatever it assigns."""
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.Name(ctx=ast.Store()):
                yield node.id
            case ast.arg():
                yield node.arg


@pytest.mark.parametrize("version", VERSIONS)
def test_no_name_says_which_version_it_is_of(version):
    for file in files_of(version):
        assert not [name for name in names_in(file) if NUMBERED.fullmatch(name)]
    stages = version.plan_class().tiling_types
    assert not [stage for stage in stages if NUMBERED.fullmatch(stage)]


@pytest.mark.parametrize("path", KIT, ids=lambda path: path.stem)
def test_the_kit_names_no_version(path):
    assert not [name for name in names_in(path) if NUMBERED.fullmatch(name)]
    tree = ast.parse(path.read_text())
    nodes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    told = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, nodes)]
    assert not [text for text in told if re.search(r"\bv\d+\b", text)]


def test_no_kernel_finds_a_version_by_its_name():
    ours = [version for version in registry.versions() if version.package != "library"]
    files = {*KIT, *(file for version in ours for file in files_of(version))}
    assert not [file for file in sorted(files) if DYNAMIC.search(file.read_text())]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_version_is_short(version):
    assert lines(files_of(version)) <= VERSION_LINES


def test_half_of_the_versions_of_a_language_with_a_kit_are_compositions():
    for package in {path.parents[1].name for path in KIT}:
        sizes = [lines(files_of(v)) for v in registry.versions() if v.package == package]
        assert statistics.median(sizes) < MEDIAN_LINES


@pytest.mark.parametrize("path", KIT, ids=lambda path: path.stem)
def test_a_block_of_the_kit_is_short_and_stands_below_all_designs(path):
    assert lines([path]) < KIT_LINES
    kits = {path.parent for path in KIT}
    assert {file.parent for file in registry.reached([path])} <= kits


@pytest.mark.parametrize("path", KIT, ids=lambda path: path.stem)
def test_no_method_of_the_kit_that_is_traced_calls_super(path):
    """The DSL rewrites ``super()`` to ``super(self.__class__, self)``: a subclass calls itself."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef) and any(
            "cute." in ast.unparse(decorator) for decorator in node.decorator_list
        ):
            called = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
            assert "super" not in called, node.name
