"""Tilings that a walk compiles."""

from __future__ import annotations

from mla_var3 import devices
from mla_var3.campaign import candidates, cases
from mla_var3.runtime import registry


def test_candidates_begin_with_the_default_and_hold_it_once():
    plan = registry.find("gemm", "v0").plan_class()()
    found = candidates.candidates(plan, 1000)
    assert found[0] == {}
    assert plan.default_tiling("gemm").values() not in [each.get("gemm") for each in found]
    assert len(candidates.candidates(plan, 5)) == 5


def resolved(version):
    plan = version.plan_class()()
    return plan.resolve(devices.load("nvidia-h200-sxm").machine(plan.dtype))


def test_stages_that_have_to_fit_each_other_are_walked_together(monkeypatch):
    plan = resolved(registry.find("flash_mla_split_kv", "v1"))
    assert not candidates.is_joint(plan)
    assert max(map(len, candidates.candidates(plan, 99))) == 1
    monkeypatch.setattr(cases, "joint_validators", lambda found: [lambda: None])
    together = candidates.candidates(plan, 99)
    assert together[0] == {}
    assert {len(each) for each in together[1:]} == {2}
