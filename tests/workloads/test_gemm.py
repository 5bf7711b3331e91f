"""Problems at edges of the matrix product."""

from __future__ import annotations

import pytest
import torch

from mla_var3.workloads.gemm import LARGE, GemmProblem


def test_groups_of_tiles_end_small_along_rows_and_columns():
    rows, columns, *_ = GemmProblem().edges()
    assert (rows.m, rows.n) == (columns.n, columns.m)
    for tile, group in ((64, 8), (128, 8)):
        tiles = -(-rows.m // tile)
        assert tiles > 2 * group, "a third group"
        assert tiles % group, "and the last one is small"
        assert rows.n > 2 * tile


@pytest.mark.parametrize("tile", [64, 128])
def test_tiles_are_so_many_that_a_reciprocal_in_16_bits_is_wrong(tile):
    """Of the tiles in a group of eight rows, which is what a place is divided by."""
    both = GemmProblem().edges()[2]
    group = 8 * -(-both.n // tile)
    assert both.m > 8 * tile, "a second group"
    places = range(-(-both.m // tile) * -(-both.n // tile))
    assert any(place * (65536 // group + 1) // 65536 != place // group for place in places)


def test_a_long_sum_is_large_before_it_ends():
    long = GemmProblem().edges()[-1]
    a, b = (x.double() for x in long.prepare_inputs())
    c = long.reference_fn(*long.prepare_inputs())["c"]
    assert long.k > 32 * 64
    assert c.to(torch.float16).isfinite().all()
    for end in (64, 1024, long.k - 1):
        between = (a[0, :end] @ b[:, :end].T).abs()
        assert between.min() > 16 * c[0].abs().mean()
        assert between.min() > torch.finfo(torch.float16).max
    torch.testing.assert_close((a @ b.T).float(), c, rtol=1e-3, atol=0.05)


@pytest.mark.parametrize(("dtype", "least"), [("bf16", 65504), ("fp16", 65504 / 4)])
def test_a_large_row_is_beyond_fp16_or_near_its_end(dtype, least):
    plan = GemmProblem(m=200, n=136, k=72, dtype=dtype, spread=LARGE)
    a, b = plan.prepare_inputs()
    c = plan.reference_fn(a, b)["c"]
    assert c[-1].abs().max() > least
    assert c.to(plan.torch_dtype).isfinite().all()
    assert c[1:-1].abs().max() < 10
    between = a.double()[0, :-1] @ b.double()[:, :-1].T
    assert between.abs().min() > torch.finfo(torch.float16).max, "of the first row, for a while"
    assert plan.extreme().endswith("times as large")
