from __future__ import annotations

import dataclasses
from typing import ClassVar

import pytest
import torch

from mla_var3.errors import PlanError
from mla_var3.runtime import further_runs, registry
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.composite import KernelPipeline
from tests.runtime.toys import ToyPlan, ToyTiling, kernel

#: Memory that plans of these sizes share, as a cache of workspaces would.
SHARED: dict[int, torch.Tensor] = {}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TwoStages(ToyPlan):
    """Four times, by way of memory that is its own or shared."""

    shares: bool = False

    def reference_fn(self, *inputs):
        return {"y": inputs[0].float() * 4}

    def plan(self, *inputs):
        (x,) = inputs
        between = torch.empty_like(x)
        if self.shares:
            between = SHARED.setdefault(self.size, between)
        stages = [kernel("first", x, between), kernel("second", between, output="y")]
        return KernelPipeline(_name="both", stages=stages)


@pytest.mark.parametrize("shares", [False, True])
def test_what_two_plans_share_is_wrong(shares):
    plan = TwoStages(shares=shares)
    assert check_plan(plan).ok
    result = check_plan(plan, beside=True)
    assert result.ok != shares
    assert ("beside another plan of the same sizes" in result.explain()) == shares


def test_inputs_of_the_plan_beside_are_others():
    """Else both would leave the same in what they share."""
    plan = TwoStages(shares=True)
    (x,) = plan.prepare_inputs()
    assert not torch.equal(x, -x)
    assert float(check_plan(plan, beside=True).errors[1].error) == pytest.approx(2.0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Decided(ToyPlan):
    """Its grid follows the tiling of the launch, or that under which it was bound."""

    bound: bool = False
    seen: ClassVar[list[int]] = []

    def plan(self, *inputs):
        built = super().plan(*inputs)
        blocks, own = built.grid_fn(built.tiling), built.grid_fn

        def grid(tiling):
            self.seen.append(tiling.tile)
            return blocks if self.bound else own(tiling)

        built.grid_fn = grid
        return built


@pytest.mark.parametrize("bound", [False, True])
def test_what_was_decided_by_another_tiling_is_wrong(bound):
    plan = Decided(bound=bound, tilings={"toy": ToyTiling(tile=32)})
    assert check_plan(plan).ok
    Decided.seen.clear()
    result = check_plan(plan, retuned=6)
    assert result.ok != bound
    assert ("under tile=8" in result.explain()) == bound
    assert set(Decided.seen) == {8, 16, 32}, "what is no valid tiling is left out"


def test_afterwards_it_is_bound_as_it_was():
    plan = Decided(tilings={"toy": ToyTiling(tile=32)})
    first = check_plan(plan, retuned=1).executions
    assert len(first) == 2


@dataclasses.dataclass(frozen=True, kw_only=True)
class OfAnother(ToyPlan):
    """Its stage has tilings that fit the plan that made the stage, and not this one."""

    def plan(self, *inputs):
        class Refusing(ToyTiling):
            def validate(self, plan):
                raise AssertionError

        built = super().plan(*inputs)
        built.autotune_configs = [Refusing(tile=8)]
        return built


def test_tilings_are_not_even_looked_at_unless_asked_for():
    assert check_plan(OfAnother()).ok
    with pytest.raises(AssertionError):
        check_plan(OfAnother(), retuned=1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Hiding(ToyPlan):
    """Gives 0, or what it read, where it read NaN; or NaN everywhere."""

    way: str = "right"

    def plan(self, *inputs):
        built = super().plan(*inputs)
        execute, (y,) = built.execute, built.output_tensors.values()

        def hidden():
            done = execute()
            if self.way == "zero":
                y.nan_to_num_(0.0)
            elif self.way == "spread" and y.isnan().any():
                y.fill_(float("nan"))
            return done

        built.execute = hidden
        return built


@pytest.mark.parametrize("way", ["right", "zero", "spread"])
def test_a_nan_comes_out_where_it_went_in_and_nowhere_else(way):
    plan = Hiding(way=way)
    assert check_plan(plan).ok
    result = check_plan(plan, nan=True)
    assert result.ok == (way == "right")
    assert ("y of an input with NaN" in result.explain()) == (way != "right")


def bound(way: str, *inputs: torch.Tensor) -> list[torch.Tensor]:
    """Inputs as a plan binds them: copied once, taken for whole, or as they lie."""
    if way == "copied":
        return [x.contiguous() for x in inputs]
    if way == "refused" and not all(x.is_contiguous() for x in inputs):
        raise PlanError("rows lie apart")
    if way == "whole":
        return [x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()) for x in inputs]
    if way == "grouped":  # All rows are taken to be as far apart.
        return [
            x.as_strided(x.shape, (x.shape[1] * x.stride(1), *x.stride()[1:]))
            if x.stride(0) > x.stride(1) else x
            for x in inputs
        ]  # fmt: skip
    if way == "turned":  # Rows are taken to lie in the order of the first axis first.
        rows = [min(x.stride()[:-1]) for x in inputs]
        steps = [(x.shape[1] * row, row, 1) for x, row in zip(inputs, rows, strict=True)]
        return [x.as_strided(x.shape, step) for x, step in zip(inputs, steps, strict=True)]
    return list(inputs)


@pytest.mark.parametrize(
    ("way", "said"),
    [
        ("right", ""), ("refused", ""), ("copied", "o of inputs whose rows lie apart"),
        ("whole", "o of inputs whose rows lie apart"),
        ("grouped", "o of inputs whose rows lie apart by groups"),
        ("turned", "o of inputs whose rows lie in another order"),
    ],
)  # fmt: skip
def test_rows_may_lie_otherwise_unless_a_plan_refuses_them(way, said, monkeypatch):
    plan_class = registry.find("flash_mla@cutile-dsl", "v0").plan_class()
    plan, own = plan_class(b=2, h=3, s=1, t=40, k=128), plan_class.plan

    def plan_otherwise(self, q, qpe, z, kpe):
        return own(self, q, qpe, *bound(way, z, kpe))

    monkeypatch.setattr(plan_class, "plan", plan_otherwise)
    assert check_plan(plan).ok
    result = check_plan(plan, beside=True)
    assert result.ok == (not said)
    assert said in result.explain()
    if way in {"grouped", "turned"}:
        assert "lie apart:" not in result.explain()


def test_an_input_that_a_plan_refuses_apart_hides_no_other(monkeypatch):
    plan_class = registry.find("flash_mla@cutile-dsl", "v0").plan_class()
    plan, own = plan_class(b=2, h=3, s=1, t=40, k=128), plan_class.plan

    def plan_otherwise(self, q, qpe, z, kpe):
        (q,) = bound("refused", q)
        return own(self, q, qpe, *bound("grouped", z, kpe))

    monkeypatch.setattr(plan_class, "plan", plan_otherwise)
    assert "o of inputs whose rows lie apart by groups" in check_plan(plan, beside=True).explain()


def test_inputs_hold_what_they_held():
    plan = ToyPlan()
    (x,) = plan.prepare_inputs()
    (before,) = plan.prepare_inputs()
    assert [*further_runs.with_nan(plan, plan.plan(x), [x])]
    assert torch.equal(x, before)
    assert not [*further_runs.with_nan(plan, plan.plan(x), [x.byte()])]
