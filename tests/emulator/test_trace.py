"""Steps of warps as they are recorded: runs that end where something is told, and what is one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.trace import Step, Trace


def run(start: int, end: int) -> Step:
    return Step("run", start, amount=end)


def test_a_run_ends_where_something_is_told_and_goes_on_behind_it() -> None:
    trace = Trace(4)
    trace.run(2, [0, 1], 3, 9)
    trace.add(2, [1], "arrive", 5, "a")
    trace.add(2, np.array([1]), "wait", 5, "b", 7, 1)
    trace.add(2, [1], "arrive", 8, "c")
    trace.add(2, [1], "arrive", 9, "outside")
    trace.add(2, [1], "arrive", 1, "before")
    steps = trace.close().steps
    assert steps == {
        (2, 0): [run(3, 9)],
        (2, 1): [
            run(3, 6), Step("arrive", 5, "a"), Step("wait", 5, "b", 7, 1), run(6, 9),
            Step("arrive", 8, "c"), Step("arrive", 9, "outside"), Step("arrive", 1, "before"),
        ],
    }  # fmt: skip


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 5), st.integers(1, 4)), max_size=6))
def test_runs_follow_each_other_per_warp(runs: list[tuple[int, int, int]]) -> None:
    """Each is whole, also one of an instruction; what is open ends with the launch."""
    trace = Trace(1)
    wanted: dict[tuple[int, int], list[Step]] = {}
    for warp, start, length in runs:
        trace.run(5, [warp], start, start + length)
        wanted.setdefault((5, warp), []).append(run(start, start + length))
    assert trace.close() is trace
    assert trace.steps == wanted
    assert trace.close().steps == wanted


def test_an_instruction_at_the_first_place_is_a_run_too() -> None:
    trace = Trace(1)
    trace.add(0, [0], "arrive", 0, "nothing is open")
    assert trace.close().steps == {(0, 0): [Step("arrive", 0, "nothing is open")]}
    trace = Trace(1)
    trace.run(0, [0], 0, 2)
    trace.add(0, [0], "arrive", 0, "a")
    assert trace.close().steps[0, 0] == [run(0, 1), Step("arrive", 0, "a"), run(1, 2)]


COPY = {"key": "k", "pc": 3, "cta": 1}


@pytest.mark.parametrize(
    ("other", "together"),
    [({}, True), ({"key": "other"}, False), ({"pc": 4}, False), ({"cta": 0}, True)],
)
def test_copies_of_one_instruction_that_follow_each_other_are_one(
    other: dict[str, object], together: bool
) -> None:
    trace = Trace(1)
    trace.add(0, [0], "arrive", 2, "before")
    trace.copy(0, 0, count=16, **COPY)  # type: ignore[arg-type]
    trace.copy(0, 0, count=8, **(COPY | other))  # type: ignore[arg-type]
    trace.copy(0, 1, count=4, **COPY)  # type: ignore[arg-type]
    mine = [(s.kind, s.amount) for s in trace.steps[0, 0]]
    assert mine == [("arrive", 0), *([("copy", 24)] if together else [("copy", 16), ("copy", 8)])]
    assert trace.steps[0, 1] == [Step("copy", 3, "k", 4, 1)]


def test_copies_with_something_between_are_two() -> None:
    trace = Trace(1)
    for between in (True, False):
        trace.copy(0, 0, "k", 16, 3, 0)
        if between:
            trace.add(0, [0], "arrive", 3, "k")
    assert [s.amount for s in trace.steps[0, 0] if s.kind == "copy"] == [16, 16]


@pytest.mark.parametrize(
    ("ctas", "pc", "together"), [((0,), 1, True), ((0, 1), 1, False), ((0,), 2, False)]
)
def test_products_of_one_instruction_into_the_same_ctas_are_one(
    ctas: tuple[int, ...], pc: int, together: bool
) -> None:
    trace = Trace(4)
    trace.tensor(0, 2, (0,), 10, 1)
    trace.tensor(0, 2, ctas, 5, pc)
    trace.tensor(0, 3, (0,), 1, 1)
    amounts = [s.amount for s in trace.steps[0, 2]]
    assert amounts == ([15] if together else [10, 5])
    assert trace.steps[0, 2][-1].key == ctas
    assert trace.steps[0, 3] == [Step("tensor", 1, (0,), 1)]


def test_a_product_is_of_four_warps_and_has_a_name_of_its_own() -> None:
    trace = Trace(8)
    for pc in (1, 2):
        trace.product(3, 4, 70, pc)
    assert set(trace.steps) == {(3, warp) for warp in (4, 5, 6, 7)}
    keys = [[s.key for s in steps] for steps in trace.steps.values()]
    assert keys == [keys[0]] * 4
    assert keys[0][0] != keys[0][1]
    assert {(s.kind, s.amount) for s in trace.steps[3, 4]} == {("product", 70)}
    assert trace.serial() != trace.serial()


def words(*addresses: int) -> np.ndarray:
    return np.array(addresses)


def test_a_word_is_told_by_each_that_writes_it_and_waited_for_as_it_is_read() -> None:
    """Writes are numbered by word; a word that nobody has written is not waited for."""
    trace = Trace(1)
    trace.read_words(0, words(64, 128), words(0, 0), 4)
    trace.write_words(1, words(64, 64, 128), words(0, 0, 0), 2)
    trace.write_words(1, words(64), words(1), 3)
    trace.read_words(0, words(32, 128, 64), words(0, 0, 0), 4)
    told = [
        s.key for who in ((1, 0), (1, 1)) for s in trace.steps.get(who, []) if s.kind == "arrive"
    ]
    assert told == [("word", 64, 1), ("word", 128, 1), ("word", 64, 2)]
    assert [(s.kind, s.pc, s.key) for s in trace.steps[0, 0]] == [
        ("wait", 4, ("word", 64, 2)), ("wait", 4, ("word", 128, 1)),
    ]  # fmt: skip


@pytest.mark.parametrize("first", [0, 1, 3])
@pytest.mark.parametrize("looks", [1, 2, 3])
def test_who_looks_again_and_again_has_waited_once(first: int, looks: int) -> None:
    """The loop is dropped, what came before it stays; the last look waits for the last write."""
    trace = Trace(1)
    for pc in range(first):
        trace.run(0, [0], pc, pc + 1)
    for look in range(looks):
        trace.write_words(1, words(64), words(0), 0)
        trace.run(0, [0], 4, 7)
        trace.read_words(0, words(64), words(0), 5)
        assert trace.steps[0, 0][-1].key == ("word", 64, look + 1)
    steps = trace.close().steps[0, 0]
    waits = [s for s in steps if s.kind == "wait"]
    assert waits == [Step("wait", 5, ("word", 64, looks))]
    before = steps[: steps.index(waits[0])]
    assert [s for s in before if s.pc < 4] == [run(pc, pc + 1) for pc in range(first)]
    assert steps[-1] == run(6, 7)


@pytest.mark.parametrize(
    ("pc", "address", "between", "waits"),
    [(5, 64, None, 1), (6, 64, None, 2), (5, 128, None, 2), (5, 64, "arrive", 2)],
)
def test_looks_at_other_places_or_words_are_kept(
    pc: int, address: int, between: str | None, waits: int
) -> None:
    trace = Trace(1)
    trace.write_words(1, words(64, 128), words(0, 0), 0)
    trace.read_words(0, words(64), words(0), 5)
    if between:
        trace.add(0, [0], between, 5, "else")
    trace.run(0, [0], 4, 5)
    trace.read_words(0, words(address), words(0), pc)
    assert sum(s.kind == "wait" for s in trace.close().steps[0, 0]) == waits


def test_a_wait_for_something_else_is_no_look_at_a_word() -> None:
    for key in ("a barrier", ("mbarrier", 64, 1), ("word", 32, 1)):
        trace = Trace(1)
        trace.write_words(1, words(64), words(0), 0)
        trace.add(0, [0], "wait", 5, key)
        trace.read_words(0, words(64), words(0), 5)
        assert [s.key for s in trace.steps[0, 0]] == [key, ("word", 64, 1)]
