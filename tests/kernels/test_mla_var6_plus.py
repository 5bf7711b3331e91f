"""mla_var6_plus: values, counted work, refusals and the choice of n and of block shares."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import HyperMlaError, PlanError, TilingError
from mla_var3.kernel.cutile.mla.mla_var6_plus import common
from mla_var3.languages.cutile.compile import compile_kernel
from mla_var3.runtime import ConcurrentKernels
from mla_var3.runtime.check import check_plan
from mla_var3.workloads.mla import costs

from . import attention_cases
from .attention_cases import assert_correct, counted, machine, unique_bytes, versions

VERSIONS = versions("mla_var6_plus")
PEAK_TFLOPS, PEAK_GBPS = 694.0, 4270.0


def make(version: str, **fields) -> common.MlaVar6PlusPlan:
    return attention_cases.make("mla_var6_plus", version, **fields)  # type: ignore[return-value]


# b, h, s, t, n, causal, dtype
CASES = [
    (2, 16, 1, 200, 0, False, "bf16"),
    (1, 128, 1, 97, 30, True, "fp16"),
    (3, 16, 2, 130, 1, True, "bf16"),
    (1, 128, 2, 65, 65, False, "fp16"),
    (2, 16, 5, 300, 150, False, "fp16"),
    (1, 16, 5, 67, 3, True, "bf16"),  # n < s: old tokens are masked too
    (1, 16, 16, 257, 257, True, "bf16"),
    (1, 128, 16, 140, 15, True, "fp16"),
    (1, 16, 130, 150, 149, True, "bf16"),
    (1, 16, 130, 300, 129, False, "fp16"),
    (1, 16, 130, 300, 200, True, "bf16"),
    (1, 16, 5, 3, 2, True, "fp16"),  # rows that see no key
    (2, 16, 16, 1, 0, True, "bf16"),  # one key, and all rows but the last see none
]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("b", "h", "s", "t", "n", "causal", "dtype"), CASES)
def test_matches_the_reference(version, b, h, s, t, n, causal, dtype):
    assert_correct(make(version, b=b, h=h, s=s, t=t, n=n, causal=causal, dtype=dtype))


@pytest.mark.exhaustive
def test_many_heads_times_many_queries():
    result = check_plan(make("v4", b=1, h=128, s=130, t=150, n=64, causal=True))
    assert result.ok, result.explain()


@st.composite
def problems(draw):
    t = draw(st.integers(1, 200))
    return {
        "b": draw(st.integers(1, 3)),
        "h": draw(st.sampled_from([1, 3, 16])),
        "s": draw(st.integers(1, 40)),
        "t": t,
        "n": draw(st.integers(0, t)),
        "causal": draw(st.booleans()),
        "dtype": draw(st.sampled_from(["bf16", "fp16"])),
    }


SPLITS = {
    "latent_splits": st.none() | st.integers(1, 6),
    "decompressed_splits": st.none() | st.integers(1, 6),
}
#: What a user may set beside the problem, by version.
LAUNCHES = {
    "v0": {"blocks": st.none() | st.integers(2, 9)},
    "v1": {"blocks": st.integers(4, 9), "latent_blocks": st.none() | st.integers(1, 3)},
    "v2": {"blocks": st.integers(4, 9), "latent_blocks": st.integers(1, 3), **SPLITS},
    "v3": {"blocks": st.none() | st.integers(2, 9), **SPLITS},
    "v4": {
        "latent_blocks": st.none() | st.integers(1, 5),
        "decompressed_blocks": st.none() | st.integers(1, 5),
        **SPLITS,
    },
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=4)
@given(data=st.data())
def test_any_split_of_keys_and_blocks_gives_the_same_result(version, data):
    problem = data.draw(problems())
    launch = data.draw(st.fixed_dictionaries(LAUNCHES.get(version, {})))
    # More pieces than keys are refused: a test of the problem's own.
    pieces = {k: min(v, problem["t"]) for k, v in launch.items() if v and k.endswith("splits")}
    assert_correct(make(version, **problem, **launch | pieces))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [0, 1, 3])
def test_rows_that_see_no_key_give_zero_and_minus_infinity(version, n):
    plan = make(version, b=1, h=2, s=7, t=3, n=n, causal=True)
    out = plan.plan(*plan.prepare_inputs("cpu"))()
    assert torch.equal(out["o"][:, :, :4], torch.zeros(1, 2, 4, 128, dtype=torch.bfloat16))
    assert (out["lse"][:, :, :4] == -math.inf).all()
    assert out["lse"][:, :, 4:].isfinite().all()


# Sizes that all tiles divide: 64 rows of queries or of heads times queries, 64 rows of b*s in the
# combine, 64 and 128 keys.
def exact(version: str) -> dict[str, int]:
    if version in ("v0", "v1", "v2"):
        return {"b": 1, "h": 2, "s": 64}
    return {"b": 4, "h": 8, "s": 16}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [0, 128, 384])
def test_counted_flops_are_the_cost_model_where_tiles_divide(version, n):
    plan = make(version, **exact(version), t=384, n=n)
    launches = counted(plan)
    assert [report.mma_flops for _, report in launches] == [k.flops for k, _ in launches]
    attention = sum(k.flops for k, _ in launches if k.name != "combine")
    assert attention == plan.paths_cost().flops
    assert sum(k.flops for k, _ in launches) == plan._algorithmic_flops_bytes().flops


def test_counted_flops_exceed_the_model_by_the_padded_rows():
    launches = {k.name: (k, r) for k, r in counted(make("v4", b=1, h=64, s=1, t=384, n=128))}
    ratio = {name: r.mma_flops / k.flops for name, (k, r) in launches.items()}
    # 64 heads fill the latent tile; one query stands in 16 columns, one sequence in 64 rows.
    assert ratio == {"latent": 1, "decompressed": 16, "combine": 64}


def test_causal_skips_key_tiles_that_no_row_sees():
    sizes = {"b": 1, "h": 2, "s": 256, "t": 256, "n": 256}
    (_, full), _ = counted(make("v4", **sizes))
    (_, half), _ = counted(make("v4", **sizes, causal=True))
    # Query tiles of 64 see 1, 1, 2 and 2 of the 2 key tiles of 128.
    assert half.mma_flops / full.mma_flops == 6 / 8


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS)
def test_distinct_bytes_are_the_cost_model(version):
    plan = make(version, **exact(version), t=384, n=128)
    launches = counted(plan)
    splits = plan.splits() if hasattr(plan, "splits") else (1, 1)
    rows = plan.b * plan.h * plan.s
    touched = [unique_bytes(report) for _, report in launches]
    # Beyond the model: the partial sums in fp32, one partial output more a further split, and the
    # rotary queries once for each path (they are read as two arrays).
    w = plan.element_bytes
    extra = 4 * rows * sum(splits)
    extra += w * rows * ((splits[0] - 1) * plan.k + (splits[1] - 1) * plan.d)
    extra += w * rows * plan.p if version in ("v2", "v3", "v4") else 0
    assert sum(touched[:-1]) == plan.paths_cost().bytes + extra
    assert touched[-1] == launches[-1][0].bytes


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("n", [0, 1000, 4096])
def test_costs_of_the_attention_stages_sum_to_the_mixed_cost(version, n):
    plan = make(version, b=32, s=16, n=n)
    stages = [k for _, k in plan.plan_empty(PEAK_TFLOPS, PEAK_GBPS).stages()]
    total = sum((k.cost for k in stages if k.name != "combine"), common.Cost(0, 0))
    assert total == plan.paths_cost()
    latent = 2 * plan.b * plan.h * plan.s * plan.k * plan.d
    assert stages[-1].flops == (latent if n < 4096 else 0)


class TestTilings:
    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("s", [1, 5, 16, 130])
    def test_what_is_proposed_is_valid(self, version, s):
        plan = make(version, s=s)
        configs = plan._autotune_configs()
        assert set(configs) == set(plan.tiling_types)
        for stage, tilings in configs.items():
            for tiling in [plan.default_tiling(stage), *tilings]:
                assert isinstance(tiling, plan.tiling_types[stage])
                tiling.validate(plan)

    @pytest.mark.parametrize(
        ("version", "stage", "fields", "message"),
        [
            ("v0", "attention", {"tile_m": 48}, "tile_m=48 is not a power of two"),
            ("v1", "attention", {"tile_n": 8}, "tile_n=8 is below 16"),
            ("v2", "attention", {"tile_m": 256, "tile_n": 128}, "256*128 = 32768 elements exceed"),
            ("v3", "attention", {"new_tile_n": 32}, "new_tile_n=32 is below 64"),
            ("v3", "attention", {"old_tile_m": 512}, "old_tile_m*old_tile_n = 512*64 = 32768"),
            ("v4", "latent", {"num_worker_warps": 16}, "num_worker_warps=16 is not 4 or 8"),
            ("v4", "latent", {"tile_m": 512}, "512*64 = 32768 elements exceed"),
            ("v4", "decompressed", {"tile_m": 8}, "tile_m=8 is below 16"),
            ("v4", "decompressed", {"tile_m": 256}, "256*128 = 32768 elements exceed"),
            ("v0", "combine", {"tile_b": 1, "tile_s": 1}, "1*1 = 1 rows, allowed are 16 to 128"),
            ("v4", "combine", {"tile_b": 64, "tile_s": 4}, "64*4 = 256 rows"),
            ("v4", "combine", {"tile_k": 1024}, "tile_k=1024 does not divide k=512"),
        ],
    )
    def test_a_refusal_names_the_arithmetic(self, version, stage, fields, message):
        plan = make(version, n=64)
        tiling = dataclasses.replace(plan.default_tiling(stage), **fields)
        with pytest.raises(TilingError) as error:
            dataclasses.replace(plan, tilings={stage: tiling}).tiling(stage)
        assert message in str(error.value)

    @pytest.mark.sampled(5)
    @pytest.mark.parametrize("version", VERSIONS)
    def test_other_tiles_give_the_same_result(self, version):
        plan = make(version, b=2, h=16, s=5, t=150, n=70, causal=True)
        for stage in plan.tiling_types:
            for tiling in plan._autotune_configs()[stage][:3]:
                result = check_plan(dataclasses.replace(plan, tilings={stage: tiling}))
                assert result.ok, f"{tiling}: {result.explain()}"


class TestPlans:
    @pytest.mark.parametrize("version", ["v1", "v2", "v3"])
    def test_latent_blocks_leave_some_to_the_other_path(self, version):
        with pytest.raises(PlanError, match="latent_blocks=8 leaves none of 8 blocks"):
            make(version, blocks=8, latent_blocks=8).validate()

    @pytest.mark.parametrize("version", VERSIONS)
    @pytest.mark.parametrize("fields", [{"n": -1}, {"n": 5000}, {"s": 0}, {"k": 100}])
    def test_sizes_that_make_no_sense(self, version, fields):
        with pytest.raises(HyperMlaError):
            make(version, **fields).validate()

    def test_paths_without_tokens_are_no_stage(self):
        def stages(n):
            return [path for path, _ in make("v4", n=n).plan_empty(PEAK_TFLOPS, 1).stages()]

        assert stages(0) == ["latent", "combine"]
        assert stages(64) == ["attention.latent", "attention.decompressed", "combine"]
        assert stages(4096) == ["decompressed", "combine"]

    def test_v4_runs_its_paths_side_by_side(self):
        attention = make("v4", n=64).plan_empty(PEAK_TFLOPS, PEAK_GBPS).children[0]
        assert isinstance(attention, ConcurrentKernels)


class TestChoiceOfN:
    @pytest.mark.parametrize("version", VERSIONS)
    def test_n_is_kept_when_given(self, version):
        assert make(version, n=7).resolve(machine()).n == 7

    def test_n_grows_with_the_queries(self):
        chosen = [make("v4", b=32, s=s).resolve(machine()).n for s in (1, 16, 32, 64)]
        assert chosen == sorted(chosen)
        assert chosen[0] < 200 < chosen[1] < chosen[-1] < 4096

    @settings(max_examples=20)
    @given(
        s=st.integers(1, 128),
        t=st.integers(1, 20000),
        b=st.sampled_from([1, 32, 128]),
        tflops=st.floats(10, 3000),
        gbps=st.floats(200, 10000),
    )
    def test_no_other_n_is_faster_by_the_model(self, s, t, b, tflops, gbps):
        plan = make("v4", b=b, s=s, t=t).resolve(machine(132, tflops, gbps))

        def seconds(n):
            cost = dataclasses.replace(plan, n=n).paths_cost()
            return max(cost.flops / (tflops * 1e12), cost.bytes / (gbps * 1e9))

        grid = {*range(0, t + 1, 64), t}
        assert seconds(plan.new_tokens) <= min(map(seconds, grid)) * (1 + costs.TIE) * (1 + 1e-9)

    def test_the_share_follows_the_device(self):
        rich = make("v1", b=32, s=16, n=1000).resolve(machine(gbps=8000.0))
        poor = make("v1", b=32, s=16, n=1000).resolve(machine(gbps=1000.0))
        rows = 128 * 16
        assert rich.latent_share(132, rows, rows) > poor.latent_share(132, rows, rows)


def _latent_blocks(version):
    obj = make(version, b=32, s=16, n=1216).plan_empty(PEAK_TFLOPS, PEAK_GBPS)
    attention = obj.stages()[0][1]
    names = list(attention.kernel._annotated_function.pysig.parameters)
    return attention.args()[names.index("latent_blocks")], attention.grid()


def test_v1_shares_blocks_by_cost():
    assert _latent_blocks("v1") == (117, (132,))


class TestShares:
    def test_base_shares_equally(self):
        assert _latent_blocks("v0") == (66, (132,))

    @given(blocks=st.integers(2, 500), mine=st.floats(0, 1e15), others=st.floats(0, 1e15))
    def test_share(self, blocks, mine, others):
        share = common.share_blocks(blocks, mine, others)
        if mine and others:
            assert 1 <= share <= blocks - 1
            exact = Fraction(blocks) * Fraction(mine) / (Fraction(mine) + Fraction(others))
            assert abs(share - exact) <= 1
        else:
            assert share == (blocks if mine else 0)

    @given(items=st.integers(1, 5000), blocks=st.integers(1, 300), steps=st.integers(0, 600))
    def test_splits_are_the_fewest_that_end_first(self, items, blocks, steps):
        def end(splits):
            piece = math.ceil(steps / splits) + common.ITEM_OVERHEAD
            return math.ceil(items * splits / blocks) * piece + splits * common.COMBINE_STEP

        best = common.best_splits(items, blocks, steps)
        allowed = range(1, max(1, min(steps, common.MAX_SPLITS)) + 1)
        assert best in allowed
        assert end(best) == min(map(end, allowed))
        assert all(end(splits) > end(best) for splits in range(1, best))

    def test_one_sequence_is_split_and_a_full_device_is_not(self):
        assert common.best_splits(2, 132, 64) > 4
        assert common.best_splits(132 * 8, 132, 64) == 1


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", ["v0", "v2", "v3", "v4"])  # v1 has the device code of v0
def test_no_stage_spills_on_sm_90(version):
    for path, kernel in make(version, b=32, s=16, n=1216).plan_empty(PEAK_TFLOPS, 1).stages():
        facts = compile_kernel(kernel.kernel, kernel.args(), "sm_90")
        assert facts.error is None
        assert (facts.spill_loads, facts.spill_stores, facts.stack_bytes) == (0, 0, 0), path
        assert facts.mma_path == "HGMMA", path
