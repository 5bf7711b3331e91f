"""What an object is told by: equal things alike, others apart, and what shows nothing refused."""

from __future__ import annotations

import functools
import hashlib
import json
import math
import sys
from abc import ABCMeta
from collections import namedtuple
from collections.abc import Callable
from enum import Enum
from importlib.metadata import distributions
from pathlib import Path
from types import FunctionType, MappingProxyType, ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator import identity
from mla_var3.emulator.identity import Identity, UntoldError, installed, ours
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


class Mode(Enum):
    ONE, TWO = 1, 2


class Other(Enum):
    ONE = 1


class Both(Slots):
    """Settings in slots, and in a dict besides."""

    def __init__(self, a: int, c: int) -> None:
        self.a, self.c = a, c


class OneSlot:
    __slots__ = "a"  # A text is one slot.

    def __init__(self, a: int) -> None:
        self.a = a


def with_default(n: int) -> Callable[..., int]:
    def inner(x: int = n) -> int:
        return x

    return inner


def with_named_default(n: int) -> Callable[..., int]:
    def inner(*, x: int = n) -> int:
        return x

    return inner


def closed(n: int, *, empty: bool = False) -> Callable[..., int]:
    def inner() -> int:
        return n

    if empty:
        del n
    return inner


def written(body: str, **names: Any) -> Callable[..., Any]:
    """A function of no file, as dataclasses make them."""
    exec(f"def made(x):\n    return {body}\n", space := dict(names))
    return space["made"]


def called(name: str) -> Callable[..., int]:
    """A function that the DSL was told a name of."""
    made = with_default(1)
    vars(made)["_cute_dsl_name_options"] = name
    return made


def at_line(line: int) -> Callable[..., int]:
    """A function that begins at a line of this file."""
    return FunctionType(one.__code__.replace(co_firstlineno=line), globals())


def kind(name: str, module: str = __name__, **held: Any) -> Any:
    """An object of a class of that name, with settings."""
    made = type(name, (), {"__module__": module})()
    vars(made).update(held)
    return made


def keyed(key: Any, name: str = "Keyed", **held: Any) -> Any:
    """An object that says itself what it is told by, by a new list each time."""
    made = type(name, (), {"__cache_key__": property(lambda _: [key])})()
    vars(made).update(held)
    return made


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
    (lambda: Mode.ONE, lambda: Mode.TWO),
    (lambda: Mode.ONE, lambda: Other.ONE),
    (lambda: Both(1, 2), lambda: Both(1, 3)),
    (lambda: Both(1, 2), lambda: Both(2, 2)),
    (lambda: OneSlot(1), lambda: OneSlot(2)),
    (lambda: with_default(1), lambda: with_default(2)),
    (lambda: with_named_default(1), lambda: with_named_default(2)),
    (lambda: closed(1), lambda: closed(2)),
    (lambda: closed(1), lambda: closed(1, empty=True)),
    (lambda: written("x + 1"), lambda: written("x - 1")),
    (lambda: written("x + a", a=1), lambda: written("x + b", b=1)),
    (lambda: written("x + a", a=1), lambda: written("x + a", a=2)),
    (lambda: written("x + a", a=None), lambda: written("x + a", a=2)),
    (lambda: written("[a for _ in x]", a=1), lambda: written("[a for _ in x]", a=2)),
    (lambda: called("a"), lambda: called("b")),
    (lambda: at_line(7), lambda: at_line(8)),
    (lambda: kind("device", n=1), lambda: kind("device", n=2)),
    (lambda: kind("dtype", n=1), lambda: kind("other", n=1)),
    (lambda: keyed(1), lambda: keyed(2)),
    (lambda: [keyed(1), keyed(2)], lambda: [keyed(1), keyed(3)]),
    (lambda: keyed(1, "_FakeTensor", n=1), lambda: keyed(1, "_FakeTensor", n=2)),
    (lambda: frozenset((0, 8)), lambda: frozenset((0, 16))),
    (lambda: {"a": 1}, lambda: {"a": 2}),
    (lambda: torch.Size((1, 2)), lambda: (1, 2)),
    (lambda: one, lambda: two),
    (lambda: Path, lambda: Held),
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


