"""Whole numbers of tiles: quotients of every sign, by one and minus one, at the ends of a type."""

from __future__ import annotations

import itertools

import cuda.tile as ct
import pytest
import torch

from .helpers import run

N = 64


@ct.kernel
def divided(a, b, q, r, c):
    x, y = ct.load(a, (0,), (N,)), ct.load(b, (0,), (N,))
    ct.store(q, (0,), x // y)
    ct.store(r, (0,), x % y)
    ct.store(c, (0,), ct.cdiv(x, y))


@pytest.mark.parametrize(
    "dtype",
    [
        torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32,
        torch.uint64,
    ],
    ids=str,
)  # fmt: skip
def test_quotients_and_remainders_of_tiles(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    near = [x for x in (-7, -3, -2, -1, 0, 1, 2, 3, 7, 8) if x >= info.min]
    dividends = [info.min, info.min + 1, *near, info.max - 1, info.max]
    divisors = [x for x in (-3, -1, 1, 2, 3) if x >= info.min] + [info.max]
    pairs = list(itertools.product(dividends, divisors))
    for start in range(0, len(pairs), N):
        part = pairs[start : start + N]
        part += [(1, 1)] * (N - len(part))
        a, b = (torch.tensor(column, dtype=dtype) for column in zip(*part, strict=True))
        q, r, c = (torch.zeros(N, dtype=dtype) for _ in range(3))
        run(divided, a, b, q, r, c)
        for (x, y), *got in zip(part, q.tolist(), r.tolist(), c.tolist(), strict=True):
            bits = 8 * dtype.itemsize
            for value, wanted in zip(got, (x // y, x % y, -(-x // y)), strict=True):
                assert (value - wanted) % (1 << bits) == 0, (x, y)


@ct.kernel
def changed(a, y):
    x = ct.load(a, (0,), (8,))
    ct.store(y, (0,), -x)
    ct.store(y, (1,), abs(x))
    ct.store(y, (2,), ~x)


@pytest.mark.parametrize("dtype", [torch.int16, torch.int32, torch.int64], ids=str)
def test_numbers_are_negated_and_inverted(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = [0, 1, -1, 5, -5, info.max, info.min + 1, info.max - 1]
    y = torch.zeros(24, dtype=dtype)
    run(changed, torch.tensor(values, dtype=dtype), y)
    assert y.tolist() == [*(-x for x in values), *map(abs, values), *(~x for x in values)]
