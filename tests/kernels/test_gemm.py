"""gemm: values over ragged shapes, counted work, the order of tiles and refusals."""

from __future__ import annotations

import dataclasses
import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import PlanError, TilingError
from mla_var3.languages.cutile.compile import compile_kernel

from .attention_cases import (
    assert_correct,
    counted,
    machine,
    make,
    outputs,
    unique_bytes,
    versions,
)

VERSIONS = versions("gemm")


def plan_of(version: str, tiling: dict[str, int] | None = None, **fields):
    plan = make("gemm", version, **fields)
    if tiling is None:
        return plan
    (stage, kind), *_ = plan.tiling_types.items()
    return dataclasses.replace(plan, tilings={stage: kind(**tiling)})


#: Extents that are multiples of nothing, but for k, whose rows start on 16 bytes.
PROBLEMS = st.fixed_dictionaries(
    {
        "m": st.integers(1, 90),
        "n": st.integers(1, 90),
        "k": st.integers(1, 10).map(lambda eighths: 8 * eighths),
        "dtype": st.sampled_from(["bf16", "fp16"]),
    }
)
TILES = st.fixed_dictionaries(
    {name: st.sampled_from([16, 32, 64]) for name in ("tile_m", "tile_n", "tile_k")}
)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=8)
@given(problem=PROBLEMS, tiling=TILES)
def test_any_problem_and_tiling(version, problem, tiling):
    assert_correct(plan_of(version, tiling, **problem))


@settings(max_examples=8)
@given(
    problem=PROBLEMS,
    tiling=TILES,
    group_m=st.integers(1, 12),
    blocks=st.none() | st.integers(1, 40),
)
def test_v1_gives_the_bits_of_the_base_in_any_order_of_tiles(problem, tiling, group_m, blocks):
    base = plan_of("v0", tiling, **problem)
    walked = plan_of("v1", tiling | {"group_m": group_m}, **problem, blocks=blocks)
    assert torch.equal(outputs(base)["c"], outputs(walked)["c"])
    # A tile computed twice is a write conflict, a missing one a poisoned output.
    assert_correct(walked)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (256, 128, 192)])
def test_flops_equal_the_cost_model_where_tiles_divide(version, m, n, k):
    [(kernel, report)] = counted(plan_of(version, m=m, n=n, k=k))
    assert report.mma_flops == kernel.flops == 2 * m * n * k


@pytest.mark.parametrize("version", VERSIONS)
def test_ragged_problems_count_whole_tiles(version):
    tiling = {"tile_m": 32, "tile_n": 64, "tile_k": 16}
    [(_, report)] = counted(plan_of(version, tiling, m=33, n=65, k=24))
    assert report.mma_flops == 2 * 64 * 128 * 32


@pytest.mark.parametrize("version", VERSIONS)
def test_bytes(version):
    m, n, k = 70, 130, 40
    tiling = {"tile_m": 32, "tile_n": 64, "tile_k": 16}
    [(kernel, report)] = counted(plan_of(version, tiling, m=m, n=n, k=k))
    assert unique_bytes(report) == kernel.bytes == 2 * (m * k + n * k + m * n)
    # Each block loads its rows of A and of B, whole sums long.
    assert report.bytes_loaded == 2 * k * (m * math.ceil(n / 64) + n * math.ceil(m / 32))
    assert report.bytes_stored == 2 * m * n


@pytest.mark.parametrize(
    ("blocks", "sm_count", "grid"), [(None, 132, 12), (None, 5, 5), (3, 132, 3), (100, 132, 12)]
)
def test_v1_has_a_block_per_sm_and_none_without_a_tile(blocks, sm_count, grid):
    plan = plan_of("v1", {"tile_m": 64, "tile_n": 64}, m=256, n=192, k=64, blocks=blocks)
    plan = plan.resolve(machine(sm_count))
    assert plan.plan(*plan.prepare_inputs("meta")).grid() == (grid,)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"m": 0}, PlanError, "m=0 is below 1"),
        ({"k": 20}, PlanError, "k=20 is not a multiple of 8"),
        ({"n": 1 << 21}, PlanError, "n=2097152 exceeds 1048576"),
        ({"dtype": "fp8"}, PlanError, "dtype='fp8' is not one of bf16, fp16"),
        ({"tiling": {"tile_m": 48}}, TilingError, "tile_m=48 is not a power of two"),
        ({"tiling": {"tile_k": 24}}, TilingError, "tile_k=24 is not a power of two"),
        ({"tiling": {"tile_n": 8}}, TilingError, "tile_n=8 is below 16"),
        (
            {"tiling": {"tile_m": 256, "tile_n": 256}},
            TilingError,
            r"256\*256 = 65536 elements exceed 32768",
        ),
    ],
)
def test_refusals(version, fields, error, message):
    with pytest.raises(error, match=message):
        plan_of(version, **fields).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"blocks": 0}, PlanError, "blocks=0 is below 1"),
        ({"tiling": {"group_m": 0}}, TilingError, "group_m=0 is below 1"),
    ],
)
def test_v1_refusals(fields, error, message):
    with pytest.raises(error, match=message):
        plan_of("v1", **fields).plan_empty(694.0, 4270.0)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [64, 8192])
def test_offered_tilings_are_valid_and_hold_the_default(version, size):
    plan = plan_of(version, m=size, n=size, k=size)
    for stage, tilings in plan._autotune_configs().items():
        for tiling in tilings:
            tiling.validate(plan)
        assert plan.default_tiling(stage) in tilings


def test_groups_of_rows_share_their_columns():
    """The kernel's own arithmetic: each tile once, group_m rows high, column by column."""
    tiles_m, tiles_n, group_m = 5, 3, 2
    order = []
    for tile in range(tiles_m * tiles_n):
        group = tile // (group_m * tiles_n)
        height = min(tiles_m - group * group_m, group_m)
        place = tile % (group_m * tiles_n)
        order.append((group * group_m + place % height, place // height))
    assert sorted(order) == sorted(itertools.product(range(tiles_m), range(tiles_n)))
    assert order[:4] == [(0, 0), (1, 0), (0, 1), (1, 1)]
    assert order[-3:] == [(4, 0), (4, 1), (4, 2)]


@pytest.mark.parametrize("version", VERSIONS)
def test_the_default_does_not_spill_on_hopper(version):
    [(_, kernel)] = plan_of(version).plan_empty(694.0, 4270.0).stages()
    facts = compile_kernel(kernel.kernel, kernel.args(), "sm_90")
    assert facts.error is None
    assert (facts.spill_loads, facts.spill_stores, facts.stack_bytes) == (0, 0, 0)
    assert facts.mma_path == "HGMMA"
