from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.knowledge.joining import distance, joined

from .trees import failed_record, make_record, timed_record


def bare(**changes):
    record = timed_record("v0", **changes)
    stage = record.outcome.stages[0].model_copy(update={"static": None, "counters": {}})
    return record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": [stage]})}
    )


def registers(record):
    facts = record.outcome.stages[0].static
    return None if facts is None else facts.registers


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, 200),
        ({"target": "static/sm_90a"}, 200),
        ({"target": "static/sm_100"}, None),
        ({"sources": {"kernels/cutile/mla/flash_mla/flash_mla.py": "b" * 40}}, None),
        ({"tiling": {"tile_m": 128}}, None),
        ({"slug": "b2", "problem": {"b": 2}}, 200),
    ],
)
def test_facts_come_from_the_same_sources_arch_and_tiling(changes, found):
    assert registers(joined(bare(), [make_record("v0", **changes)])) == found


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, [7, 1, 1]),
        ({"slug": "b2", "problem": {"b": 2}}, []),
        ({"target": "static/sm_100"}, []),
        ({"tiling": {"tile_m": 128}}, []),
    ],
)
def test_a_grid_comes_from_the_same_problem_and_as_many_multiprocessors(changes, found):
    one = without_grid(bare())
    twin = make_record("v0", **changes)
    stage = twin.outcome.stages[0].model_copy(update={"grid": [7, 1, 1]})
    outcome = twin.outcome.model_copy(update={"stages": [stage]})
    twin = twin.model_copy(update={"outcome": outcome})
    assert joined(one, [twin]).outcome.stages[0].grid == found


def without_grid(record):
    stage = record.outcome.stages[0].model_copy(update={"grid": []})
    return record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": [stage]})}
    )


def test_another_version_says_nothing():
    assert registers(joined(bare(), [make_record("v1")])) is None


def test_the_nearest_problem_is_taken():
    far = make_record("v0", slug="b9", problem={"b": 9}, static={"registers": 99})
    near = make_record("v0", slug="b2", problem={"b": 2}, static={"registers": 22})
    assert registers(joined(bare(), [far, near])) == 22


def test_counters_come_from_the_same_problem_only():
    counted = timed_record("v0")
    assert joined(bare(), [counted]).outcome.stages[0].counters
    assert not joined(bare(slug="b7"), [counted]).outcome.stages[0].counters


def test_what_the_record_states_itself_stays():
    own = make_record("v0", static={"registers": 50})
    assert joined(own, [make_record("v0")]) == own


def test_a_run_that_failed_is_left_alone():
    failed = failed_record("v0")
    assert joined(failed, [make_record("v0")]) is failed


sizes = st.dictionaries(st.sampled_from("bhst"), st.integers(0, 1 << 20) | st.booleans())


@given(sizes, sizes)
def test_distance_is_a_distance(one, other):
    assert distance(one, one) == 0
    assert distance(one, other) == pytest.approx(distance(other, one))
    assert distance(one, other) >= 0
