"""Problems of few builds: what a version names, and what its builds take in turn."""

from __future__ import annotations

import pytest

from mla_var3.app import few_builds
from mla_var3.runtime import registry, unreached
from mla_var3.runtime.cases import Case

BUILDS = 2


def chosen(design: str, version: str) -> list[Case]:
    found = registry.find(design, version, "cute-dsl")
    return few_builds.chosen(found.plan_class()(), BUILDS, unreached.reaching(found))


def test_one_block_takes_items_of_unequal_steps_in_turn():
    found = chosen("hopper_attention", "v3")
    few = [one.plan for one in found if one.plan.tiling("attention").blocks == 1]
    assert any(plan.s == plan.t and plan.s > 128 and plan.causal for plan in few)


def test_a_problem_that_asks_for_it_is_launched_twice():
    longest = max(chosen("thin_mla", "v3"), key=lambda one: one.plan.t)
    assert longest.plan.tiling("attention").parts == 64
    assert longest.runs == 2


@pytest.mark.slow
@pytest.mark.parametrize(("design", "version"), [("blackwell_mla", "v2"), ("flash_mla", "v25")])
def test_a_last_tile_that_lacks_one_key_has_so_in_every_batch(design, version):
    lengths = [one.plan.drawn() for one in chosen(design, version) if not one.plan.causal]
    assert any({keys % 64 for keys in those} == {63} for those in lengths)
