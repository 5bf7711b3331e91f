"""Combiners of reductions: which are torch's own, and which have to be applied by halves."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from .helpers import run_clean


@ct.kernel
def one_sided(x, out):
    t = ct.load(x, (0,), (4,))
    ct.store(out, (0,), ct.reduce(t, 0, lambda p, q: p + p, 0))
    ct.store(out, (1,), ct.reduce(t, 0, lambda p, q: q + q, 0))
    ct.store(out, (2,), ct.reduce(t, 0, lambda p, q: ct.maximum(p, p), 0))
    ct.store(out, (3,), ct.reduce(t, 0, lambda p, q: ct.maximum(q, q), 0))
    ct.store(out, (4,), ct.reduce(t, 0, lambda p, q: q + p, 0))
    ct.store(out, (5,), ct.reduce(t, 0, lambda p, q: p * q, 1))


@pytest.mark.parametrize("dtype", [torch.int32, torch.float32, torch.float64], ids=str)
def test_a_combiner_may_take_one_operand_twice(dtype: torch.dtype) -> None:
    """Of 3, 1, 4, 2 the left halves are 3, 1 and 3, and the right ones 4, 2 and 2."""
    out = torch.zeros(6, dtype=dtype)
    run_clean(one_sided, torch.tensor([3, 1, 4, 2], dtype=dtype), out)
    assert out.tolist() == [12, 8, 3, 2, 10, 24]
