"""flash_attention: values, counted work, block order and refusals."""

from __future__ import annotations

import itertools
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

VERSIONS = versions("flash_attention")


def plan_of(version: str, tiling: dict[str, int] | None = None, **fields):
    plan = make("flash_attention", version, **fields)
    if tiling is None:
        return plan
    (stage, kind), *_ = plan.tiling_types.items()
    return make("flash_attention", version, tilings={stage: kind(**tiling)}, **fields)


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
    tile_m=st.sampled_from([16, 32, 128]),
    tile_n=st.sampled_from([16, 32, 128]),
)
def test_any_problem_and_tiling(version, problem, tile_m, tile_n):
    assert_correct(plan_of(version, {"tile_m": tile_m, "tile_n": tile_n}, **problem))


@pytest.mark.parametrize("version", VERSIONS)
def test_rows_that_see_no_key_give_zero_and_minus_infinity(version):
    plan = plan_of(version, b=1, h=2, s=140, t=3, causal=True)
    assert_correct(plan)
    out = outputs(plan)
    assert torch.all(out["o"][:, :, :137] == 0)
    assert torch.all(out["lse"][:, :, :137] == -math.inf)
    assert torch.all(out["lse"][:, :, 137:] > -math.inf)


@pytest.mark.parametrize("section", [1, 3, 4, 5, 1000])
@pytest.mark.parametrize("causal", [False, True])
def test_every_order_of_blocks_covers_each_tile_once(section, causal):
    # A tile computed twice is a write conflict, a missing one a poisoned output.
    tiling = {"tile_m": 16, "tile_n": 32, "section": section}
    assert_correct(plan_of("v2", tiling, b=2, h=5, s=50, t=60, causal=causal))


def test_heavy_tiles_of_a_section_start_first():
    plan = plan_of("v2", {"tile_m": 16, "tile_n": 32, "section": 3}, b=1, h=5, s=40, t=40)
    kernel, _ = counted(plan)[0]
    tiles, pairs = 3, 5
    assert kernel.grid() == (tiles * pairs,)
    # The kernel's own arithmetic, block by block.
    order = []
    for block in range(tiles * pairs):
        start = block // (3 * tiles) * 3
        here = min(pairs - start, 3)
        place = block - start * tiles
        order.append((tiles - 1 - place // here, start + place % here))
    assert sorted(order) == sorted(itertools.product(range(tiles), range(pairs)))
    assert order[:4] == [(2, 0), (2, 1), (2, 2), (1, 0)]
    assert order[9:13] == [(2, 3), (2, 4), (1, 3), (1, 4)]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("s", [64, 128])
def test_flops_equal_the_cost_model_where_tiles_divide(version, s):
    [(kernel, report)] = counted(plan_of(version, b=1, h=2, s=s, t=256))
    assert report.mma_flops == kernel.flops


@pytest.mark.parametrize("version", VERSIONS)
def test_ragged_problems_count_whole_tiles(version):
    tile = {"tile_m": 32, "tile_n": 64}
    [(_, report)] = counted(plan_of(version, tile, b=1, h=2, s=40, t=150))
    # s and t rounded up: rows and keys of padding are multiplied all the same.
    assert report.mma_flops == plan_of(version, b=1, h=2, s=64, t=192).plan_empty(1, 1).flops


@pytest.mark.parametrize("version", VERSIONS)
def test_causal_versions_but_the_base_skip_tiles_that_no_row_sees(version):
    s, t, tile_m, tile_n = 160, 200, 32, 64
    tiling = {"tile_m": tile_m, "tile_n": tile_n}
    [(kernel, report)] = counted(plan_of(version, tiling, b=1, h=2, s=s, t=t, causal=True))
    all_tiles = 5 * 4
    seen = sum(
        tiles_seen(s, t, range(first, first + tile_m), s, tile_n) for first in range(0, s, tile_m)
    )
    visited = all_tiles if version == "v0" else seen
    assert seen < all_tiles
    assert report.mma_flops == 2 * visited * 2 * tile_m * tile_n * (2 * 128 + 64)
    # The cost model counts the pairs that the mask leaves; tiles on the diagonal do more.
    pairs = sum(t - s + i + 1 for i in range(s))
    assert kernel.flops == 2 * 2 * pairs * (2 * 128 + 64)
    assert kernel.flops < report.mma_flops


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("s", "t"), [(64, 128), (40, 100)])
def test_bytes(version, s, t):
    b, h, d, p, tile_m = 2, 3, 128, 64, 16
    tiling = {"tile_m": tile_m, "tile_n": 32}
    [(kernel, report)] = counted(plan_of(version, tiling, b=b, h=h, s=s, t=t))
    lse = 4 * b * h * s
    # What must cross DRAM once is the cost model and the LSE, which it leaves out.
    assert unique_bytes(report) == kernel.bytes + lse
    # What blocks load: own queries, and per head and query tile all keys with their own kpe.
    rows = b * h * math.ceil(s / tile_m)
    assert report.bytes_loaded == 2 * (b * h * s * (d + p) + rows * t * (2 * d + p))
    assert report.bytes_stored == 2 * b * h * s * d + lse


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("tiling", "message"),
    [
        ({"tile_m": 48}, "tile_m=48 is not a power of two"),
        ({"tile_n": 8}, "tile_n=8 is below 16"),
        ({"tile_m": 256, "tile_n": 128}, r"256\*128 = 32768 (scores|elements) exceed 16384"),
        ({"num_worker_warps": 16}, "num_worker_warps=16 is not 4 or 8"),
    ],
)
def test_refused_tilings(version, tiling, message):
    plan = plan_of(version, tiling, s=16)
    with pytest.raises(TilingError, match=message):
        plan.plan_empty(694.0, 4270.0)


def test_a_section_needs_a_head():
    with pytest.raises(TilingError, match="section=0 is below 1"):
        plan_of("v2", {"section": 0}, s=16).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("s", [1, 130])
def test_offered_tilings_are_valid_and_hold_the_default(version, s):
    plan = plan_of(version, s=s)
    for stage, tilings in plan._autotune_configs().items():
        for tiling in tilings:
            tiling.validate(plan)
        assert plan.default_tiling(stage) in tilings


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("s", [1, 4096])
def test_the_default_does_not_spill_on_hopper(version, s):
    plan = plan_of(version, b=4, h=128, s=s, t=4096, causal=s > 1)
    [(_, kernel)] = plan.plan_empty(694.0, 4270.0).stages()
    facts = compile_kernel(kernel.kernel, kernel.args(), "sm_90")
    assert facts.error is None
    assert (facts.spill_loads, facts.spill_stores, facts.stack_bytes) == (0, 0, 0)
    assert facts.mma_path == "HGMMA"
