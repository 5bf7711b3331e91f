"""Launches of problems that are too large to be run."""

from __future__ import annotations

import pytest

from mla_var3 import languages
from mla_var3.app import checking, vast
from mla_var3.errors import PlanError
from mla_var3.languages.cute import _Cute
from mla_var3.runtime import registry
from mla_var3.runtime.kernel import GRID_LIMITS
from mla_var3.workloads.mla.problems import MlaProblem

ROWS = 128 * 1024
VERSIONS = [v for v in registry.versions() if languages.find(v.language).archs]


@pytest.mark.parametrize("version", VERSIONS, ids=lambda v: v.key)
def test_a_gpu_takes_what_is_launched_for_vast_problems(version):
    assert vast.refused(version.plan_class()()) == ""


def test_vast_problems_have_more_rows_than_a_grid_has_blocks_along_its_second_axis():
    (whole, cut) = registry.find("flash_mla_split_kv").plan_class()().vast()
    assert whole.h * whole.s > GRID_LIMITS[1]
    assert cut.splits == 2
    grids = [dict(one.plan(*one.prepare_inputs("meta")).stages()) for one in (whole, cut)]
    assert all(max(kernel.grid()) >= ROWS for kernel in (g["reduce"] for g in grids))


def test_a_grid_that_no_gpu_takes_is_named(monkeypatch):
    plan = registry.find("flash_mla@cute-dsl", "v13").plan_class()()
    monkeypatch.setattr(_Cute, "grid", lambda _self, _kernel: (132, ROWS, 1))
    said = vast.refused(plan)
    assert "b1-h128-s1024" in said
    assert f"cannot be launched: attention has a grid of (132, {ROWS}, 1)" in said
    monkeypatch.setattr(_Cute, "grid", lambda _self, _kernel: ())
    assert vast.refused(plan) == "", "where only a compile would say"


def test_blocks_that_cannot_all_run_at_once_are_named(monkeypatch):
    plan = registry.find("sparse_prefill@cute-dsl", "v0").plan_class()()
    assert vast.refused(plan) == ""
    cls = type(plan)
    monkeypatch.setattr(cls, "parts", property(lambda self: min(132 // (self.b * self.s), 16)))
    said = vast.refused(plan)
    assert "whose blocks have to run at once, and the GPU has 132 multiprocessors" in said


def test_what_a_plan_refuses_itself_is_no_finding(monkeypatch):
    plan = registry.find("flash_mla@cute-dsl", "v13").plan_class()()
    monkeypatch.setattr(_Cute, "grid", lambda _self, _kernel: (132, ROWS, 1))

    def refuse(_self):
        raise PlanError("too many rows")

    monkeypatch.setattr(MlaProblem, "validate", refuse)
    assert vast.refused(plan) == ""


def test_a_check_says_so_once(monkeypatch):
    version = registry.find("gemm@cutile-dsl", "v0")
    monkeypatch.setattr(vast, "refused", lambda plan: f"{plan.slug()} cannot be launched")
    first, second = checking.cases_of(version)[:2]
    assert (first.metadata, second.metadata) == (True, False)
    assert "cannot be launched" in checking.check_case(version, first).explanation
    assert not checking.check_case(version, second).explanation
