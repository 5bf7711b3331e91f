"""The winner first: sentences and tables that follow from records alone."""

from __future__ import annotations

import io

import pytest
from factories import duration, passed, record, stage, static_facts
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from mla_var3.app import winner
from mla_var3.evidence import Failed, Record
from mla_var3.evidence.compare import versus


def timed(us: float, s: int = 1, run: str = "aaaa") -> Record:
    return record(
        outcome=passed(total=duration(us)), target="nvidia-h200-sxm", mode="event", run=run,
        problem={"b": 32, "s": s, "causal": False, "dtype": "bf16"}, slug=f"s{s}",
    )  # fmt: skip


def compiled(**facts) -> Record:
    return record(outcome=passed(stages=[stage(static=static_facts(**facts))]))


def counted(tensor: float, *more: str) -> Record:
    counters = {
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active": tensor,
        "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed": 23.28,
        "sm__warps_active.avg.pct_of_peak_sustained_active": 18.75,
        "launch__registers_per_thread": 168.0,
        "l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum": 2.0,
        "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum": 1.0,
    }
    stages = [stage(name=name, counters=counters) for name in ("attention", *more)]
    return record(outcome=passed(stages=stages), target="nvidia-h200-sxm", mode="ncu")


def duel(*pairs: tuple[Record, Record]) -> winner.SideBySide:
    timed = versus([one for one, _ in pairs], [other for _, other in pairs])
    return winner.duel(("v0", "v1"), timed, pairs)


def printed(*tables) -> str:
    out = io.StringIO()
    for table in tables:
        Console(file=out, width=120).print(table)
    return out.getvalue()


def test_the_winner_and_by_how_much():
    found = duel((timed(100.0), timed(50.0)), (timed(100.0, s=2), timed(80.0, s=2)))
    assert found.verdict == (
        "v1 wins: v1 is 1.2x faster to 2x faster than v0, in one run on nvidia-h200-sxm; ahead at "
        "2 and behind at 0 of 2 problems."
    )
    back = duel((timed(50.0), timed(100.0)))
    assert back.verdict.startswith("v0 wins: v1 is 2x slower than v0")
    mixed = duel((timed(100.0), timed(50.0)), (timed(100.0, s=2), timed(120.0, s=2)))
    assert mixed.verdict.startswith("No clear winner: v1 is 1.2x slower to 2x faster than v0")


@given(st.floats(1.0, 1e6), st.floats(0.98, 1.02))
def test_what_is_as_fast_wins_nothing(us, ratio):
    assert duel((timed(us), timed(us * ratio))).verdict.startswith("No clear winner")


def test_counters_of_both_stand_side_by_side():
    """Tensor and DRAM share, occupancy, registers and spills, also of two languages."""
    said = printed(*winner.duel_tables(duel((counted(56.42), counted(59.17)))))
    assert "counted by Nsight Compute, nvidia-h200-sxm" in " ".join(said.split())
    rows = [line.split("│")[1:4] for line in said.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["tensor pipe, %", "56.4", "59.2"], ["DRAM, %", "23.3", "23.3"],
        ["occupancy, %", "18.8", "18.8"], ["spilled bytes", "96", "96"],
        ["registers", "168", "168"],
    ]  # fmt: skip
    two = printed(*winner.duel_tables(duel((counted(1.0), counted(2.0, "merge")))))
    assert all(title in two for title in ("v0 attention", "v1 attention", "v1 merge"))


def test_times_of_two_runs_name_no_winner():
    found = duel((timed(100.0), timed(50.0, run="bbbb")))
    assert found.verdict == "No winner yet: no time of one run compares them."
    assert winner.duel_tables(found) == []


def test_without_times_spills_lead_on_paper():
    found = duel((compiled(spill_loads=40, spill_stores=2), compiled()))
    assert found.verdict.startswith("v1 leads on paper: 0 spill instructions against 42")
    assert "42 to 0" in printed(*winner.duel_tables(found))


def test_problems_are_named_by_what_tells_them_apart_and_stand_in_order():
    pairs = [(timed(10.0 * s, s), timed(5.0 * s, s)) for s in (16, 2, 8)]
    shown = printed(*winner.duel_tables(duel(*pairs)))
    assert "us at nvidia-h200-sxm b=32 bf16" in shown
    order = [line.split()[1] for line in shown.splitlines() if line.startswith("│ s=")]
    assert order == ["s=2", "s=8", "s=16"]


def test_many_problems_fit_a_screen():
    pairs = [(timed(10.0, s), timed(5.0, s)) for s in range(1, 41)]
    shown = printed(*winner.duel_tables(duel(*pairs)))
    assert len(shown.splitlines()) < 24
    assert "24 more problems: --verbose" in shown


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([("a", timed(10.0)), ("b", timed(30.0))], "; 3x faster than b, the next."),
        ([("a", timed(10.0)), ("b", timed(30.0, run="b"))], "next is b, 30.0 us in another run."),
        ([("a", None)], "No winner: nothing was timed or compiled."),
    ],
)
def test_of_many_the_fastest_is_named(rows, said):
    assert winner.podium(rows).endswith(said)


def test_a_ranking_ends_with_what_did_not_run():
    rows = [("a", record(outcome=Failed(error="no memory")), ""), ("b", None, "not installed"),
            ("c", timed(20.0), ""), ("d", timed(10.0), "")]  # fmt: skip
    shown = printed(winner.ranking(rows))
    order = [line.split()[1] for line in shown.splitlines() if line.startswith("│")]
    assert order[:2] == ["d", "c"]
    assert "no memory" in shown
    assert "not installed" in shown
