"""What the problems of a check went through, and the problems that are made for it."""

from __future__ import annotations

import dataclasses
import json
import random
import re

import cuda.tile as ct
import pytest
import torch
from rich.console import Console

from mla_var3.app import checking
from mla_var3.errors import UnknownNameError
from mla_var3.interpreter import launch
from mla_var3.profiling.static import parse_archs
from mla_var3.runtime import coverage, registry, unreached
from mla_var3.runtime.cases import cases
from mla_var3.workloads import mla
from mla_var3.workloads.base import MOST_FLOPS, MOST_STEPS
from mla_var3.workloads.gemm import GemmProblem

CUTILE = [v for v in registry.versions() if v.language == "cutile-dsl"]


@ct.kernel
def sums(x: ct.Array, y: ct.Array, LIMIT: ct.Constant[int], TILE: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1, TILE), ct.float32)
    for i in range(ct.cdiv(x.shape[1], TILE)):
        total = total + ct.load(x, (row, i), (1, TILE), padding_mode=ct.PaddingMode.ZERO)
    if row > LIMIT:
        total = total * 2.0
    ct.store(y, (row, 0), total)


def facts(rows: int, columns: int, limit: int = 0) -> coverage.Facts:
    x, y = torch.ones(rows, columns), torch.empty(rows, 16)
    return launch((rows,), sums, (x, y, limit, 16)).facts


def said(*runs: coverage.Facts) -> str:
    return "; ".join(coverage.gaps(coverage.joined(runs)))


@ct.kernel
def clamped(x: ct.Array, y: ct.Array, most):
    block = ct.bid(0)
    row = ct.minimum(block, 1) % 2
    tile = ct.load(x, (row, 0), (1, 16), padding_mode=ct.PaddingMode.ZERO)
    column = ct.arange(16, dtype=ct.int32)[None, :]
    ct.store(y, (block, 0), ct.where(column < most, tile, 0.0))


def clamped_facts(rows: int, most: int) -> coverage.Facts:
    return launch((rows,), clamped, (torch.ones(2, 16), torch.empty(rows, 16), most)).facts


def test_whole_numbers_and_comparisons_go_both_ways():
    text = said(clamped_facts(1, 16))
    assert "row = ct.minimum(block, 1) % 2 never was its second operand" in text
    assert "row = ct.minimum(block, 1) % 2 never wrapped" in text
    assert "column < most, tile, 0.0)) always held" in text
    assert "argument most was always 16" in text
    assert "extent axis 0 of y was always 1" in text
    text = said(clamped_facts(1, 16), clamped_facts(3, 5))
    assert "never was" not in text
    assert "column < most" not in text
    assert "most was always" not in text
    assert "never wrapped" in text  # It never does: the minimum is 1.
    assert "comparison" not in text  # The signs that a remainder asks for are not the source's.


def test_one_small_launch_leaves_gaps():
    text = said(facts(1, 16))
    assert "row = ct.bid(0) never had a second block" in text
    assert re.search("axis 0 of x in .* was always at tile 0", text)
    assert re.search("axis 1 of x in .* was always at tile 0", text)
    assert "never ran more than once" in text
    assert "was never taken" in text


def test_launches_together_close_them():
    text = said(facts(2, 40), facts(3, 16), facts(2, 16, limit=1))
    # An argument of no column is no problem that anybody has.
    assert text.count("never ran zero times") == 1
    assert len(text.split("; ")) == 3
    assert "was always taken" in said(facts(3, 40, limit=-1))


def test_edges_are_noted_along_moving_axes():
    found = facts(2, 40)
    edges = {
        place.split("axis ")[1]: ways for (kind, place), ways in found.items() if kind == "edge"
    }
    assert next(ways for place, ways in edges.items() if place.startswith("1 of x")) == {
        "whole",
        "ragged",
    }


def test_a_constant_index_is_no_gap():
    assert not [place for kind, place in facts(2, 16) if kind == "tile" and "axis 1 of y" in place]


@pytest.mark.parametrize("problem", [mla.LatentProblem(), mla.MixedProblem(), GemmProblem()])
def test_made_problems_vary_every_axis(problem):
    rng = random.Random(0)
    made = [found for _ in range(40) if (found := problem.varied(rng, problem.tries())) is not None]
    assert len(made) > 30
    assert all(one._algorithmic_flops_bytes().flops <= MOST_FLOPS for one in made)
    assert all(one.steps() <= MOST_STEPS for one in made)
    for field in problem.option_fields():
        values = {getattr(one, field.name) for one in made}
        assert len(values) > 1, field.name


