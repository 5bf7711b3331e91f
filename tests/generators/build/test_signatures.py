"""Signatures laid out without ruff are those that ruff lays out."""

from __future__ import annotations

from pathlib import Path

import pytest
from griffe import GriffeLoader, Module, ModuleFinder

from generators.build import signatures

WIDTH = 60
LONG = "a_long_name: dict[str, tuple[int, ...]] = {}, other: int = 1"
RUFF = signatures._get_formatter()


def function(parameters: str, returned: str = "None") -> str:
    return f"def some_function_name({parameters}) -> {returned}: pass"


@pytest.mark.parametrize(
    "code",
    [
        function("first: int, second: str, third: float"),
        function(LONG),
        function(f"{LONG}, *, keyword: str | None = None, **rest: int"),
        function(f"first: int, /, {LONG}, *rest: str"),
        function("only_one_parameter: Sequence[tuple[int, str]]"),
        function("one: str = 'a, (b', other: Callable[[int, str], None] = run"),
        function("a: int, b: int", "dict[str, tuple[int, ...]] | None"),
    ],
)
def test_parameters_on_lines_of_their_own(code):
    assert signatures.laid_out(code, WIDTH) == RUFF(code, WIDTH)


@pytest.mark.parametrize(
    "code",
    [
        function("", "Callable[[int], tuple[str, dict[str, int], list[float]]]"),
        function("progress: Callable[[str, int], None] = lambda first, second: None"),
        function("a: int", "Callable[[int], tuple[str, dict[str, int], list[float], set[str]]]"),
        function("one: str = ', ', other: str = \"it's\", more: int = 0"),
        "x = [1, 2, 3]",
    ],
)
def test_what_takes_more_is_left_to_ruff(code):
    assert signatures.laid_out(code, WIDTH) is None
    assert signatures.formatted(code, WIDTH) == RUFF(code, WIDTH)


def test_kernels_are_no_part_of_the_api(monkeypatch):
    monkeypatch.setattr(ModuleFinder, "submodules", signatures._of_api)
    loader = GriffeLoader(search_paths=[str(Path(__file__).parents[2] / "src")])
    package = Module("mla_var3", filepath=loader.finder.find_package("mla_var3").path)
    found = {parts[0] for parts, _ in loader.finder.submodules(package)}
    assert "kernel" not in found
    assert {"evidence", "knowledge", "errors"} <= found
