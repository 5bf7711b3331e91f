"""flash_mla_split_kv: values, counted work, split counts, the reduce stage and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import PlanError, TilingError
from mla_var3.kernel.cutile.mla.flash_mla_split_kv.common import MAX_SPLITS, ReduceTiling
from mla_var3.languages.cutile.compile import compile_kernel
from mla_var3.runtime.check import compare

from .attention_cases import (
    PROBLEMS,
    assert_correct,
    counted,
    grid,
    machine,
    make,
    name,
    outputs,
    unique_bytes,
    versions,
)

VERSIONS = versions("flash_mla_split_kv")
CPU = torch.device("cpu")
K, P = 512, 64


def plan_of(version: str, *, split=None, reduce=None, **fields):
    plan = make("flash_mla_split_kv", version, **fields)
    tilings = {
        stage: kind(**given)
        for (stage, kind), given in zip(plan.tiling_types.items(), (split, reduce), strict=True)
        if given is not None
    }
    return dataclasses.replace(plan, tilings=tilings)


#: 130 queries of 128 heads keep the interpreter busy for seconds in the reduce stage, one row a
#: block: v0 has to do for both versions' device code, beside v1's default without that stage.
LARGEST = [
    ("v1", None, {"b": 1, "h": 128, "s": 130, "t": 131, "causal": True, "dtype": "fp16"}),
    ("v0", 2, {"b": 1, "h": 128, "s": 130, "t": 131, "causal": True, "dtype": "bf16"}),
]
OTHERS = [case for case in grid() if case["h"] * case["s"] < 128 * 130]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("version", "splits", "case"),
    [
        *((v, n, c) for v in VERSIONS for n, c in zip(itertools.cycle((2, 3, None)), OTHERS)),
        *LARGEST,
    ],
    ids=lambda x: name(x) if isinstance(x, dict) else str(x),
)
def test_matches_the_reference(version, splits, case):
    assert_correct(plan_of(version, splits=splits, **case))


@pytest.mark.slow
@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=5)
@given(
    problem=PROBLEMS,
    k=st.sampled_from([16, 64]),
    splits=st.integers(1, 9),
    tile_m=st.sampled_from([16, 32, 128]),
    tile_n=st.sampled_from([16, 32, 128]),
    tile_splits=st.sampled_from([1, 2, 8]),
)
def test_any_problem_split_and_tiling(version, problem, k, splits, tile_m, tile_n, tile_splits):
    plan = plan_of(
        version,
        split={"tile_m": tile_m, "tile_n": tile_n},
        reduce={"tile_k": 16, "tile_splits": tile_splits},
        k=k,
        splits=min(splits, problem["t"]),
        **problem,
    )
    assert_correct(plan)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("splits", [1, 3])
def test_rows_that_see_no_key_give_zero_and_minus_infinity(version, splits):
    plan = plan_of(version, b=1, h=3, s=70, t=3, causal=True, splits=splits)
    assert_correct(plan)
    out = outputs(plan)
    assert torch.all(out["o"][:, :, :67] == 0)
    assert torch.all(out["lse"][:, :, :67] == -math.inf)
    assert torch.all(out["lse"][:, :, 67:] > -math.inf)


@pytest.mark.parametrize("version", VERSIONS)
def test_splits_without_keys_change_nothing(version):
    few, many = (plan_of(version, b=1, h=16, s=2, t=70, splits=splits) for splits in (2, 40))
    (split, _), (reduce, _) = counted(many)
    lse = split.output_tensors["lse_parts"]  # [b, splits, h*s]
    # 70 keys are two tiles of 64, so 38 splits have nothing to do and say so.
    assert int((lse == -math.inf).all(dim=-1).sum()) == 38
    expected = outputs(few)
    for output, tensor in reduce.output_tensors.items():
        assert compare(output, tensor, expected[output], many.tolerance(output)).ok


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("splits", [2, 3, 7])
def test_splits_share_the_tiles_without_loading_one_twice(version, causal, splits):
    s, t, tile_n = 4, 200, 32
    plan = plan_of(
        version, split={"tile_m": 16, "tile_n": tile_n},
        b=1, h=4, s=s, t=t, k=16, p=16, causal=causal, splits=splits,
    )  # fmt: skip
    (_, report), _ = counted(plan)
    # One row tile: each key tile is multiplied once, whatever the split count.
    assert report.mma_flops == 2 * 16 * math.ceil(t / tile_n) * tile_n * (2 * 16 + 16)


@pytest.mark.parametrize("version", VERSIONS)
def test_flops_equal_the_cost_model_where_tiles_divide(version):
    plan = plan_of(version, reduce={"tile_splits": 8}, b=1, h=16, s=4, t=512, splits=8)
    (split, split_report), (reduce, reduce_report) = counted(plan)
    assert split_report.mma_flops == split.flops
    # The reduce stage multiplies no matrices. Its model is one multiply-add a partial element; the
    # kernel also rescales and normalises each output element, and works out the weights.
    assert reduce_report.mma_flops == 0
    assert reduce.flops == 2 * 16 * 4 * 8 * K
    assert reduce.flops <= reduce_report.total_flops <= 1.2 * reduce.flops


@pytest.mark.sampled(2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("s", "t"), [(16, 128), (5, 100)])
def test_bytes(version, s, t):
    b, h, splits, tile_m = 2, 6, 2, 16
    plan = plan_of(
        version, split={"tile_m": tile_m, "tile_n": 32}, b=b, h=h, s=s, t=t, splits=splits
    )
    (split, split_report), (reduce, reduce_report) = counted(plan)
    # The models of the stages count each partial result once, LSEs with them.
    assert unique_bytes(split_report) == split.bytes
    assert unique_bytes(reduce_report) == reduce.bytes
    # Every row tile of a split loads that split's keys; the splits together load each key once.
    row_tiles = math.ceil(h * s / tile_m)
    queries = splits * b * h * s * (K + P)
    assert split_report.bytes_loaded == 2 * (queries + b * row_tiles * t * (K + P))
    assert split_report.bytes_stored == 4 * b * splits * h * s * (K + 1)


def test_one_split_of_v1_writes_the_output_itself():
    plan = plan_of("v1", b=2, h=16, s=5, t=70, splits=1, causal=True)
    [(split, report)] = counted(plan)
    assert split.output_tensors["o"].dtype == torch.bfloat16
    assert unique_bytes(report) == split.bytes + 4 * 2 * 16 * 5
    assert_correct(plan)


#: b, h, s, t, and the split counts of the base and of v1 on 132 SMs (64 rows by 64 keys a step).
COUNTS = [
    (32, 128, 1, 4096, 4, 2),
    (64, 128, 1, 4096, 2, 1),
    (128, 128, 1, 4096, 1, 1),
    (4, 128, 1, 32768, 32, 16),
    (1, 128, 1, 4096, 64, 64),
    (32, 128, 16, 4096, 1, 1),
    (1, 128, 1, 64, 1, 1),
]


@pytest.mark.parametrize(("b", "h", "s", "t", "base", "v1"), COUNTS)
def test_split_counts_on_132_sms(b, h, s, t, base, v1):
    fields = {"b": b, "h": h, "s": s, "t": t}
    assert plan_of("v0", **fields).split_count(CPU) == base
    assert plan_of("v1", **fields).split_count(CPU) == v1


@settings(max_examples=60)
@given(
    b=st.integers(1, 200),
    h=st.sampled_from([16, 128]),
    s=st.integers(1, 32),
    t=st.integers(1, 40000),
    sms=st.integers(1, 200),
)
def test_v1_never_needs_more_steps_than_the_base(b, h, s, t, sms):
    base, wave_exact = (
        plan_of(v, b=b, h=h, s=s, t=t).resolve(machine(sms)).split_count(CPU) for v in ("v0", "v1")
    )
    tiles, blocks = math.ceil(t / 64), math.ceil(h * s / 64) * b

    def steps(splits: int, extra: int) -> int:
        return math.ceil(blocks * splits / sms) * (math.ceil(tiles / splits) + extra)

    # Six steps beyond the keys' own for a block with partial results, two for one without.
    assert 1 <= wave_exact <= min(tiles, MAX_SPLITS)
    assert steps(wave_exact, 2 if wave_exact == 1 else 6) <= steps(base, 6)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_split_count_follows_the_sms_and_the_tiling(version):
    fields = {"b": 8, "h": 128, "s": 1, "t": 8192}

    def count(sms: int, **more) -> int:
        return plan_of(version, **fields, **more).resolve(machine(sms)).split_count(CPU)

    assert count(64) < count(256)
    # Half as many row tiles.
    assert count(64, split={"tile_m": 128, "tile_n": 32}) > count(64)
    assert count(64, splits=5) == 5


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"splits": 0}, PlanError, "splits=0 is below 1"),
        ({"splits": 1000}, PlanError, "splits=1000 exceeds 256"),
        ({"split": {"tile_m": 48}}, TilingError, "tile_m=48 is not a power of two"),
        ({"split": {"tile_m": 256, "tile_n": 128}}, TilingError, r"256\*128 = 32768 elements"),
        ({"reduce": {"tile_splits": 3}}, TilingError, "tile_splits=3 is not a power of two"),
        ({"reduce": {"tile_splits": 32}}, TilingError, r"32\*512 = 16384 elements exceed 8192"),
        ({"reduce": {"tile_k": 1024}}, TilingError, "tile_k=1024 exceeds k=512"),
    ],
)
def test_refusals(version, fields, error, message):
    with pytest.raises(error, match=message):
        plan_of(version, **fields).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("b", "k"), [(1, 512), (64, 512), (64, 16)])
def test_offered_tilings_are_valid_and_hold_the_default(version, b, k):
    plan = plan_of(version, b=b, k=k)
    for stage, tilings in plan._autotune_configs().items():
        for tiling in tilings:
            tiling.validate(plan)
        assert plan.default_tiling(stage) in tilings


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("b", [1, 32])
def test_the_defaults_do_not_spill_on_hopper(version, b):
    stages = plan_of(version, b=b, h=128, s=1, t=4096).plan_empty(694.0, 4270.0).stages()
    for (_, kernel), path in zip(stages, ("HGMMA", "none"), strict=True):
        facts = compile_kernel(kernel.kernel, kernel.args(), "sm_90")
        assert facts.error is None
        assert (facts.spill_loads, facts.spill_stores, facts.stack_bytes) == (0, 0, 0)
        assert facts.mma_path == path


def test_the_reduce_default_of_its_class_is_valid():
    ReduceTiling().validate(plan_of("v1"))
