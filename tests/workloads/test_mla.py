"""References, cost models and sizes of the MLA problems."""

from __future__ import annotations

import dataclasses
import functools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.devices import Ceilings, Machine
from mla_var3.devices.model import all_devices
from mla_var3.errors import PlanError
from mla_var3.runtime import registry
from mla_var3.workloads import Cost
from mla_var3.workloads.attention import AttentionProblem
from mla_var3.workloads.mla import (
    TIE,
    attention_reference,
    best_new_tokens,
    flash_attention_cost,
    flash_mla_cost,
    ladder,
    mixed_cost,
    seen_pairs,
)
from mla_var3.workloads.mla.fp8_pages import PagedFp8Problem
from mla_var3.workloads.mla.problems import (
    BOTTOM,
    FAR,
    HELD,
    LEVEL,
    MANY,
    MAX_EXTENT,
    TINY,
    held,
)

LATENT = registry.find("flash_mla").plan_class()
DECOMPRESSED = registry.find("flash_attention").plan_class()
MIXED = registry.find("mla_var6_plus").plan_class()
PREFIX = registry.find("mla_shared_prefix@cutile-dsl").plan_class()
PEAK_TFLOPS, PEAK_GBPS = 694.0, 4270.0
MACHINE = Machine("nvidia-h200-sxm", PEAK_TFLOPS, PEAK_GBPS, 132)

sizes = st.integers(1, 64)
extents = st.sampled_from([16, 32, 64, 128])


def naive(scores: torch.Tensor, values: torch.Tensor, causal: bool):
    """Row by row, with Python's loops: scores [b,h,s,t], values [b,h,t,n]."""
    b, h, s, t = scores.shape
    out = torch.zeros(b, h, s, values.shape[-1], dtype=torch.float64)
    lse = torch.full((b, h, s), -math.inf, dtype=torch.float64)
    for i in range(s):
        seen = min(t - s + i + 1, t) if causal else t
        if seen > 0:
            row = scores[:, :, i, :seen].double()
            weights = row.exp()
            lse[:, :, i] = weights.sum(-1).log()
            weights = weights / weights.sum(-1, keepdim=True)
            out[:, :, i] = torch.einsum("bht,bhtn->bhn", weights, values[:, :, :seen].double())
    return out, lse