#: What is told alike, though it is not the same.
ALIKE: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
    (lambda: {0, 8}, lambda: {8, 0}),
    (lambda: frozenset((0, 8)), lambda: frozenset((8, 0))),
    (lambda: keyed(1, n=1), lambda: keyed(1, n=2)),
    (lambda: type("Made", (), {"__doc__": "a"}), lambda: type("Made", (), {"__doc__": "b"})),
    (lambda: type("Made", (), {"_abc_x": 1}), lambda: type("Made", (), {"_abc_x": 2})),
    (lambda: kind("Driver", "cuda.bindings.driver", n=1),
     lambda: kind("Driver", "cuda.bindings.driver", n=2)),
    (lambda: kind("Made", "_cython_3", n=1), lambda: kind("Made", "_cython_3", n=2)),
]  # fmt: skip


@pytest.mark.parametrize(("make", "other"), ALIKE)
def test_what_shapes_nothing_is_told_alike(
    make: Callable[[], Any], other: Callable[[], Any]
) -> None:
    assert told(make()) == told(other()) is not None


def test_what_has_a_version_is_told_by_its_name() -> None:
    assert told(Path) == ["class", "pathlib", "Path"]
    assert told(json) == ["module", "json"]
    assert told(math.sin) == ["builtin", "math", "sin"]
    assert told(kind("Handle", "cuda.bindings.driver")) == ["driver", "Handle"]
    assert told(torch.float16) == ["dtype", "torch.float16"]
    assert told(np.float32)[:3] == ["class", "numpy", "float32"]
    assert told(json.dumps)[:3] == ["function", "json", "dumps"]


@pytest.mark.parametrize(
    ("name", "file", "wanted"),
    [
        ("made", __file__, True),
        ("made", None, False),
        ("made", "/nowhere/made.so", False),
        ("made", json.__file__, False),
        ("made", np.__file__, False),
        ("mla_var3.emulator.made", __file__, False),
        ("mla_var3.kernel.made", __file__, True),
        ("mla_var3.languages.cute.made", __file__, True),
    ],
)
def test_ours_is_what_may_change_while_its_version_stays(
    name: str, file: str | None, wanted: bool
) -> None:
    module = ModuleType(name)
    if file is not None:
        module.__file__ = file
    assert ours(module) is wanted


def test_what_was_installed_is_all_told() -> None:
    found = identity.versions()
    assert found[0] == sys.version
    names = {one.metadata["Name"].lower().replace("-", "_") for one in distributions()}
    told_of = {entry.partition("-")[0].lower() for entry in found[1:]}
    assert {"numpy", "torch", "pytest"} <= told_of <= names | told_of
    assert found[1:] == sorted(found[1:])


def test_a_digest_is_that_of_the_content(tmp_path: Path) -> None:
    for content in (b"", b"a", b"b"):
        file = tmp_path / f"of {len(content)} {content!r}"
        file.write_bytes(content)
        assert identity.digest(file) == hashlib.sha256(content).hexdigest()


@pytest.mark.parametrize(
    "make",
    [
        lambda: kind("Made", "somewhere._mlir.ir", n=1),
        lambda: torch.iinfo(torch.int32),
        lambda: object(),
        lambda: kind("Made", module="made", n=object()),
        lambda: written("open(x)"),
        lambda: written("[time() for _ in x]"),
    ],
)
def test_what_may_hide_something_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(UntoldError):
        told(make())


@pytest.mark.parametrize("statement", ["X = 1", "del X"])
@pytest.mark.parametrize("deep", [False, True])
def test_a_function_that_changes_a_global_is_refused(statement: str, deep: bool) -> None:
    body = f"    global X\n    {statement}\n"
    if deep:
        body = "    def inner():\n    " + body.replace("\n    ", "\n        ")
    exec(f"def made():\n{body}", space := {})
    with pytest.raises(UntoldError, match="changes a global"):
        told(space["made"])


