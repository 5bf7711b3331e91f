"""Properties of interpreted kernels over random values, shapes, strides and indices."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import cuda.tile as ct
import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .helpers import FLOATS, INTEGERS, assert_same, limits, round_even, run, wrap

N = 8


def _binary(function: Any) -> Any:
    @ct.kernel
    def binary(a, b, out):
        ct.store(out, (0,), function(ct.load(a, (0,), (N,)), ct.load(b, (0,), (N,))))

    return binary


def _tensor(values: list[Any], dtype: torch.dtype) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor(values, dtype=torch.float64).to(dtype)
    return torch.tensor(values, dtype=dtype)


# ---------------------------------------------------------------- elementwise


@given(
    st.lists(st.floats(2.0**-60, 2.0**60), min_size=N, max_size=N),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_the_root_of_a_square_is_the_number(values: list[float], dtype: torch.dtype) -> None:
    a = _tensor(values, dtype)
    out = torch.zeros(N, dtype=dtype)
    run(_root_of_a_square, a, out)
    assert_same(out, a.tolist())


@ct.kernel
def _root_of_a_square(a, out):
    tile = ct.load(a, (0,), (N,))
    ct.store(out, (0,), ct.sqrt(tile * tile))


INTEGER_OPS: dict[str, tuple[Any, Callable[[int, int], int]]] = {
    "add": (_binary(ct.add), operator.add),
    "sub": (_binary(ct.sub), operator.sub),
    "mul": (_binary(ct.mul), operator.mul),
    "min": (_binary(ct.minimum), min),
    "max": (_binary(ct.maximum), max),
    "and": (_binary(ct.bitwise_and), operator.and_),
    "or": (_binary(ct.bitwise_or), operator.or_),
    "xor": (_binary(ct.bitwise_xor), operator.xor),
}


@st.composite
def integer_vectors(draw: st.DrawFn) -> tuple[torch.dtype, list[int], list[int]]:
    dtype = draw(st.sampled_from(list(INTEGERS)))
    low, high = limits(dtype)
    edges = st.sampled_from([low, low + 1, 0, 1, high // 2, high // 2 + 1, high - 1, high])
    vectors = st.lists(edges | st.integers(low, high), min_size=N, max_size=N)
    return dtype, draw(vectors), draw(vectors)


@settings(max_examples=80)
@given(integer_vectors(), st.sampled_from(list(INTEGER_OPS)))
def test_integer_operations_agree_with_python(
    vectors: tuple[torch.dtype, list[int], list[int]], name: str
) -> None:
    dtype, a, b = vectors
    kernel, reference = INTEGER_OPS[name]
    out = torch.zeros(N, dtype=dtype)
    run(kernel, _tensor(a, dtype), _tensor(b, dtype), out)
    assert_same(out, [wrap(reference(x, y), dtype) for x, y in zip(a, b, strict=True)])


@settings(max_examples=40)
@given(integer_vectors(), st.booleans())
def test_integer_division_agrees_with_python(
    vectors: tuple[torch.dtype, list[int], list[int]], remainder: bool
) -> None:
    dtype, a, b = vectors
    low, _ = limits(dtype)
    b = [1 if y == 0 or (x == low and y == -1) else y for x, y in zip(a, b, strict=True)]
    out = torch.zeros(N, dtype=dtype)
    run(MODULO if remainder else FLOOR_DIVISION, _tensor(a, dtype), _tensor(b, dtype), out)
    reference = operator.mod if remainder else operator.floordiv
    assert_same(out, [reference(x, y) for x, y in zip(a, b, strict=True)])


FLOOR_DIVISION, MODULO = _binary(ct.floordiv), _binary(ct.mod)

FLOAT_OPS: dict[str, tuple[Any, Callable[[Fraction, Fraction], Fraction]]] = {
    "add": (_binary(ct.add), operator.add),
    "sub": (_binary(ct.sub), operator.sub),
    "mul": (_binary(ct.mul), operator.mul),
    "div": (_binary(ct.truediv), operator.truediv),
}
ARITHMETIC_FLOATS = (torch.float16, torch.bfloat16, torch.float32)


@st.composite
def float_vectors(draw: st.DrawFn) -> tuple[torch.dtype, list[float], list[float]]:
    dtype = draw(st.sampled_from(ARITHMETIC_FLOATS))
    _, _, largest = FLOATS[dtype]
    numbers = st.floats(-largest, largest, width=32) | st.integers(-64, 64).map(float)
    vectors = st.lists(numbers, min_size=N, max_size=N).map(
        lambda values: _tensor(values, dtype).double().tolist()
    )
    return dtype, draw(vectors), draw(vectors)


def _exact(
    reference: Callable[[Fraction, Fraction], Fraction], x: float, y: float, dtype: torch.dtype
) -> float:
    """The correctly rounded result; the sign of an exact zero as IEEE 754 has it."""
    exact = reference(Fraction(x), Fraction(y))
    if exact == 0:
        return float(reference(np.float64(x), np.float64(y)))  # type: ignore[arg-type]
    return round_even(exact, *FLOATS[dtype])


@settings(max_examples=80)
@given(float_vectors(), st.sampled_from(list(FLOAT_OPS)))
def test_float_operations_are_correctly_rounded(
    vectors: tuple[torch.dtype, list[float], list[float]], name: str
) -> None:
    dtype, a, b = vectors
    kernel, reference = FLOAT_OPS[name]
    if name == "div":
        b = [1.0 if y == 0 else y for y in b]
    out = torch.zeros(N, dtype=dtype)
    run(kernel, _tensor(a, dtype), _tensor(b, dtype), out)
    assert_same(out.double(), [_exact(reference, x, y, dtype) for x, y in zip(a, b, strict=True)])


@ct.kernel
def convert(a, out):
    ct.store(out, (0,), ct.astype(ct.load(a, (0,), (N,)), out.dtype))


@st.composite
def conversions(draw: st.DrawFn) -> tuple[torch.dtype, list[float]]:
    dtype = draw(st.sampled_from([d for d in FLOATS if d is not torch.float32]))
    _, least, largest = FLOATS[dtype]
    small = 2.0 ** (least + 2)
    bound = float(np.float32(largest))
    numbers = st.floats(-bound, bound, width=32) | st.floats(-small, small, width=32)
    return dtype, draw(st.lists(numbers, min_size=N, max_size=N))


@settings(max_examples=80)
@given(conversions())
def test_float_conversions_round_to_nearest_even(case: tuple[torch.dtype, list[float]]) -> None:
    dtype, values = case
    out = torch.zeros(N).to(dtype)
    run(convert, torch.tensor(values), out)
    assert_same(out.double(), [round_even(v, *FLOATS[dtype]) for v in values])


ANY_FLOAT = st.floats(width=32) | st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf])


@ct.kernel
def extremes(a, b, out):
    x, y = ct.load(a, (0,), (N,)), ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), ct.maximum(x, y).reshape((1, N)))
    ct.store(out, (1, 0), ct.minimum(x, y).reshape((1, N)))
    ct.store(out, (2, 0), ct.maximum(x, y, propagate_nan=True).reshape((1, N)))
    ct.store(out, (3, 0), ct.where(x <= y, x, y).reshape((1, N)))


@settings(max_examples=40)
@given(*[st.lists(ANY_FLOAT, min_size=N, max_size=N)] * 2)
def test_extremes_of_floats(a: list[float], b: list[float]) -> None:
    out = torch.zeros(4, N)
    run(extremes, torch.tensor(a), torch.tensor(b), out)
    x, y = np.array(a, np.float32), np.array(b, np.float32)
    np.testing.assert_array_equal(out[0].numpy(), np.fmax(x, y))
    np.testing.assert_array_equal(out[1].numpy(), np.fmin(x, y))
    np.testing.assert_array_equal(out[2].numpy(), np.maximum(x, y))
    np.testing.assert_array_equal(out[3].numpy(), np.where(x <= y, x, y))


# ---------------------------------------------------------------- reductions


Ints = ct.Constant[tuple[int, ...]]


@ct.kernel
def sum_and_scan(x, total, running, SHAPE: Ints, AXIS: ct.Constant, REVERSE: ct.Constant):
    origin = ct.static_eval((0,) * len(SHAPE))
    tile = ct.load(x, origin, SHAPE)
    ct.store(total, origin, ct.sum(tile, AXIS, keepdims=True))
    ct.store(running, origin, ct.cumsum(tile, AXIS, reverse=REVERSE))


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from([1, 2, 4, 8]), min_size=1, max_size=3),
    st.integers(0, 2),
    st.booleans(),
    st.sampled_from([torch.int8, torch.int32, torch.int64]),
    st.integers(0, 2**32),
)
def test_sums_and_scans_agree_with_numpy(
    shape: list[int], axis: int, reverse: bool, dtype: torch.dtype, seed: int
) -> None:
    axis %= len(shape)
    low, high = limits(dtype)
    x = np.random.default_rng(seed).integers(low, high, shape, dtype=np.int64, endpoint=True)
    kept = [1 if i == axis else n for i, n in enumerate(shape)]
    total, running = torch.zeros(kept, dtype=dtype), torch.zeros(shape, dtype=dtype)
    run(sum_and_scan, torch.from_numpy(x).to(dtype), total, running, tuple(shape), axis, reverse)
    narrow = x.astype(str(dtype).removeprefix("torch."))
    flipped = np.flip(narrow, axis) if reverse else narrow
    with np.errstate(over="ignore"):
        scan = np.cumsum(flipped, axis, dtype=narrow.dtype)
        expected_total = narrow.sum(axis, dtype=narrow.dtype, keepdims=True)
    np.testing.assert_array_equal(total.numpy(), expected_total)
    np.testing.assert_array_equal(running.numpy(), np.flip(scan, axis) if reverse else scan)


# ---------------------------------------------------------------- loads and stores


@ct.kernel
def pack(x, out, TILE: Ints, ORDER: Ints):
    index = (ct.bid(0), ct.bid(1), ct.bid(2))[: len(TILE)]
    tile = ct.load(x, index, TILE, order=ORDER, padding_mode=ct.PaddingMode.ZERO)
    ct.store(out, index, tile)


@ct.kernel
def unpack(x, out, TILE: Ints, ORDER: Ints):
    index = (ct.bid(0), ct.bid(1), ct.bid(2))[: len(TILE)]
    ct.store(out, index, ct.load(x, index, TILE), order=ORDER)


@st.composite
def views(draw: st.DrawFn) -> dict[str, Any]:
    """A strided view inside a larger storage, a tile shape and an order."""
    ndim = draw(st.integers(1, 3))
    shape = draw(st.lists(st.integers(1, 9), min_size=ndim, max_size=ndim))
    memory_order = draw(st.permutations(range(ndim)))
    gaps = draw(st.lists(st.integers(1, 3), min_size=ndim, max_size=ndim))
    strides, reach = [0] * ndim, 1
    for axis, gap in zip(memory_order, gaps, strict=True):
        strides[axis] = reach * gap
        reach = strides[axis] * shape[axis]
    return {
        "shape": shape,
        "strides": strides,
        "offset": draw(st.integers(0, 5)),
        "reach": reach,
        "tile": draw(st.lists(st.sampled_from([1, 2, 4, 8]), min_size=ndim, max_size=ndim)),
        "order": tuple(draw(st.permutations(range(ndim)))),
        "dtype": draw(st.sampled_from([torch.float32, torch.int16, torch.bfloat16])),
    }


def _view(case: dict[str, Any], storage: torch.Tensor) -> torch.Tensor:
    return storage.as_strided(case["shape"], case["strides"], case["offset"])


def _padded(case: dict[str, Any]) -> tuple[tuple[int, ...], list[int]]:
    """Grid and shape of the permuted view when it is rounded up to whole tiles."""
    shape = [case["shape"][axis] for axis in case["order"]]
    grid = tuple(-(-n // t) for n, t in zip(shape, case["tile"], strict=True))
    return grid, [g * t for g, t in zip(grid, case["tile"], strict=True)]


@settings(max_examples=60)
@given(views())
def test_loads_reach_every_element_of_any_view(case: dict[str, Any]) -> None:
    storage = torch.arange(1, 1 + case["offset"] + case["reach"]).remainder(251).to(case["dtype"])
    x = _view(case, storage)
    grid, shape = _padded(case)
    out = torch.full(shape, 99).to(case["dtype"])
    report = run(pack, x, out, tuple(case["tile"]), case["order"], grid=grid)
    expected = torch.zeros(shape, dtype=case["dtype"])
    permuted = x.permute(case["order"])
    expected[tuple(slice(n) for n in permuted.shape)] = permuted
    assert torch.equal(out, expected)
    assert report.diagnostics == []
    assert report.bytes_loaded == report.unique_bytes_loaded == x.numel() * x.element_size()
    assert report.bytes_stored == report.unique_bytes_stored == out.numel() * out.element_size()


@settings(max_examples=60)
@given(views())
def test_stores_reach_every_element_of_any_view_and_nothing_else(case: dict[str, Any]) -> None:
    storage = torch.full((case["offset"] + case["reach"] + 3,), 99).to(case["dtype"])
    expected = storage.clone()
    grid, shape = _padded(case)
    x = torch.arange(1, 1 + math.prod(shape)).remainder(97).reshape(shape).to(case["dtype"])
    out = _view(case, storage)
    report = run(unpack, x, out, tuple(case["tile"]), case["order"], grid=grid)
    clipped = x[tuple(slice(case["shape"][axis]) for axis in case["order"])]
    _view(case, expected).permute(case["order"]).copy_(clipped)
    assert torch.equal(storage, expected)
    assert report.diagnostics == []
    assert report.bytes_stored == report.unique_bytes_stored == out.numel() * out.element_size()


@ct.kernel
def gather_and_scatter(x, rows, columns, keep, gathered, scattered):
    r, c = ct.load(rows, (0,), (N,)), ct.load(columns, (0,), (N,))
    mask = ct.load(keep, (0,), (N,))
    tile = ct.gather(x, (r, c), mask=mask, padding_value=-1.0)
    ct.store(gathered, (0,), tile)
    ct.scatter(scattered, (r, c), tile + 1000.0, mask=mask)


INDEX_PAIRS = st.tuples(st.integers(-3, 7), st.integers(-3, 9))


@settings(max_examples=60)
@given(
    st.lists(INDEX_PAIRS, min_size=N, max_size=N, unique=True),
    st.lists(st.booleans(), min_size=N, max_size=N),
    st.booleans(),
)
def test_gather_and_scatter_touch_what_is_inside_and_unmasked(
    at: list[tuple[int, int]], keep: list[bool], transposed: bool
) -> None:
    base = torch.arange(35.0).reshape(5, 7)
    x = base.t().contiguous().t() if transposed else base
    scattered = torch.full((5, 7), -5.0)
    expected = scattered.clone()
    gathered, wanted = torch.zeros(N), []
    rows, columns = (torch.tensor(v, dtype=torch.int32) for v in zip(*at, strict=True))
    for (r, c), kept in zip(at, keep, strict=True):
        inside = kept and 0 <= r < 5 and 0 <= c < 7
        wanted.append(base[r, c].item() if inside else -1.0)
        if inside:
            expected[r, c] = base[r, c] + 1000.0
    run(gather_and_scatter, x, rows, columns, torch.tensor(keep), gathered, scattered)
    assert gathered.tolist() == wanted
    assert torch.equal(scattered, expected)


# ---------------------------------------------------------------- whole kernels


@ct.kernel
def matmul(a, b, out, TM: ct.Constant[int], TN: ct.Constant[int], TK: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TM, TN), ct.float32)
    for k in range(ct.num_tiles(a, 1, shape=(TM, TK))):
        x = ct.load(a, (i, k), (TM, TK), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, (k, j), (TK, TN), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(x, y, acc)
    ct.store(out, (i, j), ct.astype(acc, out.dtype))


@settings(max_examples=25)
@given(
    st.tuples(*[st.integers(1, 20)] * 3),
    st.tuples(*[st.sampled_from([2, 4, 8, 16])] * 3),
    st.integers(0, 2**32),
)
def test_a_tiled_matrix_product_of_any_shape(
    sizes: tuple[int, int, int], tiles: tuple[int, int, int], seed: int
) -> None:
    (m, n, k), (tm, tn, tk) = sizes, tiles
    generator = torch.Generator().manual_seed(seed)
    a = torch.randint(-8, 9, (m, k), generator=generator)
    b = torch.randint(-8, 9, (k, n), generator=generator)
    out = torch.full((m, n), 0.5)
    grid = (-(-m // tm), -(-n // tn))
    report = run(matmul, a.half(), b.half(), out, tm, tn, tk, grid=grid)
    assert torch.equal(out.long(), a @ b)
    assert report.diagnostics == []
    steps = math.prod(grid) * -(-k // tk)
    assert report.mma_flops == 2 * tm * tn * tk * steps
    loaded = sum(
        _overlap(i, tm, m) * _overlap(p, tk, k) + _overlap(p, tk, k) * _overlap(j, tn, n)
        for i, j, p in itertools.product(range(grid[0]), range(grid[1]), range(-(-k // tk)))
    )
    assert report.bytes_loaded == 2 * loaded


def _overlap(index: int, tile: int, size: int) -> int:
    """Elements of one axis that a tile shares with its array."""
    return min(size, (index + 1) * tile) - index * tile
