"""Problems at edges of the matrix product."""

from __future__ import annotations

import torch

from mla_var3.workloads.gemm import GemmProblem


def test_groups_of_tiles_end_small_along_rows_and_columns():
    rows, columns, _ = GemmProblem().edges()
    assert (rows.m, rows.n) == (columns.n, columns.m)
    for tile, group in ((64, 8), (128, 8)):
        tiles = -(-rows.m // tile)
        assert tiles > 2 * group, "a third group"
        assert tiles % group, "and the last one is small"
        assert rows.n > 2 * tile


def test_a_long_sum_is_large_before_it_ends():
    long = GemmProblem().edges()[-1]
    a, b = (x.double() for x in long.prepare_inputs())
    c = long.reference_fn(*long.prepare_inputs())["c"]
    assert long.k > 32 * 64
    assert c.norm(dim=-1)[0] < 4 * c.norm(dim=-1).median()
    for end in (64, 1024, long.k - 1):
        assert (a[0, :end] @ b[:, :end].T).abs().min() > 16 * c[0].abs().mean()
    torch.testing.assert_close((a @ b.T).float(), c, rtol=1e-3, atol=1e-3)
