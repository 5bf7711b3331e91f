"""Each contradiction, beside a record that is the same but for it."""

from __future__ import annotations

import pytest

from mla_var3 import evidence
from mla_var3.evidence import contradictions
from tests.evidence.making import (
    correctness,
    duration,
    passed,
    protocol,
    record,
    stage,
    timed_record,
)

PROBLEM = {"b": 64, "causal": False}
SOURCE = {"kernels/cutile/mla/flash_mla/flash_mla/flash_mla.py": "a" * 40}


def found(**changes) -> list[str]:
    fields = {"outcome": whole(10.0), "problem": PROBLEM, "kernel": {"sources": SOURCE}, **changes}
    return list(contradictions.faults(timed_record(**fields)))


def whole(median: float, *parts: float, samples: int = 50, checked=True, **changes):
    """A whole with a stage per part."""
    stages = [stage(f"s{i}", duration=duration(part, samples)) for i, part in enumerate(parts)]
    fields = {"correctness": check(PROBLEM) if checked else None, **changes}
    return passed(total=duration(median), protocol=protocol(), stages=stages or [stage()], **fields)


def check(problem):
    return correctness(cases=[evidence.CheckedCase(problem=problem, max_relative_error=1e-3)])


def test_a_record_that_agrees_with_itself_has_no_fault():
    assert found() == []
    assert found(outcome=whole(10.0, 10.0)) == []
    assert found(outcome=whole(10.0, 4.0, 5.0)) == []


def test_a_total_below_its_only_stage():
    assert found(outcome=whole(10.0, 10.5)) == [
        "the whole took 10 us, and its only stage s0 10.5 us"
    ]


def test_a_total_below_one_of_several_stages_beyond_what_runs_differ_in():
    assert found(outcome=whole(10.0, 10.3, 1.0)) == []
    assert found(outcome=whole(10.0, 12.0, 1.0)) == [
        "the whole took 10 us, and its stage s0 alone 12 us"
    ]


def test_samples_that_are_not_the_runs():
    assert found(outcome=whole(10.0, 10.0, samples=49)) == [
        "stage s0 has 49 samples of 50 timed runs"
    ]


def test_one_sample_is_one_time():
    one = protocol().model_copy(update={"bench_runs": 1})
    wide = evidence.Duration(median_us=10.0, min_us=9.0, max_us=11.0, samples=1)
    assert found(outcome=passed(total=wide, protocol=one, correctness=check(PROBLEM))) == [
        "the whole has one sample, from 9 to 11 us"
    ]


def test_more_rounds_than_runs():
    rounds = protocol().model_copy(update={"rounds": 51})
    outcome = whole(10.0, 10.0).model_copy(update={"protocol": rounds})
    assert found(outcome=outcome) == ["its 50 timed runs cannot be in 51 rounds"]


def test_a_stage_that_stands_twice():
    outcome = whole(10.0, 4.0)
    twice = outcome.model_copy(update={"stages": [*outcome.stages, *outcome.stages]})
    assert found(outcome=twice) == ["stage s0 stands 2 times"]


def test_counters_of_a_mode_that_counts_nothing_and_none_of_one_that_does():
    counted = [stage("s0", counters={"dram__bytes.sum": 1.0})]
    outcome = whole(10.0).model_copy(update={"stages": counted})
    assert found(outcome=outcome) == ["mode event counts nothing, and the record has counters"]
    assert found(outcome=outcome, mode="ncu") == []
    assert found(mode="ncu") == ["mode ncu counts, and the record has no counters"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"joules": 0.0071}, ["700 W over 10 us are 0.007 J, and it states 0.0071"]),
        ({"launch_us": 21.0, "joules": 0.0147},
         ["a launch took 21 us back to back, and 10 us when it was timed"]),
    ],
)  # fmt: skip
def test_energy_that_is_not_power_times_time(changes, said):
    fields = {"launches": 9, "launch_us": 10.0, "joules": 0.007, "watts": 700.0, "samples": 3}
    energy = evidence.Energy(**{**fields, **changes})
    assert found(outcome=whole(10.0, energy=energy)) == said


@pytest.mark.parametrize("mode", contradictions.ON_A_GPU)
def test_a_timed_mode_without_a_check(mode):
    counted = {"stages": [stage("s0", **({"counters": {"n": 1.0}} if mode == "ncu" else {}))]}
    assert found(mode=mode, outcome=whole(10.0).model_copy(update=counted)) == []
    unchecked = whole(10.0, checked=False).model_copy(update=counted)
    assert found(mode=mode, outcome=unchecked) == [
        f"mode {mode} times nothing unchecked, and the record has no check"
    ]


def test_a_static_record_need_not_be_checked():
    made = record(outcome=passed(correctness=None), kernel={"sources": SOURCE})
    assert list(contradictions.faults(made)) == []


def test_a_check_of_another_problem():
    assert found(outcome=whole(10.0, correctness=check({"b": 1}))) == [
        "its check is of another problem"
    ]


@pytest.mark.parametrize("name", ["src/mla_var3/kernel.py", "kernels/../x.py", "/kernels/x.py"])
def test_sources_that_do_not_lie_below_kernels(name):
    assert found(kernel={"sources": {name: "a" * 40}}) == [
        f"source {name} does not lie below kernels/"
    ]