@settings(max_examples=40)
@given(s=st.integers(1, 12), t=st.integers(1, 12), causal=st.booleans(), seed=st.integers(0, 99))
def test_softmax_reference_row_by_row(s, t, causal, seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(2, 3, s, t, generator=generator)
    weights, lse = attention_reference(scores, causal=causal)
    values = torch.randn(2, 3, t, 5, generator=generator)
    out, expected = naive(scores, values, causal)
    assert torch.allclose(weights.double() @ values.double(), out, atol=1e-6)
    assert torch.allclose(lse.double(), expected, atol=1e-5)
    assert not weights.isnan().any()


def test_rows_without_keys_are_zero_and_minus_infinity():
    weights, lse = attention_reference(torch.randn(1, 1, 5, 3), causal=True)
    assert (lse[0, 0, :2] == -math.inf).all()
    assert (weights[0, 0, :2] == 0).all()
    assert torch.allclose(weights[0, 0, 2:].sum(-1), torch.ones(3))


def absorbed(plan_class, **fields):
    return plan_class(b=2, h=3, s=4, t=7, p=16, dtype="fp16", **fields)


@pytest.mark.parametrize("causal", [False, True])
class TestReferences:
    def test_latent(self, causal):
        plan = absorbed(LATENT, k=32, causal=causal)
        q, qpe, z, kpe = inputs = plan.prepare_inputs()
        full = torch.cat([q, qpe], -1).double() @ torch.cat([z, kpe], -1).double()[:, None].mT
        out, lse = naive(full / math.sqrt(128 + 16), z[:, None].expand(-1, 3, -1, -1), causal)
        self.same(plan.reference_fn(*inputs), out, lse)

    def test_decompressed(self, causal):
        plan = absorbed(DECOMPRESSED, d=32, causal=causal)
        q, qpe, key, value, kpe = inputs = plan.prepare_inputs()
        scores = q.double() @ key.double().permute(0, 2, 3, 1)
        scores = scores + qpe.double() @ kpe.double()[:, None].mT
        out, lse = naive(scores / math.sqrt(32 + 16), value.transpose(1, 2), causal)
        self.same(plan.reference_fn(*inputs), out, lse)

    @pytest.mark.parametrize("n", [0, 1, 3, 7])
    def test_mixed(self, causal, n):
        plan = absorbed(MIXED, d=32, k=64, n=n, causal=causal)
        q, q_latent, qpe, z, kpe, key, value, wv = inputs = plan.prepare_inputs()
        old = 7 - n
        z, key, value = z[:, :old], key[:, :n], value[:, :n]
        scores = torch.cat(
            [
                q_latent.double() @ z.double()[:, None].mT,
                q.double() @ key.double().permute(0, 2, 3, 1),
            ],
            -1,
        )
        scores = scores + qpe.double() @ kpe.double()[:, None].mT
        decompressed = torch.einsum("btk,hkd->bhtd", z.double(), wv.double())
        values = torch.cat([decompressed, value.double().transpose(1, 2)], dim=2)
        out, lse = naive(scores / math.sqrt(32 + 16), values, causal)
        self.same(plan.reference_fn(*inputs), out, lse)

    @staticmethod
    def same(reference, out, lse):
        assert set(reference) == {"o", "lse"}
        assert reference["o"].dtype == reference["lse"].dtype == torch.float32
        assert torch.allclose(reference["o"].double(), out, atol=1e-5)
        assert torch.allclose(reference["lse"].double(), lse, atol=1e-5)


def test_absorbed_and_plain_attention_agree():
    """score = q (z wk)^T = (q wk^T) z^T and o = (softmax z) wv: both plans, one problem."""
    b, h, s, t, d, k, p = 1, 2, 3, 9, 16, 32, 16
    generator = torch.Generator().manual_seed(0)

    def random(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64)

    q, qpe, z, kpe = random(b, h, s, d), random(b, h, s, p), random(b, t, k), random(b, t, p)
    wk, wv = random(h, k, d), random(h, k, d)
    key, value = (torch.einsum("btk,hkd->bthd", z, w) for w in (wk, wv))
    plain = DECOMPRESSED(b=b, h=h, s=s, t=t, d=d, p=p, causal=True)
    q_latent = torch.einsum("bhsd,hkd->bhsk", q, wk)
    # The latent plan's scale is of d = 128, the model's: bring it to this d.
    latent = LATENT(b=b, h=h, s=s, t=t, k=k, p=p, causal=True)
    ratio = plain.scale / latent.scale
    one = plain.reference_fn(q, qpe, key, value, kpe)
    two = latent.reference_fn(q_latent * ratio, qpe * ratio, z, kpe)
    assert torch.allclose(one["lse"], two["lse"], atol=1e-4)
    assert torch.allclose(one["o"], torch.einsum("bhsk,hkd->bhsd", two["o"], wv.float()), atol=1e-4)


class TestInputs:
    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_they_are_the_same_each_time_and_scores_are_near_one(self, plan_class):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=2, h=16, s=5, t=100, dtype="fp16", **fields)
        once, again = plan.prepare_inputs(), plan.prepare_inputs()
        assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))
        assert {x.dtype for x in once} == {torch.float16}
        reference = plan.reference_fn(*once)
        # LSE of t scores of unit variance is ln t + 1/2.
        assert reference["lse"].mean() == pytest.approx(math.log(100) + 0.5, abs=0.3)

    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_spread_scales_the_last_query_alone(self, plan_class):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=1, h=4, s=3, t=50, **fields)
        wide = dataclasses.replace(plan, spread=48.0)
        one = plan.reference_fn(*plan.prepare_inputs())["lse"]
        two = wide.reference_fn(*wide.prepare_inputs())["lse"]
        assert torch.equal(one[..., :-1], two[..., :-1])
        assert (two[..., -1] > 80).all()

    @pytest.mark.parametrize("shift", [FAR, BOTTOM])
    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_a_shift_moves_each_score_of_the_last_query(self, plan_class, shift):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=1, h=4, s=3, t=50, shift=shift, **fields)
        lse = plan.reference_fn(*plan.prepare_inputs())["lse"][..., -1]
        sides = torch.tensor([1.0, -1.0 if shift == BOTTOM else 1.0] * 2)
        assert ((lse - shift * sides).abs() < 12 + abs(shift) / 2**8).all()
        assert plan.extreme().startswith(f"scores near {shift:g}")
        assert ("and 80000" in plan.extreme()) is (shift == BOTTOM)

    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_scores_of_the_last_row_rise_along_the_keys(self, plan_class):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=1, h=4, s=3, t=50, rise=FAR, **fields)
        lse = plan.reference_fn(*plan.prepare_inputs())["lse"][0]
        assert abs(lse[-1, -1] - FAR) < 12
        assert (lse[:-1].abs() < 12).all()
        assert (lse[:, :-1].abs() < 12).all()
        assert plan.extreme() == f"scores that rise by {FAR:g}"

    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_keys_of_a_query_at_the_bottom_weigh_the_same(self, plan_class):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=1, h=4, s=3, t=50, shift=BOTTOM, **fields)
        inputs = plan.prepare_inputs()
        found = plan.reference_fn(*inputs)
        # As far above zero in every other head, and exactly so.
        last, depth = found["lse"][0, :, -1], math.log(plan.t)
        shifts = last - depth
        assert (last[0::2] == last[0]).all()
        assert (last[1::2] == last[1]).all()
        assert shifts[0] < 0.99 * BOTTOM < -0.99 * BOTTOM < shifts[1]
        assert plan.tolerance("lse").whole < 0.04
        assert plan.tolerance("o").whole < 0.015
        if plan_class is LATENT:
            mean = inputs[2].float().mean(1)
            torch.testing.assert_close(found["o"][:, 0, -1], mean, rtol=1e-4, atol=1e-4)

    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    @pytest.mark.parametrize("dtype", ["bf16", "fp16"])
    @pytest.mark.parametrize("level", [LEVEL, TINY])
    def test_large_and_tiny_values_are_all_negative(self, plan_class, level, dtype):
        fields = {"n": 20} if plan_class is MIXED else {}
        plan = plan_class(b=1, h=4, s=3, t=50, level=level, dtype=dtype, **fields)
        o, level = plan.reference_fn(*plan.prepare_inputs())["o"], held(level, dtype)
        assert level / 8 < o.abs().mean() < 4 * level
        assert o.to(plan.torch_dtype).isfinite().all()
        assert plan_class is MIXED or (o < 0).all()

    def test_bf16_has_values_beyond_fp16_at_either_end(self):
        least, most = HELD["bf16"]
        assert 2**14 * least < torch.finfo(torch.float16).smallest_normal / 2**10
        assert most > 2**14 * torch.finfo(torch.float16).max

    def test_check_tries_scores_far_from_zero_and_a_tile_one_row_into_the_next_head(self):
        plans = LATENT().check_plans()
        assert {plan.shift for plan in plans} == {0.0, FAR, -FAR}
        crossing = [p for p in plans if p.causal and p.h > 1 and p.s % 64 == 63]
        assert {(p.s, p.t) for p in crossing} == {(127, 150)}

    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    def test_on_meta_only_shapes_are_made(self, plan_class):
        fields = {"n": 2**20} if plan_class is MIXED else {}
        plan = plan_class(b=64, h=128, s=2, t=2**21, **fields)
        inputs = plan.prepare_inputs("meta")
        small = dataclasses.replace(plan, b=1, t=4, **({"n": 2} if fields else {}))
        assert [x.dim() for x in inputs] == [x.dim() for x in small.prepare_inputs()]
        assert {x.device.type for x in inputs} == {"meta"}

    def test_a_path_without_tokens_keeps_one(self):
        for n, old, new in ((0, 9, 1), (9, 1, 9), (4, 5, 4)):
            inputs = MIXED(b=1, h=2, s=1, t=9, n=n).prepare_inputs("meta")
            assert (inputs[3].shape[1], inputs[5].shape[1]) == (old, new)