def test_a_source_that_is_gone_is_refused() -> None:
    module = ModuleType("made_of_nothing")
    module.__file__ = "/nowhere/made_of_nothing.py"
    with pytest.raises(UntoldError, match=r"/nowhere/made_of_nothing\.py is no file"):
        Identity()._module(module, ())


def test_sources_are_those_of_what_a_function_may_reach(tmp_path: Path) -> None:
    """Of its module, and of what that imports by name, as a class, or as a function."""
    for name in ("first", "second", "third", "unused"):
        (tmp_path / f"{name}.py").write_text("")

    def module(name: str) -> ModuleType:
        made = ModuleType(name)
        made.__file__ = str(tmp_path / f"{name}.py")
        sys.modules[name] = made
        return made

    first, second, third, unused = map(module, ("first", "second", "third", "unused"))
    first.second = second
    second.Made = type("Made", (), {"__module__": "third"})
    third.back = first  # In a circle.
    unused.none = kind("Made", "first")
    main = sys.modules["__main__"]
    try:
        first.main = main
        seen = Identity()
        seen._module(first, ())
        assert {file.name for file in seen.files} == {"first.py", "second.py", "third.py"}
    finally:
        for name in ("first", "second", "third", "unused"):
            del sys.modules[name]


def test_holders_are_the_objects_with_settings_in_order() -> None:
    held = [Held(1), Slots(2), Both(3, 4)]
    seen = Identity()
    seen.of([*held, 5, torch.float16, held[0]])
    assert [id(one) for one in seen.holders] == [id(one) for one in held]


def test_a_slot_that_was_never_set_is_none() -> None:
    made = Slots(1)
    del made.b
    assert identity.settings(made) == {"a": 1}
    assert identity.settings(Both(1, 2)) == {"a": 1, "c": 2}
    assert identity.settings(OneSlot(3)) == {"a": 3}
    mixed = type("Mixed", (), {"__slots__": ("__dict__", "__weakref__", "a")})
    assert identity._slots(mixed) == ["a"]


def test_a_name_is_looked_up_through_its_parts() -> None:
    assert identity.resolved("pathlib", "Path.read_text") is Path.read_text
    assert identity.resolved("pathlib", "Path.nothing.more") is None
    assert identity.resolved("there_is_no_such_module", "Path") is None


CHANGES: list[tuple[Callable[[], Any], Callable[[Any], object]]] = [
    (lambda: [1, [2]], lambda x: x.append(3)),
    (lambda: [1, [2]], lambda x: x[1].append(3)),
    (lambda: [1, 2], lambda x: x.__setitem__(0, 3)),
    (lambda: [1, 2], lambda x: x.pop()),
    (lambda: {"a": 1}, lambda x: x.update(b=1)),
    (lambda: {"a": 1, "b": 2}, lambda x: x.update(b=3)),
    (lambda: {"a": {"b": 1}}, lambda x: x["a"].clear()),
    (lambda: {1, 2}, lambda x: x.add(3)),
    (lambda: ({1, 2},), lambda x: x[0].discard(1)),
    (lambda: Held([1]), lambda x: x.n.append(2)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "change"), CHANGES)
def test_what_was_walked_and_has_changed_since_is_known(
    make: Callable[[], Any], change: Callable[[Any], object]
) -> None:
    value, seen = make(), Identity()
    seen.of(value)
    assert not seen.changed_meanwhile()
    change(value)
    assert seen.changed_meanwhile()


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-2, 2), st.sampled_from(["", "a", 1.0, b"a"])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.integers(0, 3), inner, max_size=3),
    ),
    max_leaves=6,
)


@given(VALUES, VALUES)
def test_trees_are_told_alike_where_they_are_written_alike(a: Any, b: Any) -> None:
    """Of trees that share only what Python shares wherever it is written so."""
    a, b = (eval(repr(value)) for value in (a, b))
    assert (told(a) == told(b)) is (repr(a) == repr(b))
