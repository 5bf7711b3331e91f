"""Problems of servers: lengths, the set, costs by length, pages and lists."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import PlanError
from mla_var3.workloads import mla
from mla_var3.workloads.mla.problems import FAR


@given(b=st.integers(1, 64), t=st.integers(16, 5000), kind=st.sampled_from(mla.LENGTHS))
def test_lengths_keep_the_number_of_keys(b, t, kind):
    lengths = mla.drawn_lengths(b, t, kind)
    assert lengths == mla.drawn_lengths(b, t, kind)
    assert len(lengths) == b
    assert min(lengths) >= 1
    if kind == "ragged":
        assert t // 2 <= min(lengths) <= max(lengths) <= t * 3 // 2
    elif kind == "one" and b > 1:
        assert lengths[0] == mla.serving.LONGER * lengths[1]
        assert b * t - (b + 10) <= sum(lengths) <= b * t
    else:
        assert lengths == [t] * b


def test_the_set_is_what_servers_have():
    problems = mla.serving_set()
    assert len({p.name for p in problems}) == len(problems) == 60
    assert {p.s for p in problems} == {1, 2, 4}
    assert {min(p.h for p in problems), max(p.h for p in problems)} == {16, 128}
    assert {min(p.b for p in problems), max(p.b for p in problems)} == {1, 256}
    assert all(sum(p.drawn()) < 1 << 20 for p in problems)
    assert mla.WORKLOAD.sets["serving"]()[0] == problems[0].fields()


@pytest.mark.parametrize(
    ("name", "day"), [("fresh", 27), ("unseen", 27), ("later", 27), ("third", 28)]
)
def test_further_sets_are_drawn_and_not_chosen(name, day):
    draw, drawn = random.Random(f"serving-{name} 2026-11-{day}"), []
    while len(drawn) < 60:
        kind = mla.LENGTHS[len(drawn) % 3]
        b = round(2 ** draw.uniform(0, 8))
        t = round(2 ** draw.uniform(9, min(17, 20 - math.log2(b))))
        s, h = draw.choice((1, 2, 4)), draw.choice(range(16, 129, 16))
        if b > 1 or kind == "equal":
            drawn.append(f"b={b} s={s} h={h} t={t} {kind}")
    problems = mla.serving_set(mla.serving.SET.with_name(f"serving-{name}.toml"))
    assert [p.name for p in problems] == drawn
    assert len({*drawn, *(p.name for p in mla.serving_set())}) == 120
    assert len(mla.WORKLOAD.sets[f"serving-{name}"]()) == 60


def test_each_context_is_read_whole_and_by_lists():
    found = mla.WORKLOAD.sets["dense-or-sparse"]()
    dense, sparse = found[::2], found[1::2]
    assert len(dense) == len(sparse) == 24
    for whole, listed in zip(dense, sparse, strict=True):
        assert {x: whole[x] for x in "bsht"} == {x: listed[x] for x in "bsht"}
        assert (set(whole) ^ set(listed)) == {"page", "topk"}
    assert max(dense, key=lambda x: x["b"] * x["t"]) in dense[-2:]


@given(n=st.lists(st.integers(1, 5000), min_size=1, max_size=5))
def test_cost_follows_the_lengths(n):
    whole = mla.paged_cost(16, 1, n, 512, 64, 2, sum(n))
    alone = [mla.flash_mla_cost(1, 16, 1, t, 512, 64, 2) for t in n]
    assert (whole.flops, whole.bytes) == (sum(c.flops for c in alone), sum(c.bytes for c in alone))


@pytest.mark.parametrize("page", [None, 1, 64, 100])
@pytest.mark.parametrize("lengths", [None, "ragged", "one"])
def test_pages_change_no_result(page, lengths):
    class Problem(mla.PagedLatentProblem):
        __abstractmethods__ = frozenset()

    problem = Problem(b=2, h=3, s=2, t=90, k=32, p=16, page=page, lengths=lengths, causal=True)
    problem.validate()
    q, qpe, z, kpe, table, keys = problem.prepare_inputs()
    assert keys.tolist() == problem.drawn()
    found = problem.reference_fn(q, qpe, z, kpe, table, keys)
    for i, n in enumerate(keys.tolist()):
        rows = [x[table[i].long()].flatten(0, 1)[:n].double() for x in (z, kpe)]
        scores = torch.einsum("shk,tk->hst", q[i].double(), rows[0])
        scores = (scores + torch.einsum("shp,tp->hst", qpe[i].double(), rows[1])) * problem.scale
        seen = torch.arange(n)[None] <= torch.arange(2)[:, None] + n - 2
        scores = scores.masked_fill(~seen, -math.inf)
        o = torch.einsum("hst,tk->shk", scores.softmax(-1), rows[0])
        assert torch.allclose(found["o"][i].double(), o, atol=1e-4)
        assert torch.allclose(found["lse"][i].double(), scores.logsumexp(-1), atol=1e-4)


@pytest.mark.parametrize("page", [None, 1, 64, 100])
def test_sequences_without_keys_and_pages_without_tokens_change_no_other(page):
    class Problem(mla.PagedLatentProblem):
        __abstractmethods__ = frozenset()

    plain = Problem(b=3, h=2, s=2, t=90, k=32, p=16, page=page, causal=True)
    problem = dataclasses.replace(plain, absent=True, spare=True)
    *_, z, _, table, keys = inputs = problem.prepare_inputs()
    assert keys.tolist() == [90, 0, 90]
    past = table[torch.arange(table.shape[1]) >= -(-keys[:, None] // z.shape[1])]
    assert len(past) > 3
    assert z[past.long()].isnan().all()
    found = problem.reference_fn(*inputs)
    assert not any(x.isnan().any() for x in found.values())
    assert found["o"][1].count_nonzero() == 0
    assert found["lse"][1].eq(-math.inf).all()
    assert [x.shape for x in problem.prepare_inputs("meta")] == [x.shape for x in inputs]
    assert problem._algorithmic_flops_bytes().flops < plain._algorithmic_flops_bytes().flops


@pytest.mark.parametrize("extreme", [{"shift": FAR}, {"rise": FAR}, {"spread": 48.0}])
def test_a_list_may_name_a_token_twice_and_have_far_scores(extreme):
    class Problem(mla.SparseLatentProblem):
        __abstractmethods__ = frozenset()

    plain = Problem(b=2, h=3, s=2, t=90, topk=20)
    problem = dataclasses.replace(plain, repeated=True, **extreme)
    chosen = problem.prepare_inputs()[3]
    assert all(len(set(row.tolist())) == 10 for row in chosen)
    before, now = (x.reference_fn(*x.prepare_inputs())["lse"] for x in (plain, problem))
    assert (now - before)[-1].abs().max() > 20
    assert not now.isnan().any()


@pytest.mark.parametrize(("spread", "powers"), [(1.0, False), (48.0, True)])
def test_scales_of_a_cache_with_far_scores_are_powers_of_two(spread, powers):
    class Problem(mla.SparseLatentProblem):
        __abstractmethods__ = frozenset()

    problem = Problem(b=2, h=3, t=90, topk=20, spread=spread)
    cache = problem.prepare_inputs()[2]
    scales = cache[..., problem.k :][..., : 4 * problem.k // 128].contiguous().view(torch.float32)
    assert scales.frexp().mantissa.eq(0.5).all().item() is powers


def test_unknown_lengths_are_refused():
    class Problem(mla.PagedLatentProblem):
        __abstractmethods__ = frozenset()

    with pytest.raises(PlanError, match="lengths='long' is not one of equal, ragged, one"):
        Problem(lengths="long").validate()