@given(b=sizes, h=sizes, s=sizes, t=sizes, d=extents, p=extents, w=st.sampled_from([1, 2, 4]))
def test_cost_of_plain_attention_counts_what_is_there(b, h, s, t, d, p, w):
    cost = flash_attention_cost(b, h, s, t, d, p, w)
    inputs = b * h * s * (d + p) + 2 * b * t * h * d + b * t * p
    assert cost.bytes == w * (inputs + b * h * s * d)
    assert cost.flops == 2 * b * h * s * t * ((d + p) + d)


@given(b=sizes, h=sizes, s=sizes, t=sizes, k=extents, p=extents, w=st.sampled_from([1, 2, 4]))
def test_cost_of_latent_attention_counts_what_is_there(b, h, s, t, k, p, w):
    cost = flash_mla_cost(b, h, s, t, k, p, w)
    assert cost.bytes == w * (b * h * s * (k + p) + b * t * (k + p) + b * h * s * k)
    assert cost.flops == 2 * b * h * s * t * ((k + p) + k)


@given(b=sizes, h=sizes, s=sizes, t=sizes, share=st.floats(0, 1))
def test_the_mix_is_latent_at_one_end_and_plain_at_the_other(b, h, s, t, share):
    d, k, p = 128, 512, 64
    n = round(share * t)
    flops = mixed_cost(b, h, s, t, n, d, k, p, 2).flops
    assert mixed_cost(b, h, s, t, 0, d, k, p, 2).flops == flash_mla_cost(b, h, s, t, k, p, 2).flops
    assert (
        mixed_cost(b, h, s, t, t, d, k, p, 2).flops
        == flash_attention_cost(b, h, s, t, d, p, 2).flops
    )
    assert flops == 2 * b * h * s * (t * p + 2 * n * d + 2 * (t - n) * k)


