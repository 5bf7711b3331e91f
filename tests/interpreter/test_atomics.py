"""Atomics against Python, one element after the other: every operation, type and collision."""

from __future__ import annotations

import math
from collections.abc import Callable

import cuda.tile as ct
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .helpers import run

Int = ct.Constant[int]
OPS = ("add", "max", "min", "and", "or", "xor", "xchg", "cas")
INTEGERS = (torch.int32, torch.uint32, torch.int64, torch.uint64)


@ct.kernel
def updates(x, at, by, want, old, OP: Int):
    i, u = ct.load(at, (0,), (8,)), ct.load(by, (0,), (8,))
    expected = ct.load(want, (0,), (8,))
    if OP == 0:
        r = ct.atomic_add(x, i, u)
    elif OP == 1:
        r = ct.atomic_max(x, i, u)
    elif OP == 2:
        r = ct.atomic_min(x, i, u)
    elif OP == 3:
        r = ct.atomic_and(x, i, u)
    elif OP == 4:
        r = ct.atomic_or(x, i, u)
    elif OP == 5:
        r = ct.atomic_xor(x, i, u)
    elif OP == 6:
        r = ct.atomic_xchg(x, i, u)
    else:
        r = ct.atomic_cas(x, i, expected, u)
    ct.store(old, (0,), r)


FUNCTIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b, "max": max, "min": min, "and": lambda a, b: a & b,
    "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "xchg": lambda a, b: b,
}  # fmt: skip


def wrapped(value: int, dtype: torch.dtype) -> int:
    bits = 8 * dtype.itemsize
    value %= 1 << bits
    return value - (1 << bits) if dtype.is_signed and value >> (bits - 1) else value


@pytest.mark.parametrize("op", OPS)
@settings(max_examples=6)
@given(st.sampled_from(INTEGERS), st.booleans(), st.data())
def test_elements_that_coincide_are_updated_one_after_the_other(
    op: str, dtype: torch.dtype, apart: bool, data: st.DataObject
) -> None:
    """Indices outside the array take no part; of these compare-and-swap gives what it expected."""
    info = torch.iinfo(dtype)
    number = st.sampled_from([info.min, info.max, 0, 1, 2, info.max // 2 + 1]) | st.integers(
        info.min, info.max
    )
    before = data.draw(st.lists(number, min_size=5, max_size=5))
    by, want = (data.draw(st.lists(number, min_size=8, max_size=8)) for _ in "ab")
    places = list(range(-1, 7))
    at = data.draw(
        st.permutations(places)
        if apart
        else st.lists(st.sampled_from(places), min_size=8, max_size=8)
    )
    if op == "cas":  # Some of what is expected is there.
        want = [before[i] if 0 <= i < 5 and n % 2 else w for n, (i, w) in enumerate(
            zip(at, want, strict=True))]  # fmt: skip
    now, olds = list(before), []
    for i, u, w in zip(at, by, want, strict=True):
        if not 0 <= i < 5:
            olds.append(w if op == "cas" else None)
            continue
        olds.append(now[i])
        if op == "cas":
            now[i] = u if now[i] == w else now[i]
        else:
            now[i] = wrapped(FUNCTIONS[op](now[i], u), dtype)
    x, u, w = (torch.tensor(v, dtype=dtype) for v in (before, by, want))
    old = torch.zeros(8, dtype=dtype)
    report = run(updates, x, torch.tensor(at, dtype=torch.int32), u, w, old, OPS.index(op))
    assert x.tolist() == now
    for got, wanted in zip(old.tolist(), olds, strict=True):
        assert wanted is None or got == wanted
    moved = sum(0 <= i < 5 for i in at) * dtype.itemsize
    whole = {line: t for line, t in report.bytes_by_line.items() if t.loads and t.stores}
    assert [(t.bytes_loaded, t.bytes_stored, t.loads, t.stores) for t in whole.values()] == [
        (moved, moved, 1, 1)
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_swap_of_floats_compares_their_bits(dtype: torch.dtype) -> None:
    nan = math.nan
    before = [0.0, -0.0, nan, 1.0, 2.0]
    want = [-0.0, -0.0, nan, 1.0, 1.0, 0.0, 0.0, 0.0]
    x = torch.tensor(before, dtype=dtype)
    at = torch.arange(8, dtype=torch.int32)
    by, old = torch.full((8,), 9.0, dtype=dtype), torch.zeros(8, dtype=dtype)
    run(updates, x, at, by, torch.tensor(want, dtype=dtype), old, OPS.index("cas"))
    assert repr(x.tolist()) == repr([0.0, 9.0, 9.0, 9.0, 2.0])
    assert repr(old.tolist()) == repr([*before, 0.0, 0.0, 0.0])


@ct.kernel
def of_a_tile(x, by, i, OP: Int):
    view, u = x.tiled_view((4, 4)), ct.load(by, (0, 0), (4, 4))
    if OP == 0:
        view.atomic_store_add((i, 0), u)
    elif OP == 1:
        view.atomic_store_max((i, 0), u)
    else:
        view.atomic_store_min((i, 0), u)


@pytest.mark.parametrize("op", range(3))
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("i", [0, 1, 2])
def test_a_tile_is_updated_where_the_array_has_it(i: int, dtype: torch.dtype, op: int) -> None:
    """Of the last tile two rows, and three columns of each."""
    info = torch.iinfo(dtype)
    values = [(37 * k + 5) % 23 + (info.max - 30 if k % 3 else 0) for k in range(30)]
    x = torch.tensor(values, dtype=dtype).reshape(10, 3)
    by = torch.tensor([(k * 7) % 40 for k in range(16)], dtype=dtype).reshape(4, 4)
    wanted = [list(row) for row in x.tolist()]
    for row in range(4 * i, min(4 * i + 4, 10)):
        for column in range(3):
            both = wanted[row][column], int(by[row - 4 * i, column])
            wanted[row][column] = wrapped((sum, max, min)[op](both), dtype)
    run(of_a_tile, x, by, i, op)
    assert x.tolist() == wanted
