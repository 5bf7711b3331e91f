"""flash_mla: values, counted work, loop bounds of tiles that cross heads, and refusals."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import TilingError
from mla_var3.languages.cutile.compile import compile_kernel

from .attention_cases import (
    PROBLEMS,
    assert_correct,
    counted,
    grid,
    make,
    name,
    outputs,
    tiles_seen,
    unique_bytes,
    versions,
)

VERSIONS = versions("flash_mla")
K, P = 512, 64


def plan_of(version: str, tiling: dict[str, int] | None = None, **fields):
    plan = make("flash_mla", version, **fields)
    if tiling is None:
        return plan
    (stage, kind), *_ = plan.tiling_types.items()
    return make("flash_mla", version, tilings={stage: kind(**tiling)}, **fields)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("case", grid(), ids=name)
def test_matches_the_reference(version, case):
    assert_correct(plan_of(version, **case))


@pytest.mark.sampled(3)
@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=6)
@given(
    problem=PROBLEMS,
    k=st.sampled_from([16, 64]),
    tile_m=st.sampled_from([16, 32, 128]),
    tile_n=st.sampled_from([16, 32, 128]),
)
def test_any_problem_and_tiling(version, problem, k, tile_m, tile_n):
    tiling = {"tile_m": tile_m, "tile_n": tile_n, "num_worker_warps": 8}
    assert_correct(plan_of(version, tiling, k=k, **problem))


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_see_no_key_give_zero_and_minus_infinity(version):
    plan = plan_of(version, b=1, h=3, s=70, t=3, causal=True)
    assert_correct(plan)
    out = outputs(plan)
    assert torch.all(out["o"][:, :, :67] == 0)
    assert torch.all(out["lse"][:, :, :67] == -math.inf)
    assert torch.all(out["lse"][:, :, 67:] > -math.inf)


@pytest.mark.parametrize("version", VERSIONS)
def test_flops_equal_the_cost_model_where_tiles_divide(version):
    # Rows are the queries of a head in the base, heads times queries after it.
    h, s = (2, 64) if version == "v0" else (16, 8)
    [(kernel, report)] = counted(plan_of(version, b=1, h=h, s=s, t=128))
    assert report.mma_flops == kernel.flops


def test_head_grouping_stops_multiplying_empty_rows():
    base, grouped = (
        counted(plan_of(version, b=1, h=128, s=1, t=64))[0] for version in ("v0", "v1")
    )
    # One query in a tile of 64 rows: the base multiplies 64 times what the cost model asks for.
    assert base[1].mma_flops == 64 * base[0].flops
    assert grouped[1].mma_flops == grouped[0].flops


@pytest.mark.parametrize("version", VERSIONS)
def test_ragged_problems_count_whole_tiles(version):
    tiling = {"tile_m": 32, "tile_n": 64, "num_worker_warps": 8}
    [(_, report)] = counted(plan_of(version, tiling, b=1, h=3, s=20, t=150))
    rows = 3 * 32 if version == "v0" else 64
    assert report.mma_flops == 2 * rows * 192 * (2 * K + P)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("h", "s"), [(3, 80), (5, 12), (2, 64)])
def test_causal_versions_but_the_base_skip_tiles_that_no_row_sees(version, h, s):
    t, tile_m, tile_n = 100, 32, 16
    tiling = {"tile_m": tile_m, "tile_n": tile_n, "num_worker_warps": 8}
    plan = plan_of(version, tiling, b=1, h=h, s=s, t=t, k=16, p=16, causal=True)
    [(_, report)] = counted(plan)
    if version == "v0":
        visited = h * math.ceil(s / tile_m) * math.ceil(t / tile_n)
    else:
        visited = sum(
            tiles_seen(s, t, range(first, first + tile_m), s, tile_n)
            for first in range(0, h * s, tile_m)
        )
        assert visited < math.ceil(h * s / tile_m) * math.ceil(t / tile_n) or s < tile_n
    assert report.mma_flops == visited * 2 * tile_m * tile_n * (2 * 16 + 16)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("s", "t"), [(16, 128), (5, 100)])
def test_bytes(version, s, t):
    b, h, tile_m = 2, 6, 16
    tiling = {"tile_m": tile_m, "tile_n": 32, "num_worker_warps": 8}
    [(kernel, report)] = counted(plan_of(version, tiling, b=b, h=h, s=s, t=t))
    lse = 4 * b * h * s
    # What must cross DRAM once is the cost model and the LSE, which it leaves out.
    assert unique_bytes(report) == kernel.bytes + lse
    # What blocks load: own queries, and all latent keys once a row tile.
    row_tiles = h * math.ceil(s / tile_m) if version == "v0" else math.ceil(h * s / tile_m)
    assert report.bytes_loaded == 2 * b * (h * s + row_tiles * t) * (K + P)
    assert report.bytes_stored == 2 * b * h * s * K + lse


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        ({"tile_m": 48}, "tile_m=48 is not a power of two"),
        ({"tile_n": 8}, "tile_n=8 is below 16"),
        ({"num_ctas": 3}, "num_ctas=3 is not a power of two"),
    ],
)
def test_refused_tilings(version, tiling, message):
    with pytest.raises(TilingError, match=message):
        plan_of(version, tiling, s=16).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize("version", ["v0", "v1"])
def test_too_many_scores_are_refused(version):
    with pytest.raises(TilingError, match=r"256\*128 = 32768 elements exceed 16384"):
        plan_of(version, {"tile_m": 256, "tile_n": 128}).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize(
    ("tiling", "registers"),
    [
        ({}, 304),  # four warps: what base and v1 leave to the compiler
        ({"num_worker_warps": 8, "tile_n": 128}, 176),
        ({"num_worker_warps": 8, "tile_m": 128, "tile_n": 32}, 280),
    ],
)
def test_v2_refuses_what_would_spill(tiling, registers):
    with pytest.raises(TilingError, match=f"= {registers} registers a thread, more than 168"):
        plan_of("v2", tiling, s=16).plan_empty(694.0, 4270.0)


def test_v2_counts_the_threads_of_a_cluster():
    tiling = {"tile_m": 128, "tile_n": 32, "num_worker_warps": 8, "num_ctas": 2}
    assert plan_of("v2", tiling, s=16).plan_empty(694.0, 4270.0).stages()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("s", [1, 16])
def test_offered_tilings_are_valid_and_hold_the_default(version, s):
    plan = plan_of(version, s=s)
    for stage, tilings in plan._autotune_configs().items():
        for tiling in tilings:
            tiling.validate(plan)
        assert plan.default_tiling(stage) in tilings


@pytest.mark.slow
@pytest.mark.sampled(3)
@pytest.mark.parametrize(("version", "causal"), [("v1", False), ("v2", False), ("v2", True)])
def test_only_hints_keep_the_accumulator_in_registers_on_hopper(version, causal):
    plan = plan_of(version, b=4, h=128, s=16, t=4096, causal=causal)
    [(_, kernel)] = plan.plan_empty(694.0, 4270.0).stages()
    facts = compile_kernel(kernel.kernel, kernel.args(), "sm_90")
    assert facts.error is None
    assert facts.mma_path == "HGMMA"
    assert (facts.spill_loads + facts.spill_stores + facts.stack_bytes == 0) == (version == "v2")
