"""flash_mla_fp8: values, the packed rows, what fp8 costs against the latents, and refusals."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import PlanError
from mla_var3.paths import repo_root
from mla_var3.workloads.mla import FP8_GROUP, LatentProblem, fp8_row_bytes, fp8_rows
from tests.serving.stand_in import as_keys, packed_pages

from .attention_cases import PROBLEMS, assert_correct, make, versions

VERSIONS = versions("flash_mla_fp8")


@pytest.mark.slow
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=6)
@given(problem=PROBLEMS, k=st.sampled_from([128, 256]), splits=st.integers(1, 4))
def test_any_problem_and_split(version, problem, k, splits):
    splits = min(splits, problem["t"])
    assert_correct(make("flash_mla_fp8", version, **problem, k=k, splits=splits))


def test_a_row_is_flash_mla_s_656_bytes():
    plan = make("flash_mla_fp8", "v0", b=1, h=1, t=3)
    *_, cache = plan.prepare_inputs()
    assert cache.shape[-1] == fp8_row_bytes(512, 64, 2) == 656
    assert plan.prepare_inputs("meta")[2].shape == cache.shape


@given(st.integers(0, 10**6), st.floats(1e-3, 1e3))
def test_packed_rows_are_the_latents_within_half_a_step_of_e4m3(seed, size):
    generator = torch.Generator().manual_seed(seed)
    z = (torch.randn(1, 3, 256, generator=generator) * size).bfloat16()
    kpe = torch.randn(1, 3, 64, generator=generator).bfloat16()
    plan = make("flash_mla_fp8", "v0", b=1, h=1, t=3, k=256)
    values, scales, rope = plan.parts(fp8_rows(z, kpe))
    unpacked = values.float() * scales.repeat_interleave(FP8_GROUP, -1)
    # Three mantissa bits: half a step is 2**-4 of a normal value, 2**-10 of the scale below.
    slack = z.float().abs() * 2**-4 + scales.repeat_interleave(FP8_GROUP, -1) * 2**-10
    assert bool(((unpacked - z.float()).abs() <= slack * (1 + 1e-5)).all())
    assert torch.equal(rope, kpe)


def test_zeros_pack_to_zeros():
    rows = fp8_rows(torch.zeros(1, 2, 128).bfloat16(), torch.zeros(1, 2, 64).bfloat16())
    plan = make("flash_mla_fp8", "v0", b=1, h=1, t=2, k=128)
    assert not bool(plan.parts(rows)[0].float().any())


def test_what_fp8_costs_against_fp32_of_the_exact_latents():
    """The figures that the devlog states, of normal random latents."""
    sizes = {"b": 2, "h": 16, "s": 4, "t": 1024}
    exact = LatentProblem.reference_fn
    plan = make("flash_mla_fp8", "v0", **sizes)
    q, qpe, z, kpe = LatentProblem.prepare_inputs(plan)
    want = exact(plan, q, qpe, z, kpe)
    packed = fp8_rows(z, kpe)
    got = plan.reference_fn(q, qpe, packed)
    values, scales, _ = plan.parts(packed)
    latents = values.float() * scales.repeat_interleave(FP8_GROUP, -1)
    assert _relative(got["o"], want["o"]) == pytest.approx(2.9e-2, rel=0.03)
    assert float((got["lse"] - want["lse"]).abs().max()) == pytest.approx(3.1e-3, rel=0.1)
    assert _relative(latents, z) == pytest.approx(2.6e-2, rel=0.03)


def test_what_each_format_of_a_cache_costs():
    """The figures of the glossary: bf16, 656 and 584 bytes per token against latents in fp32."""
    generator = torch.Generator().manual_seed(0)
    q, qpe, z, kpe = (
        torch.randn(2, n, width, generator=generator)
        for n, width in ((64, 512), (64, 64), (1024, 512), (1024, 64))
    )
    rope = kpe.bfloat16()
    values, scales, _ = make("flash_mla_fp8", "v0").parts(fp8_rows(z, rope))
    e4m3 = values.float() * scales.repeat_interleave(FP8_GROUP, -1)
    whole = torch.cat([z[..., :448], kpe], -1)  # 584 bytes: rotary values are values, too.
    pages = packed_pages(whole.flatten(0, 1), 64).squeeze(2)
    model1 = as_keys("584", pages.as_strided((32, 64, 576), (pages.stride(0), 576, 1)))
    rows = torch.cat([q, qpe], -1), torch.cat([z, kpe], -1), z

    def error(given, keys, latents):
        return _relative(_attend(given[0], keys, latents), _attend(*given))

    bf16 = error(rows, torch.cat([z.bfloat16(), rope], -1).float(), z.bfloat16().float())
    assert bf16 == pytest.approx(1.83e-3, rel=0.02)
    assert error(rows, torch.cat([e4m3, rope.float()], -1), e4m3) == pytest.approx(2.8e-2, rel=0.02)
    of584 = error((q, whole, whole), *[model1.view(2, 1024, 512)] * 2)
    assert of584 == pytest.approx(2.7e-2, rel=0.02)


def test_what_each_operand_in_fp8_costs():
    """The figures of the glossary: query, latents and weights in e4m3, each alone and together."""
    generator = torch.Generator().manual_seed(0)
    q, qpe, z, kpe = (
        torch.randn(2, n, width, generator=generator)
        for n, width in ((64, 512), (64, 64), (1024, 512), (1024, 64))
    )

    def output(q, qpe, z, weights_in=torch.float32):
        scores = torch.cat([q, qpe], -1) @ torch.cat([z, kpe], -1).mT * 576**-0.5
        weights = (scores - scores.amax(-1, keepdim=True)).exp()
        rounded = (weights * 256).to(weights_in).float() / 256
        return rounded @ z / weights.sum(-1, keepdim=True)

    def fp8(x, group):
        parts = x.unflatten(-1, (-1, group))
        scale = parts.abs().amax(-1, keepdim=True) / 448
        return ((parts / scale).to(torch.float8_e4m3fn).float() * scale).flatten(-2)

    e4m3, latents = torch.float8_e4m3fn, fp8(z, FP8_GROUP)
    want = output(q, qpe, z)
    got = {
        "nothing; the query in bf16": output(q.bfloat16().float(), qpe.bfloat16().float(), z),
        "the weights P, scaled by 256": output(q, qpe, z, e4m3),
        "the query's 512 latent values, a scale per row": output(fp8(q, 512), qpe, z),
        "the latents, a scale per 128, as the cache": output(q, qpe, latents),
        "query and latents": output(fp8(q, 512), qpe, latents),
        "query, latents and weights": output(fp8(q, 512), qpe, latents, e4m3),
    }
    page = (repo_root() / "docs/glossary/fp8.md").read_text("utf-8")
    for name, out in got.items():
        assert f"| {name} | {_relative(out, want):.1e} |".replace("e-0", "e-") in page
    sharp = output(4 * q, 4 * qpe, z)
    both = output(fp8(4 * q, 512), 4 * qpe, z), output(4 * q, 4 * qpe, latents)
    stated = " and ".join(f"{_relative(out, sharp):.1e}".replace("e-0", "e-") for out in both)
    assert f"query and cache cost {stated}" in page


def _attend(q, keys, latents):
    """The output in fp32."""
    return (q @ keys.mT * q.shape[-1] ** -0.5).softmax(-1) @ latents


def _relative(got, want) -> float:
    return float((got.float() - want.float()).norm() / want.float().norm())


def test_k_is_whole_groups():
    with pytest.raises(PlanError, match="k=64 is not a multiple of the 128 values of a scale"):
        make("flash_mla_fp8", "v0", k=64).validate()


def test_the_cache_is_about_half_the_bytes():
    fp8, bf16 = (make(d, "v0", b=32, h=16, s=1) for d in ("flash_mla_fp8", "flash_mla"))
    saved = bf16._algorithmic_flops_bytes().bytes - fp8._algorithmic_flops_bytes().bytes
    assert saved == 32 * 4096 * (1152 - 656)
