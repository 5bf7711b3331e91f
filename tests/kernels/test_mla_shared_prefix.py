"""mla_shared_prefix: values over any prefix, group and split; what the plan refuses and chooses."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import PlanError, TilingError
from mla_var3.kernel.cutile.mla.mla_shared_prefix.common import fewest_steps

from .attention_cases import assert_correct, machine, make, outputs, versions

VERSIONS = versions("mla_shared_prefix")


def plan_of(version: str = "v0", **fields):
    return make("mla_shared_prefix", version, **fields)


@st.composite
def problems(draw):
    """Groups, sizes and parts of any kind; k is small, since its loop is the same at any size."""
    groups, t = draw(st.integers(1, 2)), draw(st.integers(1, 150))
    s, causal = draw(st.integers(1, 9)), draw(st.booleans())
    most = max(t - s, 0) if causal else t
    shared = draw(st.integers(0, most))
    return {
        "b": groups * draw(st.integers(1, 3)), "groups": groups, "h": draw(st.sampled_from([1, 3])),
        "s": min(s, t) if causal else s, "t": t, "shared": shared,
        "prefix": draw(st.integers(0, shared)), "causal": causal, "k": 64,
        "dtype": draw(st.sampled_from(["bf16", "fp16"])),
        "prefix_splits": min(draw(st.integers(1, 3)), t),
        "own_splits": min(draw(st.integers(1, 3)), t),
    }  # fmt: skip


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8)
@given(fields=problems())
def test_any_prefix_groups_and_splits(version, fields):
    assert_correct(plan_of(version, **fields))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_prefix_decompressed_or_latent_gives_the_same_sums(version):
    """Keys and values that are the latents times Wk and Wv: then every n is the same attention."""
    b, h, s, t, d, k, p = 2, 2, 3, 40, 128, 64, 64
    torch.manual_seed(1)
    wk, wv = (torch.randn(h, k, d) * k**-0.5 for _ in range(2))
    shared, own = torch.randn(1, 24, k), torch.randn(b, t - 24, k)
    pe, own_pe = torch.randn(1, 24, p), torch.randn(b, t - 24, p)
    q, qpe = torch.randn(b, h, s, d), torch.randn(b, h, s, p)
    q_latent = torch.einsum("bhsd,hkd->bhsk", q, wk)
    key, value = (torch.einsum("gnk,hkd->gnhd", shared, w) for w in (wk, wv))
    every = torch.cat([shared.expand(b, -1, -1), own], 1)
    every_pe = torch.cat([pe.expand(b, -1, -1), own_pe], 1)

    def run(prefix: int):
        plan = plan_of(version, b=b, h=h, s=s, t=t, k=k, shared=24, prefix=prefix, dtype="fp16")
        first = max(prefix, 1)
        cut = (every[:, prefix:], every_pe[:, prefix:], key[:, :first], value[:, :first])
        given_ = (q, q_latent, qpe, *cut, pe[:, :first], wv)
        return plan.plan(*(x.half().contiguous() for x in given_))()

    latent, mixed, decompressed = run(0), run(10), run(24)
    for one in (mixed, decompressed):
        torch.testing.assert_close(one["o"], latent["o"], atol=4e-3, rtol=0)
        torch.testing.assert_close(one["lse"], latent["lse"], atol=4e-3, rtol=0)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shared": 5000}, "shared=5000 exceeds t=4096"),
        ({"shared": 64, "prefix": 65}, "prefix=65 exceeds shared=64"),
        ({"b": 3, "groups": 2}, "b=3 is not a multiple of groups=2"),
        ({"s": 9, "t": 16, "shared": 8, "causal": True}, "s=9 query tokens exceed"),
        ({"prefix_splits": 5000}, "prefix_splits=5000 exceeds t=4096"),
    ],
)
def test_refusals_show_their_arithmetic(fields, message):
    with pytest.raises(PlanError, match=message):
        plan_of(**fields).validate()


def test_a_prefix_block_takes_16_to_128_rows():
    plan = plan_of().resolve(machine())
    with pytest.raises(TilingError, match="8\\*1 = 8 rows"):
        dataclasses.replace(plan.prefix_tiling(), tile_b=8, tile_s=1).validate(plan)


def test_a_combine_step_divides_the_latent_dimension():
    plan = plan_of(k=128).resolve(machine())
    with pytest.raises(TilingError, match="tile_k=256 does not divide k=128"):
        dataclasses.replace(plan.combine_tiling(), tile_k=256).validate(plan)


def test_open_sizes_follow_from_the_device():
    speculative = plan_of(b=32, s=4).resolve(machine())
    assert (speculative.shared, speculative.prefix) == (3072, 3072)
    # A single sequence shares its prefix with nobody; at b=32 and s=1 the bytes cost more still.
    assert [plan_of(b=b, s=1).resolve(machine()).prefix for b in (1, 32, 128)] == [0, 0, 3072]
    assert plan_of(b=32, s=1, prefix=7).resolve(machine()).prefix == 7
    # Each group reads a prefix of its own, and so shares less.
    assert plan_of(b=32, s=4, groups=16).resolve(machine()).prefix == 0


@given(st.integers(1, 300), st.integers(1, 64), st.integers(1, 132))
def test_splits_never_take_longer_than_none(blocks, steps, sms):
    def waves(splits):
        return -(-blocks * splits // sms) * -(-steps // splits)

    splits = fewest_steps(lambda n: blocks * n, steps, sms)
    assert 1 <= splits <= max(steps, 1)
    assert waves(splits) <= waves(1)


def test_every_stage_has_the_work_of_its_part():
    plan = plan_of(b=4, h=2, s=2, t=300, shared=200, prefix=130, groups=2, k=64).resolve(machine())
    obj = plan.plan(*plan.prepare_inputs("meta"))
    stages = dict(obj.stages())
    assert list(stages) == ["decompressed", "latent", "combine"]
    assert stages["decompressed"].flops == 2 * 4 * 2 * 2 * 130 * (128 + 128 + 64)
    assert stages["latent"].flops == 2 * 4 * 2 * 2 * 170 * (64 + 64 + 64)
    total = plan._algorithmic_flops_bytes()
    assert total.flops == sum(kernel.flops for kernel in stages.values())


@pytest.mark.parametrize(("prefix", "names"), [(0, ["latent"]), (64, ["decompressed"])])
def test_a_part_without_tokens_is_no_launch(prefix, names):
    plan = plan_of(b=2, h=1, s=1, t=64, shared=64, prefix=prefix, k=64)
    obj = plan.plan(*plan.prepare_inputs("cpu"))
    assert [path for path, _ in obj.stages()] == [*names, "combine"]
    assert outputs(plan)["o"].isfinite().all()
