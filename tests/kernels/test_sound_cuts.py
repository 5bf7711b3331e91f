"""Rows of schedules: what is wrong with them is said, and cuts by chance are right ones."""

from __future__ import annotations

import dataclasses
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("cutlass", reason="needs nvidia-cutlass-dsl")

from mla_var3.app import checking
from mla_var3.kernel.cute_python.kit import paged_plan
from mla_var3.kernel.cute_python.kit.even import COLUMNS, Cut, Even
from mla_var3.kernel.cute_python.kit.finer import Finer
from mla_var3.kernel.cute_python.kit.fitted import Fitted
from mla_var3.kernel.cute_python.kit.fitted_cuts import MOST
from mla_var3.kernel.cute_python.kit.ordered import Named, order_rows
from mla_var3.kernel.cute_python.kit.scattered import LONG, scattered_cuts, scattered_lengths
from mla_var3.kernel.cute_python.kit.sound_cuts import lengths_by_chance, unsound
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v21.flash_mla_v21 import COSTS
from mla_var3.runtime import registry

TILES = st.lists(st.integers(1, 70), min_size=1, max_size=24)
SCHEDULES = [
    Even(), Even(4), Even(2, join=4, each=2), Even(2, least=4, join=6, each=2), Finer(),
    Fitted(COSTS),
]  # fmt: skip


def is_ordered(schedule):
    return isinstance(schedule, Fitted)


def plan_of(version):
    return registry.find("flash_mla@cute-dsl", version).plan_class()()


@pytest.mark.parametrize("schedule", SCHEDULES, ids=lambda x: type(x).__name__)
@given(tiles=TILES, workers=st.integers(1, 140))
def test_rows_of_each_schedule_are_sound(schedule, tiles, workers):
    rows = schedule.rows(tiles, workers)
    assert unsound(rows, tiles, ordered=is_ordered(schedule)) == ""


@pytest.mark.parametrize("ordered", [False, True])
@given(tiles=st.lists(st.integers(1, 5), min_size=2, max_size=12), seed=st.integers(0, 99))
def test_cuts_by_chance_are_sound(ordered, tiles, seed):
    rows = scattered_cuts(tiles, random.Random(seed), ordered=ordered)
    assert unsound(rows, tiles, ordered=ordered) == ""
    workers = rows[: len(rows) - order_rows(len(tiles))] if ordered else rows
    assert workers[-1][: Cut.LAST] == (len(tiles), 0, len(tiles), 0)
    if ordered:  # the name of the next place
        assert [row[Named.FIRST] for row in workers[:-1]] == [
            (row[Cut.SEQUENCE] + 1) % len(tiles) for row in workers[:-1]
        ]


@pytest.mark.parametrize("schedule", [Even(), Finer(), Fitted(COSTS)], ids=["even", "finer", "fit"])
@given(tiles=st.lists(st.integers(1, 70), min_size=3, max_size=24), data=st.data())
def test_any_other_number_in_a_row_is_found(schedule, tiles, data):
    ordered = is_ordered(schedule)
    rows = [list(row) for row in schedule.rows(tiles, 5)]
    row = data.draw(st.integers(0, 4))
    column = data.draw(st.integers(0, COLUMNS - 1 if ordered else Cut.OWNER))
    rows[row][column] += data.draw(st.sampled_from([-2, -1, 1, 3]))
    assert unsound(rows, tiles, ordered=ordered)


def test_an_order_that_lacks_a_sequence_is_found():
    rows = [list(row) for row in Fitted(COSTS).rows([3, 9, 4], 2)]
    for own in rows[2:]:
        own[:] = [-1] * COLUMNS
    assert unsound(rows, [3, 9, 4], ordered=True) == "the order has not each sequence once"


def test_a_worker_with_far_more_than_its_share_is_found():
    rows = [(0, 0, 40, 0, -1, -1), *[(40, 0, 40, 0, -1, -1)] * 9]
    assert unsound(rows, [1] * 40, ordered=False) == (
        "a worker has 40 of 40 tiles, and 10 share these"
    )


def test_lengths_by_chance_are_of_all_kinds():
    chance = random.Random(0)
    found = [lengths_by_chance(chance, 24, 40) for _ in range(200)]
    assert {workers for _, workers in found} == set(range(1, 41))
    some = [keys for keys, _ in found if len(keys) > 2]
    assert any(0 in keys for keys in some)
    assert any(len(set(keys)) == 1 for keys in some)
    assert any(sorted(keys)[-1] == 10 * sorted(keys)[-2] > 0 for keys in some)


def test_long_sequences_and_single_tiles_take_turns():
    lengths = scattered_lengths(6, 64, random.Random(1))
    tiles = [-(-n // 64) for n in lengths]
    assert tiles[1::2] == [1, 1, 1]
    assert all(LONG[0] <= n <= LONG[1] for n in tiles[::2])


@pytest.mark.parametrize("version", ["v13", "v19", "v21", "v24"])
def test_plans_hold_their_schedules_to_it(version, monkeypatch):
    plan = plan_of(version)
    assert plan.unsound() == ""
    right = type(plan.schedule).rows

    def lacks_the_last(self, tiles, workers):
        return right(self, [*tiles[:-1], 1], workers)

    monkeypatch.setattr(type(plan.schedule), "rows", lacks_the_last)
    assert plan.unsound().startswith("cuts of ")


def test_a_check_says_it_once(monkeypatch):
    version = registry.find("gemm@cutile-dsl", "v0")
    first, second = checking.cases_of(version)[:2]
    monkeypatch.setattr(type(first.plan), "unsound", lambda _self: "a tile is taken twice")
    assert checking.check_case(version, first).explanation == "a tile is taken twice"
    assert checking.check_case(version, second).explanation == ""


def test_schedules_are_run_with_as_many_sequences_as_are_sorted_and_with_others():
    made = plan_of("v21").metadata(torch.device("meta"))
    counts = [len(one.kernel.input_tensors["lengths"]) for one in made]
    assert {MOST - 1, MOST, MOST + 1} <= set(counts)
    assert len(made) == 1 + len(paged_plan.OTHERS) + paged_plan.ON_DEVICE_FITTED
    more = plan_of("v24").metadata(torch.device("meta"))
    assert len(more) == 1 + len(paged_plan.OTHERS) + paged_plan.ON_DEVICE


@pytest.mark.parametrize(
    ("version", "columns", "rows"), [("v13", 0, 3), ("v18", 0, 67), ("v21", 0, 67), ("v21", 8, 3)]
)
def test_short_sequences_are_cut_by_chance_in_builds_of_many_rows_and_of_few(
    version, columns, rows
):
    plan = plan_of(version)
    if columns:
        plan = dataclasses.replace(plan, h=columns)
        assert plan.tiling("attention").columns == columns
    (cut,) = [one for one in plan.edges() if one.scattered]
    assert cut.h == rows
    assert cut.cuts() == cut.cuts() != dataclasses.replace(cut, scattered=0).cuts()
    parts = [row[Cut.LAST] - i + 1 for i, row in enumerate(cut.cuts()) if row[Cut.LAST] > i]
    assert max(parts) > 2
    assert cut.sequences() == cut.prepare_inputs()[-1].tolist()


def test_lists_that_are_cut_by_chance_are_as_long_as_their_sequences():
    plan = registry.find("sparse_mla", "v5").plan_class()()
    (cut,) = [one for one in plan.edges() if one.scattered]
    assert (cut.topk, cut.h) == (cut.t, 67)
