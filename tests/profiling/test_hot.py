from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.profiling import hot
from mla_var3.profiling.ncu_rep import Instruction, Profiled
from tests.profiling import reports


def instruction(offset=0, line=1, **values) -> Instruction:
    named = {hot.SAMPLES if k == "samples" else k: float(v) for k, v in values.items()}
    return Instruction(offset, f"OP{offset}", "", "k.py", line, named)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9), st.integers(0, 9))))
def test_lines_hold_every_instruction_once_hottest_first(drawn):
    own = [instruction(i, line, samples=s, inst_executed=n) for i, (line, s, n) in enumerate(drawn)]
    found = hot.lines(Profiled("k", (), instructions=tuple(own)))
    assert sorted(x.offset for line in found for x in line.instructions) == list(range(len(own)))
    assert [(-x.samples, -x.executed) for x in found] == sorted(
        (-x.samples, -x.executed) for x in found
    )
    assert sum(x.samples for x in found) == hot.total(own, hot.SAMPLES)


def test_stalls_most_first_each_counted_once():
    stall = hot.STALL
    own = [
        instruction(**{f"{stall}wait": 2, f"{stall}wait_not_issued": 2, f"{stall}barrier": 3}),
        instruction(16, **{f"{stall}wait": 2, f"{stall}drain": 0}),
    ]
    assert hot.stalls(own) == {"wait": 4.0, "barrier": 3.0}


def test_the_report_of_an_h200():
    launch = reports.gemm()
    first, *_ = hot.lines(launch)
    assert (first.file, first.number, first.stall) == ("hopper_gemm_v1.py", 130, "long_scoreboard")
    assert hot.total(launch.instructions, hot.SAMPLES) == 61
    assert sum(hot.stalls(launch.instructions).values()) == 61


class TestAnnotated:
    @pytest.fixture
    def text(self):
        own = (instruction(32, 2, samples=3, inst_executed=8), instruction(48, 2, samples=1),
               instruction(64, 9, samples=4))  # fmt: skip
        found = hot.lines(Profiled("k", (), instructions=own))
        return hot.annotated("k.py", "a = 1\nb = 2\n", found, 8).splitlines()

    def test_costs_stand_beside_their_lines(self, text):
        title, _, first, second, *_ = text
        assert title == "k.py: 8 of 8 samples"
        assert first.split() == ["1", "a", "=", "1"]
        assert second.split() == ["4", "50.0%", "8", "2", "b", "=", "2"]

    def test_below_stand_the_hottest_instructions(self, text):
        assert [line.split() for line in text[4:]] == [
            ["3", "0x0020", "OP32"], ["1", "0x0030", "OP48"],
        ]  # fmt: skip

    def test_columns_are_aligned(self, text):
        assert (
            len({line.index(x) for line, x in zip(text[2:4], ("1  a", "2  b"), strict=True)}) == 1
        )