class TestBestNewTokens:
    @settings(max_examples=60)
    @given(
        b=st.integers(1, 128), h=st.sampled_from([16, 64, 128]), s=st.integers(1, 200),
        t=st.integers(1, 3000), tflops=st.floats(10, 5000), gbps=st.floats(100, 10_000),
    )  # fmt: skip
    def test_no_multiple_of_the_tile_is_faster(self, b, h, s, t, tflops, gbps):
        def seconds(n):
            cost = mixed_cost(b, h, s, t, n, 128, 512, 64, 2)
            return max(cost.flops / (tflops * 1e12), cost.bytes / (gbps * 1e9))

        n = best_new_tokens(b, h, s, t, 128, 512, 64, 2, Ceilings(tflops, gbps))
        assert 0 <= n <= t
        assert n % 64 == 0 or n == t
        best = min(seconds(m) for m in {*range(0, t + 1, 64), t})
        assert seconds(n) <= best * (1 + TIE)

    def test_one_query_reads_the_latent_cache_and_many_do_not(self):
        def best(s):
            rates = Ceilings(PEAK_TFLOPS, PEAK_GBPS)
            return best_new_tokens(32, 128, s, 4096, 128, 512, 64, 2, rates)

        assert best(1) == 0
        assert 0 < best(16) < best(64) <= 4096
        assert best(1000) == 4096


class TestValidate:
    @pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
    @pytest.mark.parametrize(("name", "value"), [("p", 24), ("p", 1024), ("p", 8)])
    def test_extents_are_powers_of_two(self, plan_class, name, value):
        with pytest.raises(PlanError, match=f"{name}={value} is"):
            plan_class(**{name: value}).validate()

    @pytest.mark.parametrize(
        ("plan", "said"),
        [
            (LATENT(k=100), "k=100 is not a power of two from 16 to 512"),
            (DECOMPRESSED(d=0), "d=0 is below 16"),
            (MIXED(n=5000), "n=5000 exceeds t=4096"),
            (MIXED(n=-1), "n=-1 is below 0"),
            (LATENT(b=MAX_EXTENT + 1), f"b={MAX_EXTENT + 1} exceeds {MAX_EXTENT}"),
        ],
    )
    def test_others(self, plan, said):
        with pytest.raises(PlanError, match=said):
            plan.validate()

    def test_an_open_n_is_no_number(self):
        with pytest.raises(PlanError, match="n is open: resolve the problem"):
            _ = MIXED().old_tokens
        plan = MIXED().resolve(MACHINE)
        assert plan.n == plan.new_tokens == 4096 - plan.old_tokens
        assert MIXED(n=5).resolve(MACHINE).n == 5

    @given(t=st.integers(1, 10_000), share=st.floats(0, 1), s=st.integers(1, 200))
    def test_shrinking_keeps_the_share_of_new_tokens(self, t, share, s):
        plan = MIXED(t=t, s=s, n=round(share * t)).shrunk()
        plan.validate()
        assert plan.t == min(t, 200)
        assert plan.new_tokens / plan.t == pytest.approx(
            round(share * t) / t, abs=0.5 / plan.t + 1e-9
        )


@given(
    s=st.integers(1, 9),
    t=st.integers(1, 12),
    bounds=st.tuples(st.integers(0, 12), st.integers(0, 12)),
    causal=st.booleans(),
)
def test_seen_pairs_counts_what_the_mask_leaves(s, t, bounds, causal):
    first, last = sorted(min(x, t) for x in bounds)
    seen = sum(1 for i in range(s) for key in range(first, last) if not causal or key <= t - s + i)
    assert seen_pairs(s, t, causal, first, last) == seen


def attention_cost(plan) -> Cost:
    """What the mask bears on: the mixed problem's product with Wv is left out."""
    return plan.paths_cost() if isinstance(plan, MIXED) else plan._algorithmic_flops_bytes()


def test_the_mixed_problems_bound_covers_the_product_with_wv():
    plan = MIXED(b=2, h=4, s=3, t=64, n=0)
    whole, paths = plan._algorithmic_flops_bytes(), plan.paths_cost()
    assert whole.flops - paths.flops == 2 * 2 * 4 * 3 * plan.k * plan.d
    # Wv is read and o written; the partial outputs are no part of the least work.
    assert whole.bytes - paths.bytes == 2 * (4 * 512 * 128 + 2 * 4 * 3 * (128 - 128 - 512))
    decompressed = dataclasses.replace(plan, n=64)
    assert decompressed._algorithmic_flops_bytes().flops == decompressed.paths_cost().flops


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
def test_a_causal_square_costs_about_half(plan_class):
    extra = {"n": 256} if plan_class is MIXED else {}  # One path: the mask halves the sum of both.
    plans = [plan_class(b=1, h=2, s=256, t=256, causal=c, **extra) for c in (False, True)]
    full, half = (attention_cost(p.resolve(MACHINE)) for p in plans)
    assert half.flops * 2 * 256 == full.flops * 257
    assert half.bytes == full.bytes