@pytest.mark.parametrize("version", CUTILE, ids=lambda v: v.key)
def test_made_problems_are_the_same_each_time(version):
    plan = version.plan_class()()
    made = cases(plan, 5)[len(plan.check_plans()) :]
    assert made == cases(plan, 5)[len(plan.check_plans()) :]
    drawn, at_edges = made[:5], made[5:]
    assert len(drawn) == 5
    # By default, tuned, doubled, each number of a tiling by itself, and on few multiprocessors.
    numbers = [
        sum(type(f.default) is int for f in dataclasses.fields(plan.default_tiling(stage)))
        for stage in plan.tiling_types
    ]
    assert len(at_edges) <= (4 + max(numbers)) * len(plan.edges())


LOOP = ("loop", "k.py:3: for i in range(n):")
GAP = "loop k.py:3: for i in range(n): never ran more than once"


def outcome(version, *ways):
    return checking.CheckOutcome(version.key, "a", facts={LOOP: set(ways)})


@pytest.fixture
def gemms(monkeypatch):
    """Both versions of a design, whose gaps are as ``reasons`` says."""
    reasons: dict[str, str] = {}
    monkeypatch.setattr(unreached, "named", lambda _: reasons)
    return registry.select("gemm@cutile-dsl"), reasons


def test_what_no_problem_reached_is_open_until_it_is_argued(gemms):
    (first, second), reasons = gemms
    outcomes = [outcome(first, "one"), outcome(first, "none"), outcome(second, "none", "many")]
    assert checking.covers(first, outcomes, []).open == (GAP,)
    assert "gemm v0 fails: no problem shows these" in checking.covers(first, outcomes, []).text()
    assert checking.covers(second, outcomes, []).text() == ""
    reasons[unreached.without_line(GAP)] = "why"
    assert checking.covers(first, outcomes, []).open == ()
    assert checking.covers(first, outcomes, []).argued == {GAP: "why"}


def test_a_reason_that_nobody_needs_fails_where_the_whole_design_was_checked(gemms):
    versions, reasons = gemms
    reasons[unreached.without_line(GAP)] = "why"
    ran = [outcome(version, "none", "many") for version in versions]
    covered = [checking.covers(version, ran, []) for version in versions]
    assert len(list(checking.needless(covered))) == 1
    assert list(checking.needless(covered[:1])) == []
    ran[0] = outcome(versions[0], "none")
    covered[0] = checking.covers(versions[0], ran, [])
    assert list(checking.needless(covered)) == []


def test_a_gap_fails_the_check_and_stands_in_its_record(gemms, monkeypatch, tmp_path, capsys):
    versions, reasons = gemms
    monkeypatch.setattr(checking, "out_dir", lambda: tmp_path)
    groups = [checking.Group(v.qualified, v.version, (case(v),)) for v in versions]
    monkeypatch.setattr(checking, "_groups", lambda _: (groups, {}))
    ran = [outcome(version, "none") for version in versions]
    monkeypatch.setattr(checking, "check_groups", lambda *_, **__: ran)
    monkeypatch.setattr(checking.plan_values, "gaps", lambda *_: [])
    assert checking.check(versions, Console()) == checking.EXIT_FAILED
    reasons[unreached.without_line(GAP)] = "why"
    assert checking.check(versions, Console()) == 0
    first, second = sorted((tmp_path / "check").iterdir())
    assert json.loads(first.read_text())["gemm v0"]["not reached"] == [GAP]
    assert json.loads(second.read_text())["gemm v1"]["not reached, argued"] == {GAP: "why"}


def case(version):
    return cases(version.plan_class()())[0]


def test_values_that_others_bound_are_cut_to_them():
    mixed = varied(mla.MixedProblem())
    assert all(one.n <= one.t for one in mixed)
    assert {one.n == one.t for one in mixed} == {True, False}
    shared = varied(mla.SharedPrefixProblem())
    assert all(one.prefix <= one.shared <= one.t for one in shared)
    assert {one.groups for one in shared} == {1, 2, 3, 7}


def varied(problem):
    made = [problem.varied(random.Random(seed), problem.tries()) for seed in range(40)]
    return [one for one in made if one is not None]


def test_lists_and_names_with_an_empty_part_are_refused():
    with pytest.raises(UnknownNameError, match="unknown arch ''"):
        parse_archs("sm_90,,sm_100", "cutile-dsl")
    with pytest.raises(UnknownNameError, match="unknown design 'flash_mla@'"):
        registry.find("flash_mla@")
