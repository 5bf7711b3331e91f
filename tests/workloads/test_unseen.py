"""Keys that a query does not see have scores far above those of all that it sees."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from mla_var3.runtime import registry
from mla_var3.workloads.mla import unseen

#: Of whatever a query sees, as usual inputs have it.
USUAL = 30.0


def plan_of(design: str, version: str, **fields):
    return registry.find(design, version).plan_class()(unseen=1, **fields)


@pytest.mark.parametrize(
    ("design", "version", "fields"),
    [
        ("flash_mla@cutile-dsl", "v3", {}),
        ("flash_mla_fp8@cutile-dsl", "v0", {}),
        ("flash_attention@cutile-dsl", "v2", {}),
        ("mla_var6_plus@cutile-dsl", "v4", {"n": 30}),
        ("mla_var6_plus@cutile-dsl", "v4", {"n": 0}),
        ("mla_shared_prefix@cutile-dsl", "v0", {"shared": 20, "prefix": 20}),
        ("flash_mla@cute-dsl", "v17", {"page": 16}),
        ("blackwell_mla", "v2", {"page": 64}),
    ],
)
def test_two_queries_would_have_high_scores_but_for_the_mask(design, version, fields):
    plan = plan_of(design, version, b=2, h=3, s=9, t=50, causal=True, **fields)
    inputs = plan.prepare_inputs()
    lse = plan.reference_fn(*inputs)["lse"]
    open_ = dataclasses.replace(plan, causal=False).reference_fn(*inputs)["lse"]
    assert (lse.abs() < USUAL).all()
    for query in range(9):
        if query in unseen.asking(9):
            assert (open_[..., query] > 0.9 * unseen.SCORE).all()
        else:
            assert (open_[..., query].abs() < USUAL).all()


def test_where_nothing_is_hidden_inputs_are_as_usual():
    plan = plan_of("flash_mla@cutile-dsl", "v3", b=1, h=2, s=4, t=30)
    usual = dataclasses.replace(plan, unseen=0)
    assert all(map(torch.equal, plan.prepare_inputs(), usual.prepare_inputs()))


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_plain_attention_hides_high_scores_too(dtype):
    plan = plan_of("hopper_attention", "v0", b=1, h=2, s=9, t=50, d=64, causal=True, dtype=dtype)
    q, k, _ = (x.double() for x in plan.prepare_inputs())
    scores = q @ k.transpose(-1, -2) / 8
    assert (scores.tril(50 - 9).abs() < USUAL).all()
    assert (scores[:, :, 0, 42:] > 0.9 * unseen.SCORE).all()
    assert (scores[:, :, 4, 46:] > 0.9 * unseen.SCORE).all()


def test_the_first_token_past_a_sequence_would_have_a_high_score():
    plan = plan_of("flash_mla@cute-dsl", "v17", b=2, h=3, s=2, t=50, page=16)
    *inputs, lengths = plan.prepare_inputs()
    before, now = (plan.reference_fn(*inputs, lengths + n)["lse"] for n in (0, 1))
    assert (before.abs() < USUAL).all()
    assert (now[..., 0] > 0.9 * unseen.SCORE).all()
    assert (now[..., 1].abs() < 10 * USUAL).all(), "that of no other query"
    assert plan.reference_fn(*inputs, lengths + 2)["o"].isnan().all(), "what follows is no number"


def test_tokens_behind_a_lists_end_would_have_high_scores():
    plan = plan_of("sparse_mla", "v2", b=2, h=3, s=2, t=300, topk=200, ending=True)
    *inputs, lengths = plan.prepare_inputs()
    before = plan.reference_fn(*inputs, lengths)["lse"]
    now = plan.reference_fn(*inputs, torch.full_like(lengths, 200))["lse"]
    assert int(lengths[0]) < 200
    assert (before.abs() < USUAL).all()
    assert (now[0] > 0.9 * unseen.SCORE).all()
    assert (now[1:].abs() < USUAL).all()


def test_the_last_query_has_nothing_that_a_mask_hides():
    assert [unseen.asking(n) for n in (1, 2, 3, 4, 130)] == [[], [0], [0, 1], [0, 2], [0, 65]]
