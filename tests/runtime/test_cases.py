"""How check runs a version: tilings and orders take turns, and find what one way alone does not."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import cuda.tile as ct
import pytest
import torch

from mla_var3.runtime import registry
from mla_var3.runtime.cases import (
    LONG,
    ORDERS,
    TURNS,
    Case,
    as_checked,
    as_planned,
    cases,
    ends,
    resized,
    tried,
)
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.ct_kernel import ConstInt, CtKernel
from mla_var3.workloads import Cost

from .toys import ToyPlan, ToyTiling


@ct.kernel
def total(x: ct.Array, y: ct.Array, counter: ct.Array, TILE: ConstInt, BLOCKS: ConstInt):
    """Each block stores its double; the one that comes last, by its ticket, says so."""
    tile = ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ticket = ct.atomic_add(counter, 0, 1)
    ct.store(y, (ct.bid(0),), tile * 2.0)
    if ticket == BLOCKS - 1:
        ct.store(counter, (1,), ct.full((1,), 1, ct.int32))


@ct.kernel
def total_by_block(x: ct.Array, y: ct.Array, counter: ct.Array, TILE: ConstInt, BLOCKS: ConstInt):
    """The same, but the ticket is read and ignored: the last block tells what it read."""
    tile = ct.load(x, (ct.bid(0),), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ticket = ct.atomic_add(counter, 0, 1)
    ct.store(y, (ct.bid(0),), tile * 2.0)
    if ct.bid(0) == BLOCKS - 1:
        ct.store(counter, (1,), ct.full((1,), ticket + 2 - BLOCKS, ct.int32))


@dataclass(frozen=True, kw_only=True)
class TicketPlan(ToyPlan):
    """Doubling, and a mark that every block was there."""

    tiling_types = {"total": ToyTiling}  # noqa: RUF012

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": inputs[0].float() * 2, "mark": torch.ones(1)}

    def check_plans(self):
        return [dataclasses.replace(self, size=size) for size in (40, 48, 65)]

    def plan(self, *inputs: torch.Tensor) -> CtKernel:
        x = inputs[0]
        y, counter = torch.empty_like(x), torch.zeros(2, dtype=torch.int32)
        return CtKernel(
            total_by_block if self.wrong else total,
            grid_fn=lambda t: (ct.cdiv(x.shape[0], t.tile),),
            args_fn=lambda t: (x, y, counter, t.tile, ct.cdiv(x.shape[0], t.tile)),
            input_tensors={"x": x},
            output_tensors={"y": y, "mark": counter[1:]},
            tiling=self.tiling("total"),
            autotune_configs=[ToyTiling()],
            algorithmic_flops_bytes_fn=lambda _: Cost(1, 1),
        )


@pytest.mark.parametrize("order", ORDERS)
def test_a_kernel_that_is_right_is_so_in_every_order(order):
    result = check_plan(TicketPlan(size=65), order=order)
    assert result.ok, result.explain()
    assert [execution.order for execution in result.executions] == [order]


def test_a_ticket_that_is_ignored_is_found_by_the_order_alone():
    assert check_plan(TicketPlan(size=65, wrong=True), order="forward").ok
    assert not check_plan(TicketPlan(size=65, wrong=True), order="reverse").ok
    found = [check_plan(c.plan, order=c.order) for c in cases(TicketPlan(wrong=True))]
    assert not all(result.ok for result in found)


@pytest.mark.parametrize("key", ["gemm", "flash_mla@cutile-dsl", "mla_var6_plus"])
def test_every_tiling_meets_every_order_where_there_are_twelve_problems(key):
    found = [x for x in cases(registry.find(key).plan_class()(), 6) if x.sizes != "uneven"]
    pairs = {(case.sizes, case.order) for case in found}
    assert len(pairs) == min(len(found), len(TURNS) * len(ORDERS))
    assert {case.sizes for case in found} == set(TURNS)


@pytest.mark.parametrize("version", registry.versions(), ids=lambda v: v.key)
def test_every_tiling_that_is_tried_is_valid(version):
    for case in cases(version.plan_class()()):
        for stage in case.plan.tiling_types:
            case.plan.tiling(stage).validate(case.plan)


def test_numbers_are_halved_and_doubled_where_that_is_valid():
    plan = TicketPlan(size=2)
    assert resized(plan, "halved").tilings == {"total": ToyTiling(tile=8)}
    assert resized(plan, "doubled") == plan, "tile=32 exceeds 8*size"
    (tile_m, tile_n) = (64, 64)
    mla = registry.find("flash_mla@cutile-dsl").plan_class()()
    halved = resized(mla, "halved").tiling("attention")
    assert (halved.tile_m, halved.tile_n) == (tile_m // 2, tile_n // 2)


@pytest.mark.parametrize(("key", "version"), [("flash_mla", "v3"), ("flash_attention", "v1")])
def test_at_edges_each_number_of_a_tiling_is_doubled_by_itself(key, version):
    """Where registers hold no tile that has grown alone, another number is halved."""
    plan = registry.find(f"{key}@cutile-dsl", version).plan_class()()
    edges = {one.slug() for one in plan.edges()}
    for case in (case for case in cases(plan, 1) if case.sizes == "uneven"):
        tiling, default = case.plan.tiling("attention"), case.plan.default_tiling("attention")
        own, usual = dataclasses.asdict(tiling), dataclasses.asdict(default)
        assert [name for name in own if own[name] == 2 * (usual[name] or 0) > 0]
        assert own["num_worker_warps"] == usual["num_worker_warps"], "no size of a tile"
        assert case.plan.slug() in edges
    wide = [x.plan for x in cases(plan, 1) if x.plan.tiling("attention").tile_n == 128]
    assert any(plan.tiling("attention").tile_m < 128 for plan in wide)
    short = {one.slug() for one in plan.edges() if one.steps() <= LONG}
    assert {plan.slug() for plan in wide} >= short


def test_problems_at_edges_are_run_on_few_multiprocessors_too():
    plan = registry.find("mla_var6_plus@cutile-dsl", "v1").plan_class()()
    found = [case.plan for case in cases(plan, 1)]
    few = [one for one in found if one.target.sm_count == 3]
    edges = {one.slug() for one in plan.edges()} & {one.slug() for one in found}
    assert {one.slug() for one in few} == edges
    assert 1 in {one.old_tokens for one in few}, "whose share of three is far below one"


@pytest.mark.parametrize(
    ("version", "stage", "expected"),
    [("blackwell_mla v0", "attention", [0, 15]), ("blackwell_mla v2", "attention", [0, 8]),
     ("flash_mla@cute-dsl v1", "attention", [15])],
)  # fmt: skip
def test_a_lag_ends_at_zero_and_at_the_most_that_is_valid(version, stage, expected):
    plan = registry.find(*version.split()).plan_class()()
    assert [x.lazy for x in ends(plan.tiling(stage), "lazy", plan)] == expected


def test_a_lag_that_is_zero_by_default_is_doubled_to_the_most_that_is_valid():
    plan = registry.find("flash_mla@cute-dsl", "v1").plan_class()()
    assert plan.tiling("attention").lazy == 0
    assert resized(plan, "doubled").tiling("attention").lazy == 15
    assert resized(plan, "halved").tiling("attention").lazy == 0


def test_a_problem_with_tilings_of_its_own_is_one_that_tuning_times():
    plan = ToyPlan()
    assert as_planned(plan).sizes == "default"
    assert as_planned(resized(plan, "halved")).sizes == "tuned"


def test_what_was_tried_is_one_line():
    plan = registry.find("flash_mla@cutile-dsl").plan_class()(shift=-720.0)
    ran = [(Case(plan, "default", "forward"), "forward"), (Case(plan, "halved", "random"), None)]
    assert tried(ran) == (
        "2 problems; blocks started forward; tilings default, halved; scores near -720"
    )


def test_what_is_checked_with_takes_no_part_in_choosing_a_problem():
    plan = registry.find("flash_mla", "v1").plan_class()(causal=True)
    checked = as_checked(plan)
    assert (plan.unseen, checked.unseen) == (0, 1)
    assert checked.slug() == plan.slug()
    assert "unseen" not in plan.tries()
