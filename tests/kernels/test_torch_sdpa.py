"""torch_sdpa: values with both masks, what a library leaves open, and refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import PlanError
from mla_var3.runtime.execution import recording

from .attention_cases import assert_correct, make, outputs, versions

VERSIONS = versions("torch_sdpa")


@st.composite
def problems(draw):
    causal = draw(st.booleans())
    t = draw(st.integers(1, 150))
    return {
        "b": draw(st.integers(1, 3)),
        "h": draw(st.sampled_from([1, 3, 8])),
        "s": draw(st.integers(1, t if causal else 60)),
        "t": t,
        "d": draw(st.sampled_from([16, 40, 64, 128, 256])),
        "causal": causal,
        "dtype": draw(st.sampled_from(["bf16", "fp16"])),
    }


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=15)
@given(problem=problems())
def test_any_problem(version, problem):
    assert_correct(make("torch_sdpa", version, **problem))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_query_sees_the_keys_up_to_its_own(version):
    """Bottom-right: without the newest key, only the newest query's row differs."""
    plan = make("torch_sdpa", version, b=1, h=2, s=3, t=9, d=16, causal=True)
    q, k, v = plan.prepare_inputs("cpu")
    before = outputs(plan)["o"]
    changed = v.clone()
    changed[:, :, -1] += 4
    after = plan.plan(q, k, changed)()["o"]
    assert torch.equal(before[:, :, :-1], after[:, :, :-1])
    assert not torch.equal(before[:, :, -1], after[:, :, -1])


@pytest.mark.parametrize("version", VERSIONS)
def test_nothing_is_counted_and_the_cost_is_the_models(version):
    plan = make("torch_sdpa", version, b=2, h=3, s=4, t=10, d=16, causal=True)
    obj = plan.plan(*plan.prepare_inputs("cpu"))
    with recording() as ran:
        obj()
    assert [(e.mma_flops, e.bytes_loaded, e.diagnostics) for e in ran] == [(None, None, ())]
    [(_, kernel)] = obj.stages()
    assert kernel.grid() == ()
    assert kernel.language == "library"
    # Queries see 7, 8, 9 and 10 keys.
    assert obj.flops == 4 * 2 * 3 * (7 + 8 + 9 + 10) * 16
    assert obj.bytes == 2 * 2 * 2 * 3 * (4 + 10) * 16


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"b": 0}, "b=0 is below 1"),
        ({"d": 20}, "d=20 is not a multiple of 8 from 16 to 256"),
        ({"d": 264}, "d=264 is not a multiple of 8"),
        ({"s": 5, "t": 4, "causal": True}, "s=5 exceeds t=4"),
        ({"t": (1 << 24) + 1}, "t=16777217 exceeds 16777216"),
    ],
)
def test_refusals(version, fields, message):
    with pytest.raises(PlanError, match=message):
        make("torch_sdpa", version, **fields).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize("version", VERSIONS)
def test_without_memory_there_is_only_the_structure(version):
    obj = make("torch_sdpa", version).plan_empty(694.0, 4270.0)
    assert [tensor.device.type for tensor in obj.output_tensors.values()] == ["meta"]


@pytest.mark.parametrize("version", VERSIONS)
def test_there_is_no_tiling_to_choose(version):
    plan = make("torch_sdpa", version)
    for stage, offered in plan._autotune_configs().items():
        assert offered == []
        assert dataclasses.fields(plan.default_tiling(stage)) == ()


@pytest.mark.gpu
@pytest.mark.parametrize("version", VERSIONS)
def test_on_a_gpu(version):
    from mla_var3.runtime.check import check_plan

    plan = make("torch_sdpa", version, b=2, h=4, s=70, t=200, d=64, causal=True)
    assert check_plan(plan, "cuda").ok
