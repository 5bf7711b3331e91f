"""What an object is told by: equal things alike, others apart, and what shows nothing refused."""

from __future__ import annotations

import functools
import math
import sys
from abc import ABCMeta
from collections import namedtuple
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any

import pytest
import torch

from mla_var3.emulator.identity import Identity, UntoldError, installed
from tests.emulator import events


def told(value: Any) -> Any:
    return Identity().of(value)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a: int, b: int = 0) -> None:
        self.a, self.b = a, b


class Held:
    def __init__(self, n: int) -> None:
        self.n = n

    def add(self, x: int) -> int:
        return x + self.n

    def sub(self, x: int) -> int:
        return x - self.n


def one(x: int) -> int:
    return x + 1


def two(x: int) -> int:
    return x + 2


def class_of(value: Any) -> type:
    """A class that is not found by its name, with one attribute."""
    return type("Made", (), {"value": value})


def met_again(which: int) -> list[Any]:
    """Two things alike, and one of them a second time."""
    pair = [Held(1), Held(1)]
    return [*pair, pair[which]]


POINT, LINE = namedtuple("Point", "x y"), namedtuple("Line", "x y")
#: Pairs of things that shape other code, and what makes them again.
PAIRS: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: functools.partial(one, 1), lambda: functools.partial(one, 2)),
    (lambda: functools.partial(one, 1), lambda: functools.partial(two, 1)),
    (lambda: functools.partial(one, x=1), lambda: functools.partial(one, x=2)),
    (lambda: Held(1).add, lambda: Held(1).sub),
    (lambda: Held(1).add, lambda: Held(2).add),
    (lambda: staticmethod(one), lambda: staticmethod(two)),
    (lambda: staticmethod(one), lambda: classmethod(one)),
    (lambda: property(one), lambda: property(two)),
    (lambda: property(one), lambda: property(one, two)),
    (lambda: property(one), lambda: property(None, one)),
    (lambda: math.sin, lambda: math.cos),
    (lambda: str.lower, lambda: str.upper),
    (lambda: one.__code__, lambda: two.__code__),
    (lambda: math, lambda: sys),
    (lambda: MappingProxyType({"a": 1}), lambda: MappingProxyType({"a": 2})),
    (lambda: torch.float16, lambda: torch.bfloat16),
    (lambda: torch.device("cpu"), lambda: torch.device("meta")),
    (lambda: Slots(1), lambda: Slots(2)),
    (lambda: Slots(1, 2), lambda: Slots(2, 1)),
    (lambda: class_of(1), lambda: class_of(2)),
    (lambda: class_of(property(one)), lambda: class_of(property(two))),
    (lambda: POINT(1, 2), lambda: POINT(1, 3)),
    (lambda: ABCMeta("Made", (), {"n": 1}), lambda: ABCMeta("Made", (), {"n": 2})),
    (lambda: [1, 2], lambda: [2, 1]),
    (lambda: {"a": 1}, lambda: {"b": 1}),
    (lambda: {1, 2}, lambda: {1, 3}),
    (lambda: met_again(0), lambda: met_again(1)),
    (lambda: 1, lambda: 1.0),
    (lambda: True, lambda: 1),
    (lambda: (1, (2,)), lambda: (1, 2)),
]


@pytest.mark.parametrize(("make", "other"), PAIRS)
def test_equal_things_are_told_alike_and_others_apart(
    make: Callable[[], Any], other: Callable[[], Any]
) -> None:
    assert told(make()) == told(make()) is not None
    assert told(other()) == told(other()) is not None
    assert told(make()) != told(other())


def test_a_module_is_told_by_what_of_it_is_read() -> None:
    ours = ModuleType("made_for_this")
    ours.__file__ = __file__
    vars(ours).update(used=1, unused=2)
    sys.modules["made_for_this"] = ours
    try:
        before = Identity()._module(ours, ("used", "missing"))
        vars(ours)["unused"] = 3
        assert Identity()._module(ours, ("used", "missing")) == before
        vars(ours)["used"] = 3
        assert Identity()._module(ours, ("used", "missing")) != before
    finally:
        del sys.modules["made_for_this"]
    assert Identity()._module(math, ("pi",)) == ["module", "math"]


def test_a_named_tuple_and_slots_are_told_by_their_names() -> None:
    held = told(POINT(1, 2))
    assert held == told(POINT(1, 2))
    assert told(type("Made", (), {"__slots__": ("a",)})) == told(
        type("Made", (), {"__slots__": ("a",)})
    )


def test_what_shows_no_settings_is_refused() -> None:
    with pytest.raises(UntoldError, match="shows no settings"):
        told(iter([1]))


def test_the_sources_of_a_module_and_of_what_it_imports_count() -> None:
    ours = ModuleType("made_for_this")
    ours.__file__ = __file__
    vars(ours)["imported"] = events
    seen = Identity()
    seen._module(ours, ())
    assert {file.name for file in seen.files} >= {Path(__file__).name, "events.py"}


def test_a_wheel_is_known_by_what_lies_beside_it(tmp_path: Path) -> None:
    file = tmp_path / "site" / "package" / "deep" / "module.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    assert not installed(str(file))
    other = tmp_path / "wheels" / "package" / "module.py"
    other.parent.mkdir(parents=True)
    (tmp_path / "wheels" / "package-1.dist-info").mkdir()
    assert installed(str(other))


def test_the_source_of_a_class_that_is_not_found_by_its_name_counts() -> None:
    """Not that of an installed package, nor of a module without a file."""
    without = ModuleType("made_without_a_file")
    sys.modules["made_without_a_file"] = without
    try:
        for module, files in (
            (__name__, {Path(__file__).name}), ("torch", set()), ("made_without_a_file", set()),
            ("there_is_no_such_module", set()),
        ):  # fmt: skip
            made = type("Made", (), {"__module__": module, "value": 3})
            seen = Identity()
            assert seen.of(made)
            assert {file.name for file in seen.files} == files
    finally:
        del sys.modules["made_without_a_file"]
