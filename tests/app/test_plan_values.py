"""What plans decide, over the problems of a check."""

from __future__ import annotations

import dataclasses

import pytest

from mla_var3.app import checking, few_builds, plan_values
from mla_var3.runtime import cases, registry

STEPS = few_builds.MOST_STEPS


def plan_of(design, version):
    return registry.find(design, version).plan_class()()


@pytest.fixture
def short():
    """Problems of a version that all have a single part."""
    plan = plan_of("thin_mla@cute-dsl", "v1")
    return plan, [dataclasses.replace(plan, b=1, h=8, s=s, t=t) for s, t in ((1, 65), (2, 130))]


def test_a_number_that_all_problems_share_is_a_gap(short):
    plan, those = short
    gaps = plan_values.gaps(plan, those, STEPS)
    assert "plan parts (attention) was always 1" in gaps
    assert not any("scale" in gap or "dtype" in gap for gap in gaps)


def test_problems_are_found_until_none_is_left(short):
    plan, those = short
    more = list(plan_values.unseen(plan, those, STEPS))
    assert 0 < len(more) <= len(plan_values.gaps(plan, those, STEPS))
    assert {plan_values.of(one)["attention", "parts"] for one in more} - {"1"}
    assert plan_values.gaps(plan, those + more, STEPS) == []
    assert more == list(plan_values.unseen(plan, those, STEPS))


def test_of_problems_that_show_as_much_the_cheap_one_is_taken(short):
    plan, those = short
    few, many = (
        next(plan_values.unseen(plan, those, STEPS, lambda one, w=w: (w * one.steps(), 1)))
        for w in (1, -1)
    )
    shown, best = plan_values.shown(plan, those, STEPS)
    assert {shown(few), shown(many)} == {max(map(shown, best))}
    assert few.steps() == min(one.steps() for one in best)
    assert many.steps() == max(one.steps() for one in best)
    assert few.steps() < many.steps()


def test_nothing_is_shown_where_nothing_is_left(short):
    plan, those = short
    all_ = [*those, *plan_values.unseen(plan, those, STEPS)]
    shown, best = plan_values.shown(plan, all_, STEPS)
    assert best == []
    assert shown(those[0]) == 0


def test_launches_that_a_plan_leaves_out_are_a_gap():
    plan = plan_of("flash_mla@cute-dsl", "v8")
    whole = dataclasses.replace(plan, b=2, h=3, s=5, t=257, parts=3)
    alone = dataclasses.replace(whole, parts=1)
    assert set(plan_values.of(alone)) < set(plan_values.of(whole))
    assert "plan launches was always attention, merge" in plan_values.gaps(plan, [whole], STEPS)
    assert "plan launches was always attention, merge" not in plan_values.gaps(
        plan, [whole, alone], STEPS
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "key", ["thin_mla@cute-dsl v1", "thin_mla@cute-dsl v0", "flash_mla@cute-dsl v5",
            "flash_mla_split_kv@cutile-dsl v1", "gemm@cutile-dsl v1"],
)  # fmt: skip
def test_problems_of_a_check_leave_none(key):
    version = registry.find(*key.split())
    those = [case.plan for case in checking.cases_of(version)]
    assert plan_values.gaps(version.plan_class()(), those, checking._steps(version)) == []


def test_what_is_not_compiled_first_gets_them_too(monkeypatch):
    version = registry.find("gemm@cutile-dsl", "v1")
    other = dataclasses.replace(version.plan_class()(), m=17, n=33, k=65)
    monkeypatch.setattr(plan_values, "unseen", lambda *_: iter([other]))
    assert checking.cases_of(version)[-1] == cases.Case(other, "default", "forward")


def test_a_plan_that_refuses_decides_nothing():
    plan = plan_of("thin_mla@cute-dsl", "v1")
    many = dataclasses.replace(plan.default_tiling("attention"), parts=1000)
    assert plan_values.of(dataclasses.replace(plan, tilings={"attention": many})) is None
