"""Figures of a step: needless instructions, barriers, fences, masks and waits."""

from collections.abc import Callable
from typing import Any

import pytest

from mla_var3.evidence import Record, Stage
from mla_var3.knowledge import mainloop
from mla_var3.knowledge.court import judging
from mla_var3.knowledge.court.observing import Seen, SeenStage, Work
from mla_var3.languages.cute.facts import CuteFacts, RegisterBudget
from mla_var3.runtime import costs
from mla_var3.workloads import Cost

PROBLEM = {"b": 1, "h": 1, "s": 128, "t": 128, "d": 128, "causal": False, "dtype": "bf16"}
FLOPS = 4 * 128 * 128 * 128
#: 64 rows by 128 keys of scores over a head of 128, and as much of output: 64 scores per thread,
#: and 1,024 clocks of the tensor cores.
PRODUCTS = {"HGMMA.64x128x16.F32.BF16": 16}
LEAN = {**PRODUCTS, "MUFU": 66, "FFMA": 66, "FADD": 64, "WARPGROUP.DEPBAR 1": 1}


@pytest.fixture(autouse=True)
def _work(monkeypatch: pytest.MonkeyPatch) -> None:
    """The work of the problem, in place of what the folder's tests take it for."""
    monkeypatch.setattr(costs, "cost", lambda *_: Cost(FLOPS, 1))


def _figure(
    measure: Callable[[Record, Stage], Any], mix: dict[str, int] | None, **facts: Any
) -> Any:
    static = CuteFacts(kernel="k", arch="sm_90", step_mix=mix, **facts)
    stage = SeenStage(
        name="attention", kernel="k", tiling={}, grid=(1,), static=static,
        work=Work(flops=FLOPS, bytes=1),
    )  # fmt: skip
    seen = Seen(language="cute-dsl", layer="attention", problem=PROBLEM, stages=(stage,))
    record = judging.record_of(seen)
    return measure(record, record.outcome.stages[0])


def test_a_lean_softmax_costs_nothing_more() -> None:
    assert _figure(mainloop.softmax, LEAN) == 1
    assert _figure(mainloop.exponentials, LEAN) == pytest.approx(66 / 64)


def test_guards_of_denormals_cost_three_instructions_each() -> None:
    loss = _figure(mainloop.softmax, LEAN | {"FSETP": 66})
    assert loss == pytest.approx(1 + 3 * (66 - 0.3 * 64) / 1024)


def test_a_larger_score_that_is_selected_is_neither_guard_nor_mask() -> None:
    mix = LEAN | {"FSETP": 130, "FSEL": 130, "ISETP": 2}
    assert _figure(mainloop.softmax, mix) == 1
    assert _figure(mainloop.masked, mix) == pytest.approx(2 / 64)


def test_scores_of_a_loop_with_branches_are_at_least_those_compared() -> None:
    """Half of the products stand in the loop, and the softmax of both kinds of tiles."""
    branches = LEAN | {"HGMMA.64x128x16.F32.BF16": 8, "FMNMX": 68, "MUFU": 84}
    assert _figure(mainloop.exponentials, branches) == pytest.approx(84 / (68 / 1.06))
    assert _figure(mainloop.exponentials, LEAN | {"FMNMX": 34}) == pytest.approx(66 / 64)


def test_scores_are_those_compared_where_a_problem_does_not_tell(monkeypatch) -> None:
    monkeypatch.setattr(costs, "cost", lambda *_: None)
    assert _figure(mainloop.exponentials, LEAN | {"FMNMX": 68}) == pytest.approx(66 * 1.06 / 68)
    assert _figure(mainloop.exponentials, LEAN) is None


def test_a_softmax_computed_twice_costs_its_exponentials() -> None:
    assert _figure(mainloop.softmax, LEAN | {"MUFU": 132}) == pytest.approx(
        1 + 8 * (132 - 1.3 * 64) / 1024
    )


def test_the_share_of_scores_that_every_step_masks() -> None:
    assert _figure(mainloop.masked, LEAN) == 0
    assert _figure(mainloop.masked, LEAN | {"FSEL": 64, "ISETP": 70}) == 1
    assert _figure(mainloop.masking, LEAN | {"FSEL": 64, "ISETP": 70}) == pytest.approx(
        1 + 2 * 64 / 1024
    )


def test_a_step_that_issues_more_than_its_products_take() -> None:
    assert _figure(mainloop.issue, LEAN) == 1
    assert _figure(mainloop.issue, {"HGMMA.64x16x16.F32.BF16": 16, "IMAD": 240}) == 2


@pytest.mark.parametrize(
    ("more", "count"),
    [({}, 0), ({"BAR.SYNC": 1, "BAR.ARV": 1}, 0), ({"BAR.SYNC": 2, "BAR.ARV": 1}, 1)],
)
def test_barriers_beyond_handovers(more: dict[str, int], count: int) -> None:
    assert _figure(mainloop.barriers, LEAN | more) == count


@pytest.mark.parametrize(
    ("more", "count"),
    [
        ({"MEMBAR.ALL.CTA": 1}, 0),
        ({"FENCE": 1}, 1),
        ({"FENCE": 1, "STS": 4}, 0),
        ({"MEMBAR.SC.GPU": 2, "STS": 4}, 2),
    ],
)
def test_fences_that_publish_nothing_or_reach_far(more: dict[str, int], count: int) -> None:
    assert _figure(mainloop.fences, LEAN | more) == count


def test_what_runs_under_a_softmax() -> None:
    assert _figure(mainloop.overlapped, LEAN) == 1
    alone = {name: n for name, n in LEAN.items() if "DEPBAR" not in name}
    assert _figure(mainloop.overlapped, alone | {"WARPGROUP.DEPBAR 0": 2}) == 0
    assert _figure(mainloop.overlapped, alone | {"BAR.ARV": 1}) == 0
    assert _figure(mainloop.overlapped, PRODUCTS) is None


@pytest.mark.parametrize(
    "mix", [None, {}, LEAN | {"STG": 2}, {"HMMA.16816.F32.BF16": 8, "MUFU": 4}]
)
def test_where_no_step_is_known_there_is_no_figure(mix: dict[str, int] | None) -> None:
    assert _figure(mainloop.softmax, mix) is None
    assert _figure(mainloop.masked, mix) is None


def test_registers_that_no_warp_may_use() -> None:
    def budgets(consumers: int) -> tuple[RegisterBudget, ...]:
        return (
            RegisterBudget(direction="dec", registers=24),
            RegisterBudget(direction="inc", registers=consumers),
        )

    full = _figure(
        mainloop.spare_registers, LEAN, warps_per_block=12, register_budgets=budgets(240)
    )
    assert full == pytest.approx(1 - 128 * (24 + 2 * 240) / 65536)
    capped = _figure(
        mainloop.spare_registers, LEAN, warps_per_block=12, register_budgets=budgets(152)
    )
    assert capped > 0.3
    assert _figure(mainloop.spare_registers, LEAN, warps_per_block=12) is None