def test_a_token_past_the_end_of_the_cache_is_none():
    plan = registry.find("sparse_mla").plan_class()(b=1, h=2, s=1, t=50, topk=20)
    *_, chosen, _ = plan.prepare_inputs()
    *inputs, strays, lengths = dataclasses.replace(plan, stray=True).prepare_inputs()
    assert (strays >= 64).sum() == 3
    absent = torch.where(strays >= 64, -1, chosen)
    one, two = (plan.reference_fn(*inputs, x, lengths) for x in (strays, absent))
    assert torch.equal(one["o"], two["o"])
    assert torch.equal(one["lse"], two["lse"])


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_a_tile_ends_with_the_first_key_of_a_tile(plan_class):
    plan = plan_class().edges()[0]
    assert plan.causal
    assert {(tile + plan.t - plan.s) % tile for tile in (32, 64, 128)} == {1}
    assert 512 % plan.s
    assert plan.h * plan.s > 512
    rows = torch.arange(plan.h * plan.s)
    heads = (rows.float() * torch.tensor(1 / plan.s, dtype=torch.float32)).int()
    assert (heads != rows // plan.s).any(), "what divides by a product shows"
    assert plan.h > 1


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_the_last_tile_of_keys_lacks_one(plan_class):
    plan = plan_class().edges()[1]
    assert not plan.causal
    assert {(plan.t + 1) % tile for tile in (32, 64, 128)} == {0}
    assert plan.h > 17


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_whole_tiles_end_within_one_twice_as_long(plan_class):
    plan = plan_class().edges()[2]
    assert not plan.causal
    assert [plan.t % tile for tile in (32, 64, 128)] == [0, 0, 64]


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_one_key_lacks_and_scores_are_far_below_zero(plan_class):
    (plan,) = [one for one in plan_class().edges() if one.shift]
    assert [plan.t % tile for tile in (64, 128)] == [63, 127]
    assert plan.shift < -800.0
    assert not plan.causal


def test_at_edges_a_single_token_of_many_is_old_or_new():
    found = MIXED().edges()
    (old,) = (one for one in found if one.old_tokens == 1)
    (new,) = (one for one in found if one.new_tokens == 1)
    assert {old.causal, new.causal} == {False}
    assert min(old.n, new.old_tokens) > 4 * 64


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_one_key_of_an_odd_tile_is_far_above_all_others(plan_class):
    found = [one for one in plan_class().edges() if one.jumps == ladder.HIGHEST]
    assert {getattr(one, "n", 0) for one in found} == {0, *([256] if plan_class is MIXED else [])}
    for plan in found:
        assert max(ladder.RUNGS[: -(-plan.h // 2)]) > 128, "which no weight in fp32 holds"
        (place,) = ladder.second_half(plan.t, plan.jumps).nonzero().flatten().tolist()
        assert [place // tile % 2 for tile in (64, 128)] == [1, 1]


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_keys_are_more_tiles_than_a_product_with_20_bits_holds(plan_class):
    (far,) = [one for one in plan_class().edges() if one.t > 2**17]
    assert -(-far.t // 64) * 2**20 > 2**31
    assert far.b * far.h * far.s == 1


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_tiles_of_queries_end_with_tiles_of_keys(plan_class):
    (plan,) = [one for one in plan_class().edges() if one.p == 128]
    assert plan.causal
    assert plan.s > 2 * 64
    assert plan.t % 128 == 0


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED, PREFIX])
def test_at_an_edge_one_query_is_behind_whole_tiles(plan_class):
    (plan,) = [one for one in plan_class().edges() if one.s > 1 and one.s % 128 == 1]
    assert plan.causal
    assert plan.t % 128 == 0


@pytest.mark.parametrize(
    ("design", "version", "forms"),
    [("flash_mla_split_kv", "v2", 1), ("mla_var6_plus", "v2", 2), ("mla_shared_prefix", "v0", 2)],
)
def test_at_edges_keys_are_in_more_pieces_than_a_device_has_multiprocessors(design, version, forms):
    edges = registry.find(f"{design}@cutile-dsl", version).plan_class()().edges()
    many = [one for one in edges if set(one.split_counts().values()) == {MANY}]
    assert len([one for one in many if not one.jumps]) == forms, "one per form of tokens"
    assert [one.jumps for one in many if one.jumps] == [ladder.FALLING], "and one key above all"
    assert all(one.is_valid() and one.t == MANY * 64 for one in many)
    cards = (device.sm_count for device in all_devices() if device.key.startswith("nvidia"))
    assert max(cards) < MANY


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
def test_of_a_long_tail_each_row_weighs_otherwise(dtype):
    """A good part of its output is of keys that weigh as little as a format holds."""
    falling = next(one for one in LATENT(dtype=dtype).edges() if one.jumps == ladder.FALLING)
    q, qpe, _, kpe = (x.float() for x in falling.prepare_inputs())
    scores = torch.einsum("bhsp,btp->bhst", qpe, kpe)[0, ::2, 0] * falling.scale / math.log(2)
    assert not q[0, ::2].any()
    assert (scores[:, 1:] == 0).all()
    falls = scores[:, 0].tolist()
    assert falls == pytest.approx(ladder.FALLS, abs=1e-3)
    shares = [(falling.t - 1) / (falling.t - 1 + 2**fall) for fall in falls]
    assert sorted(shares)[0] < 0.1 < 0.9 < sorted(shares)[-1]


@pytest.mark.parametrize("plan_class", [LATENT, DECOMPRESSED, MIXED])
def test_at_an_edge_whole_tiles_of_rows_see_no_key(plan_class):
    plan, whole = [one for one in plan_class().edges() if one.causal and one.s > one.t]
    assert plan.causal
    assert whole.causal
    assert whole.t % 128 == 0, "whole tiles of keys, of which the last queries see parts"
    assert plan.s - plan.t > 256, "as many rows as clusters share keys for"
    assert plan.t > 1, "and some see one"
    assert getattr(plan, "n", 0) == 0, "under the mask of a part that is not there"


def test_at_edges_a_product_with_a_reciprocal_gets_places_wrong():
    edges = LATENT().edges()
    cut = registry.find("flash_mla_split_kv@cutile-dsl").plan_class()().edges()
    counts = {one.b for one in edges} | {-(-one.s // rows) for one in edges for rows in (64, 128)}
    counts |= {one.splits for one in cut if one.splits}
    below = {n for n in counts if float(torch.tensor(float(n)) * (1 / torch.tensor(float(n)))) < 1}
    assert below >= {41, 82, 209}, "sequences or pairs of row tiles, row tiles, pieces of keys"


def test_at_an_edge_tiles_of_queries_end_with_tiles_of_keys_and_with_the_mask():
    assert [x for x in LATENT().edges() if x.causal and not x.s % 128 and not x.t % 128]
    assert [x for x in AttentionProblem().edges() if x.causal and not x.s % 128 and not x.t % 128]


def test_weights_in_e4m3_vanish_after_falls_that_a_short_sum_shows():
    short = max(x.t for x in PagedFp8Problem().edges() if x.jumps == ladder.FALLING)
    long = max(x.t for x in LATENT().edges() if x.jumps == ladder.FALLING)
    assert short == 32 * 64 < long


def test_none_is_new_of_a_problem_whose_mask_hides_keys():
    plans = [*MIXED().check_plans(), *MIXED().edges()]
    assert [one for one in plans if one.n == 0 and one.causal and min(one.s, one.t) > 1]


def test_at_edges_values_are_tiny_or_large_and_scores_jump():
    tiny, jumping, large, other, *_ = LATENT().edges()
    assert (tiny.level, tiny.dtype) == (other.level, other.dtype) == (TINY, "bf16")
    assert (large.level, large.dtype) == (LEVEL, "fp16")
    assert jumping.jumps
    assert jumping.h > len(ladder.RUNGS)


def test_at_an_edge_pages_end_within_steps_of_two_tiles():
    plan = registry.find("flash_mla@cute-dsl", "v13").plan_class()().edges()[-1]
    assert plan.page % 64 == 0
    assert 128 % plan.page
    assert plan.page % 128
    assert plan.t > 2 * plan.page


def test_one_list_is_shared_by_many_multiprocessors():
    plan = registry.find("sparse_mla").plan_class()(b=3, h=128, s=5, topk=3).shared_by(28)
    assert plan.is_valid()
    assert (plan.b, plan.s, plan.topk) == (1, 1, 28 * 64)


def test_lists_of_several_tiles_are_taken_in_turn():
    plan = registry.find("sparse_mla").plan_class()(b=9, s=5, topk=3, ending=True).in_turn(16)
    assert (plan.b, plan.h, plan.s, plan.topk) == (3, 16, 1, plan.t)
    assert plan.t // 64 % 2 == 1
    assert not plan.ending
    assert plan.is_valid()


def test_lists_in_turn_are_of_a_cache_in_pages_of_another_size():
    plan = registry.find("sparse_mla").plan_class()(s=5, topk=3).in_turn(16)
    cache = plan.prepare_inputs("meta")[2]
    assert cache.shape[1] not in (64, 128, 32, 16)
    assert cache.shape[0] * cache.shape[1] >= plan.b * plan.t > cache.shape[0]
    usual = dataclasses.replace(plan, page=64)
    assert usual.prepare_inputs("meta")[2].shape[1] == 64


def test_lists_in_turn_have_one_hole_in_each_tile():
    plan = registry.find("sparse_mla").plan_class()(s=5, topk=3).in_turn(16)
    *_, chosen, lengths = plan.prepare_inputs()
    holes = (chosen < 0).view(3, 5, 4, 16)
    assert (holes.sum((2, 3)) == 1).all()
    assert holes.any(3).sum((0, 1)).min() >= 3, "in each share of 16 places"
    assert (lengths == plan.topk).all()


def named_inputs(plan):
    return dict(
        zip(("q", "qpe", "z", "kpe", "table", "lengths"), plan.prepare_inputs(), strict=True)
    )


@pytest.mark.parametrize(
    ("design", "version"), [("flash_mla@cute-dsl", "v17"), ("blackwell_mla", "v2")]
)
def test_of_two_sequences_the_second_sums_up_large_negative_latents(design, version):
    plan = registry.find(design, version).plan_class()(page=64).shared_by(3, 2)
    assert plan.level >= 64
    usual, large = (named_inputs(dataclasses.replace(plan, level=x)) for x in (0.0, plan.level))
    first, second = large["table"].long()
    same = functools.partial(torch.testing.assert_close, rtol=0.0, atol=0.0, equal_nan=True)
    same(large["z"][first].float(), usual["z"][first].float())
    same(large["kpe"], usual["kpe"])
    assert (large["z"][second].float() <= 0).all()
    level = held(plan.level, plan.dtype)
    torch.testing.assert_close(
        large["z"][second].float(), -level * usual["z"][second].float().abs(),
        rtol=2**-3, atol=level,
    )  # fmt: skip
    assert not large["q"][1].float().any()
    assert large["q"][0].float().any()
    o = plan.reference_fn(*large.values())["o"]
    assert (o[1] < 0).all()
    assert o.isfinite().all()


@pytest.mark.parametrize(
    ("design", "version"),
    [("flash_mla@cute-dsl", "v17"), ("blackwell_mla", "v2"), ("sparse_mla", "v2")],
)
def test_latents_that_many_multiprocessors_share_are_tiny(design, version):
    plan = registry.find(design, version).plan_class()().shared_by(3)
    o = plan.reference_fn(*plan.prepare_inputs())["o"]
    assert 0 < o.abs().mean() < 4 * held(plan.level, plan.dtype) < 1


def test_of_two_lists_the_second_sums_up_large_negative_latents():
    plan = registry.find("sparse_mla", "v2").plan_class()(s=5).shared_by(3, 2)
    assert plan.level == 8000
    inputs = plan.prepare_inputs()
    o = plan.reference_fn(*inputs)["o"]
    assert (o[1] < -100).all()
    assert (o[0].abs() < 100).all()
    assert not inputs[0][1].any()
    assert inputs[0][0].any()


def test_a_sink_takes_weight_from_the_output_alone():
    plan = registry.find("sparse_prefill").plan_class()(b=1, h=67, s=3, t=90, topk=40, ending=True)
    sunk = dataclasses.replace(plan, sunk=True)
    inputs = plan.prepare_inputs()
    usual, found = plan.reference_fn(*inputs), sunk.reference_fn(*inputs)
    assert torch.equal(usual["lse"], found["lse"])
    assert torch.equal(usual["top"], found["top"])
    lse, sinks = usual["lse"][..., 0].double(), sunk.sinks(torch.device("cpu")).double()
    share = 1 - sinks.exp() / (sinks.exp() + lse.exp())
    torch.testing.assert_close(
        found["o"][:, 0].double(), usual["o"][:, 0].double() * share.nan_to_num(1.0)[..., None]
    )
    assert (sinks[64:] != sinks[:3]).all()
    assert 0 <= sinks.min() < lse[lse.isfinite()].max() < sinks.max()


def test_a_sink_is_tried():
    plan = registry.find("sparse_prefill").plan_class()()
    assert list(plan.tries()["sunk"]) == [False, True]
    made = dataclasses.replace(plan, b=1, h=3, s=2, t=9, topk=4, sunk=True)
    kernel = made.plan(*made.prepare_inputs("meta"))
    assert kernel.input_tensors["sink"].shape == (3,)


def test_of_a_shared_prefix_large_values_meet_a_jump():
    plan = registry.find("mla_shared_prefix@cutile-dsl").plan_class()()
    one, pieces = [x for x in plan.edges() if x.level > 1.0]
    assert (one.jumps, one.h) == (1, 4)
    assert (pieces.jumps, pieces.dtype, pieces.own_splits) == (0, "fp16", MANY)


def test_one_sequence_is_shared_by_many_multiprocessors():
    plan = LATENT(b=3, h=128, s=5).shared_by(28)
    assert plan.is_valid()
    assert (plan.b, plan.s, plan.t) == (1, 1, 28 * 64)
    both = LATENT(b=3, h=128, s=5).shared_by(28, 2)
    assert (both.b, both.s, both.t) == (2, 1, 28 * 64)


@pytest.mark.parametrize("rung", range(len(ladder.RUNGS)))
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_query_jumps_by_just_less_than_a_power_of_two(rung, dtype):
    scale, keys = 192**-0.5, torch.zeros(130, 16, dtype=dtype)
    queries = torch.zeros(len(ladder.RUNGS), 16, dtype=dtype)
    ladder.climb(queries, scale)
    ladder.steps(keys, ladder.second_half(130))
    scores = queries[rung].double() @ keys.double().T * scale / math.log(2)
    assert (scores[:128] == 0).all()
    assert ladder.RUNGS[rung] - 2 * ladder.LESS < scores[-1] < ladder.RUNGS[rung]
    assert (scores[128:] == scores[-1]).all()


@pytest.mark.parametrize(
    ("design", "version", "fields"),
    [
        ("flash_mla@cutile-dsl", "v0", {"t": 300}),
        ("flash_mla@cute-dsl", "v17", {"t": 300, "page": 64, "lengths": "ragged"}),
        ("flash_mla@cute-dsl", "v17", {"t": 300}),
        ("blackwell_mla", "v2", {"t": 300, "page": 64}),
        ("sparse_mla", "v2", {"t": 300, "topk": 200}),
    ],
)
def test_the_last_query_of_every_other_head_jumps(design, version, fields):
    plan = registry.find(design, version).plan_class()(b=2, h=5, s=1, jumps=1, **fields)
    usual = dataclasses.replace(plan, jumps=0)
    lse, other = (p.reference_fn(*p.prepare_inputs())["lse"].reshape(2, 5) for p in (plan, usual))
    first, second, third = lse[-1, ::2] / math.log(2)
    for found, rung in zip((first, second, third), ladder.RUNGS, strict=False):
        # So many keys are above the jump.
        assert rung < found < rung + math.log2(300)
    assert ((lse - other)[-1, 1::2].abs() < 1.0).all()


def test_a_single_key_may_be_above_the_jump_a_tile_later():
    all_of_them, one = (ladder.second_half(320, jumps) for jumps in (1, 2))
    assert one.nonzero().flatten().tolist() == [256]
    assert all_of_them.nonzero().flatten().tolist() == [*range(192, 320)]


@pytest.mark.parametrize("version", ["flash_mla@cutile-dsl", "flash_mla@cute-dsl"])
def test_queries_before_the_last_jump_where_a_single_head_rises(version):
    fields = {"b": 1, "h": 1, "s": 20, "t": 300, "jumps": 2}
    plan = registry.find(version).plan_class()(rise=FAR, **fields)
    lse = plan.reference_fn(*plan.prepare_inputs())["lse"].reshape(20) / math.log(2)
    for found, rung in zip(lse[19 - len(ladder.RUNGS) : 19], ladder.RUNGS, strict=True):
        # Those below the jump weigh together 300, which counts after a small one.
        assert found == pytest.approx(math.log2(2.0**rung + 300), abs=0.6)


def test_of_a_shared_prefix_scores_jump_to_the_prefix_too():
    fields = {"b": 2, "groups": 1, "h": 9, "s": 1, "t": 300, "shared": 100, "prefix": 100}
    plan = registry.find("mla_shared_prefix@cutile-dsl", "v0").plan_class()(jumps=1, **fields)
    *own, _, _, prefix_pe, _ = plan.prepare_inputs()
    _, _, qpe, _, kpe = own

    def mean(keys, head):
        return float((qpe[0, head, 0].float() @ keys.float().T).mean() * plan.scale / math.log(2))

    assert mean(prefix_pe[0], 0) == pytest.approx(ladder.RUNGS[2], abs=0.02)
    assert mean(kpe[0], 0) == 0.0
    assert mean(prefix_pe[0], 2) == 0.0
    assert float(kpe[0, -1].float() @ qpe[0, 2, 0].float()) > 0.0


def test_a_sequence_turns_out_shorter_than_was_planned():
    plan = registry.find("flash_mla@cute-dsl", "v17").plan_class()(page=64).shared_by(3, 2)
    assert plan.shortened
    inputs = named_inputs(plan)
    assert inputs["lengths"].tolist() == [-(-plan.t // 9), plan.t]
    assert plan.sequences() == [plan.t, plan.t]
    used = inputs["z"][inputs["table"][0].long()].flatten(0, 1)
    assert used[inputs["lengths"][0] :].isnan().all()
    assert plan.reference_fn(*inputs.values())["o"].isfinite().all()


def test_one_list_names_tokens_that_no_offset_in_32_bits_reaches():
    plan = registry.find("sparse_mla", "v2").plan_class()(s=5).shared_by(3)
    assert plan.distant
    _, _, cache, chosen, _ = plan.prepare_inputs()
    row = cache.shape[-1]
    usual = dataclasses.replace(plan, distant=0).prepare_inputs()
    assert int(chosen[chosen >= 0].min()) * row >= 2**31
    far = int((chosen - usual[3]).max())
    assert torch.equal(chosen[chosen >= 0] - far, usual[3][usual[3] >= 0])
    assert cache.shape[0] * cache.shape[1] > int(chosen.max())
