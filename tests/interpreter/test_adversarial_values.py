"""Adversarial micro-kernels: what comes out of arithmetic, conversions, reductions and mma.

Every expected value is computed here with Python integers, exact fractions, numpy or torch,
never with the interpreter.
"""

from __future__ import annotations

import math
import operator
import struct
from fractions import Fraction

import cuda.tile as ct
import numpy as np
import pytest
import torch

from .helpers import (
    FLOATS,
    INTEGERS,
    TF32,
    assert_same,
    limits,
    refusal_by_cutile,
    round_even,
    round_to,
    run,
    run_clean,
    wrap,
)

N = 16
Int = ct.Constant[int]
INF, NAN = math.inf, math.nan


def _edge_values(dtype: torch.dtype) -> list[int]:
    """Sixteen integers around the places where arithmetic goes wrong."""
    low, high = limits(dtype)
    middle = [low // 2, -3, -2, -1] if low < 0 else [high // 2, high // 2 + 1, 5, 4]
    top = [high // 3, high // 2, high // 2 + 1, high - 1, high]
    return [low, low + 1, *middle, 0, 1, 2, 3, 7, *top]


# ---------------------------------------------------------------- integers


@ct.kernel
def integer_arithmetic(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), (x + y).reshape((1, N)))
    ct.store(out, (1, 0), (x - y).reshape((1, N)))
    ct.store(out, (2, 0), (x * y).reshape((1, N)))
    ct.store(out, (3, 0), (-x).reshape((1, N)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps_around(dtype: torch.dtype) -> None:
    a = _edge_values(dtype)
    b = a[::-1][3:] + a[::-1][:3]
    out = torch.zeros(4, N, dtype=dtype)
    run_clean(integer_arithmetic, torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), out)
    for row, op in enumerate((operator.add, operator.sub, operator.mul)):
        assert_same(out[row], [wrap(op(x, y), dtype) for x, y in zip(a, b, strict=True)])
    assert_same(out[3], [wrap(-x, dtype) for x in a])


@ct.kernel
def integer_division(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), (x // y).reshape((1, N)))
    ct.store(out, (1, 0), (x % y).reshape((1, N)))
    ct.store(out, (2, 0), ct.cdiv(x, y).reshape((1, N)))
    q, r = divmod(x, y)
    ct.store(out, (3, 0), (q * y + r).reshape((1, N)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_rounds_as_python_does(dtype: torch.dtype) -> None:
    low, high = limits(dtype)
    a = [7, 7, 0, high, high, low, 6, 1, 100, high - 1, high // 2 + 1, low + 1, 3, 9, low, high]
    b = [2, 3, 5, high, 2, 2, 3, high, 7, high, 3, 3, 2, 10, high, 1]
    if low < 0:
        a[4:8] = [-7, -7, 7, -6]
        b[4:8] = [2, -2, -2, 3]
    out = torch.zeros(4, N, dtype=dtype)
    run_clean(integer_division, torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), out)
    pairs = list(zip(a, b, strict=True))
    assert_same(out[0], [x // y for x, y in pairs])
    assert_same(out[1], [x % y for x, y in pairs])
    assert_same(out[2], [-(-x // y) for x, y in pairs])
    assert_same(out[3], a)


@ct.kernel
def shifts_and_bits(a, count, out):
    x = ct.load(a, (0,), (N,))
    n = ct.load(count, (0,), (N,))
    ct.store(out, (0, 0), (x << n).reshape((1, N)))
    ct.store(out, (1, 0), (x >> n).reshape((1, N)))
    ct.store(out, (2, 0), (~x).reshape((1, N)))
    ct.store(out, (3, 0), ((x ^ n) & (x | n)).reshape((1, N)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_drop_bits_and_keep_the_sign(dtype: torch.dtype) -> None:
    bits, _ = INTEGERS[dtype]
    a = _edge_values(dtype)
    counts = [0, 1, 2, 3, bits - 1, bits - 2, 4, 5, 1, 7, 3, 2, 1, 6, 1, bits - 1]
    out = torch.zeros(4, N, dtype=dtype)
    run_clean(shifts_and_bits, torch.tensor(a, dtype=dtype), torch.tensor(counts, dtype=dtype), out)
    pairs = list(zip(a, counts, strict=True))
    assert_same(out[0], [wrap(x << n, dtype) for x, n in pairs])
    assert_same(out[1], [x >> n for x, n in pairs])
    assert_same(out[2], [wrap(~x, dtype) for x in a])
    assert_same(out[3], [wrap((x ^ n) & (x | n), dtype) for x, n in pairs])


@ct.kernel
def compare_and_select(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), ct.minimum(x, y).reshape((1, N)))
    ct.store(out, (1, 0), ct.maximum(x, y).reshape((1, N)))
    ct.store(out, (2, 0), ct.where(x < y, x, y).reshape((1, N)))
    ct.store(out, (3, 0), ct.where((x >= y) & (x != y), x, y).reshape((1, N)))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_comparisons_know_signedness(dtype: torch.dtype) -> None:
    a = _edge_values(dtype)
    b = a[5:] + a[:5]
    out = torch.zeros(4, N, dtype=dtype)
    run_clean(compare_and_select, torch.tensor(a, dtype=dtype), torch.tensor(b, dtype=dtype), out)
    for row, pick in enumerate((min, max, min, max)):
        assert_same(out[row], [pick(x, y) for x, y in zip(a, b, strict=True)])


@ct.kernel
def loop_carried(a, out, steps):
    x = ct.load(a, (0,), (N,))
    for _ in range(steps):
        x = x + 1
    ct.store(out, (0,), x)


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16], ids=str)
def test_a_loop_carried_integer_keeps_its_dtype_and_wraps(dtype: torch.dtype) -> None:
    a = _edge_values(dtype)
    out = torch.zeros(N, dtype=dtype)
    run_clean(loop_carried, torch.tensor(a, dtype=dtype), out, 300)
    assert_same(out, [wrap(x + 300, dtype) for x in a])


@ct.kernel
def induction_variable(out, start, stop):
    for i in range(start, stop):
        ct.scatter(out, i - start, i * i)


def test_an_induction_variable_is_a_32_bit_integer() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    run_clean(induction_variable, out, 46339, 46343)
    assert_same(out, [wrap(i * i, torch.int32) for i in range(46339, 46343)])


@ct.kernel
def wide_scalar(out, big: ct.ScalarInt64, small):
    ct.scatter(out, 0, big * 3)
    ct.scatter(out, 1, big + small)
    ct.scatter(out, 2, ct.astype(small * small, ct.int64))


def test_int64_scalars_are_wide_and_int32_scalars_wrap() -> None:
    out = torch.zeros(4, dtype=torch.int64)
    run(wide_scalar, out, 2**40 + 1, 2**16 + 1)
    expected = [3 * (2**40 + 1), 2**40 + 1 + 2**16 + 1, wrap((2**16 + 1) ** 2, torch.int32), 0]
    assert_same(out, expected)


@ct.kernel
def promotions(small, wide, unsigned, out):
    s = ct.load(small, (0,), (N,))
    w = ct.load(wide, (0,), (N,))
    ct.store(out, (0, 0), ct.astype(s + w, ct.int64).reshape((1, N)))
    ct.store(out, (1, 0), ct.astype(s * 100, ct.int64).reshape((1, N)))
    u = ct.load(unsigned, (0,), (N,))
    ct.store(out, (2, 0), ct.astype(u * 2, ct.int64).reshape((1, N)))


def test_promotion_happens_before_the_operation() -> None:
    s, w = [127, -128] * 8, [2**31 - 1, -(2**31)] * 8
    u = [200, 255] * 8
    out = torch.zeros(4, N, dtype=torch.int64)
    run(
        promotions,
        torch.tensor(s, dtype=torch.int8),
        torch.tensor(w, dtype=torch.int32),
        torch.tensor(u, dtype=torch.uint8),
        out,
    )
    assert_same(out[0], [wrap(x + y, torch.int32) for x, y in zip(s, w, strict=True)])
    assert_same(out[1], [wrap(x * 100, torch.int8) for x in s])
    assert_same(out[2], [wrap(x * 2, torch.uint8) for x in u])


@ct.kernel
def scalar_arithmetic(a, b, out):
    x, y = ct.load(a, (ct.bid(0),), (1,)).item(), ct.load(b, (ct.bid(0),), (1,)).item()
    ct.scatter(out, (0, ct.bid(0)), x + y)
    ct.scatter(out, (1, ct.bid(0)), x - y)
    ct.scatter(out, (2, ct.bid(0)), x * y)
    ct.scatter(out, (3, ct.bid(0)), -x)
    ct.scatter(out, (4, ct.bid(0)), ~x)
    ct.scatter(out, (5, ct.bid(0)), x & y)
    ct.scatter(out, (6, ct.bid(0)), x | y)
    ct.scatter(out, (7, ct.bid(0)), x ^ y)
    ct.scatter(out, (8, ct.bid(0)), ct.where(x < y, x, y))
    ct.scatter(out, (9, ct.bid(0)), max(x, y))
    ct.scatter(out, (10, ct.bid(0)), x << 3)
    ct.scatter(out, (11, ct.bid(0)), x >> 3)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scalars_calculate_as_tiles_do(dtype: torch.dtype) -> None:
    a = _edge_values(dtype)
    b = a[7:] + a[:7]
    out = torch.zeros(12, N, dtype=dtype)
    run_clean(scalar_arithmetic, *(torch.tensor(v, dtype=dtype) for v in (a, b)), out, grid=(N,))
    pairs = list(zip(a, b, strict=True))
    functions = [
        lambda x, y: x + y,
        lambda x, y: x - y,
        lambda x, y: x * y,
        lambda x, y: -x,
        lambda x, y: ~x,
        lambda x, y: x & y,
        lambda x, y: x | y,
        lambda x, y: x ^ y,
        min,
        max,
        lambda x, y: x << 3,
        lambda x, y: x >> 3,
    ]
    for row, function in enumerate(functions):
        assert_same(out[row], [wrap(function(x, y), dtype) for x, y in pairs])


@ct.kernel
def scalar_division(a, b, out, ratio):
    x, y = ct.load(a, (ct.bid(0),), (1,)).item(), ct.load(b, (ct.bid(0),), (1,)).item()
    ct.scatter(out, (0, ct.bid(0)), x // y)
    ct.scatter(out, (1, ct.bid(0)), x % y)
    ct.scatter(out, (2, ct.bid(0)), ct.cdiv(x, y))
    ct.scatter(ratio, ct.bid(0), x / y)


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint64], ids=str)
def test_scalar_division_rounds_as_python_does(dtype: torch.dtype) -> None:
    low, high = limits(dtype)
    a = [7, -7, 7, -7, low, high, 0, 1] if low < 0 else [7, 8, high, high - 1, 0, 1, 2, 200]
    b = [2, 2, -2, -2, 3, high, 5, low] if low < 0 else [2, 3, high, 7, high, high, 1, 201]
    out, ratio = torch.zeros(3, 8, dtype=dtype), torch.zeros(8)
    tensors = (torch.tensor(v, dtype=dtype) for v in (a, b))
    run_clean(scalar_division, *tensors, out, ratio, grid=(8,))
    pairs = list(zip(a, b, strict=True))
    assert_same(out[0], [x // y for x, y in pairs])
    assert_same(out[1], [x % y for x, y in pairs])
    assert_same(out[2], [-(-x // y) for x, y in pairs])
    quotients = [np.float32(x) / np.float32(y) for x, y in pairs]
    assert_same(ratio, [float(q) for q in quotients])


# ---------------------------------------------------------------- conversions


@ct.kernel
def convert(a, out):
    ct.store(out, (0,), ct.astype(ct.load(a, (0,), (N,)), out.dtype))


@pytest.mark.parametrize("source", INTEGERS, ids=str)
@pytest.mark.parametrize("target", [torch.int8, torch.uint16, torch.int32, torch.uint64], ids=str)
def test_integer_conversions_truncate_and_extend(source: torch.dtype, target: torch.dtype) -> None:
    a = _edge_values(source)
    out = torch.zeros(N, dtype=target)
    run_clean(convert, torch.tensor(a, dtype=source), out)
    assert_same(out, [wrap(x, target) for x in a])


@pytest.mark.parametrize("target", [torch.int8, torch.uint8, torch.int32, torch.int64], ids=str)
def test_floats_become_integers_towards_zero(target: torch.dtype) -> None:
    a = [0.0, -0.0, 0.5, 0.99, 1.5, 2.5, 100.75, 126.99, 3.0, 1e-30, 7.1, 2.49, 1.0, 4.5, 5.5, 9.9]
    if limits(target)[0] < 0:
        a[4:8] = [-1.5, -2.5, -100.75, -0.99]
    out = torch.zeros(N, dtype=target)
    run_clean(convert, torch.tensor(a), out)
    assert_same(out, [math.trunc(x) for x in a])


@pytest.mark.parametrize(
    ("source", "values"),
    [
        (torch.int32, [2**24 + 1, 2**24 + 3, 2**31 - 1, -(2**31), -(2**24) - 1, 2**25 + 2]),
        (torch.int64, [2**53 + 1, 2**62 + 2**38, 2**62 + 2**38 + 1, 2**63 - 1, -(2**63), -1]),
        (torch.uint32, [2**32 - 1, 2**31, 2**31 + 128, 2**31 + 129, 1, 0]),
        (torch.uint64, [2**64 - 1, 2**63, 2**63 + 2**39, 2**63 + 2**39 + 1, 2**63 + 3 * 2**39, 1]),
        (torch.int64, [2**62 + 2**54, 2**62 + 2**54 + 1, -(2**62) - 2**54 - 1, 2**62 + 2**30, 5]),
        (torch.uint64, [2**63 + 2**55, 2**63 + 2**55 + 1, 2**64 - 2**55, 2**64 - 2**55 - 1, 257]),
        (torch.int32, [257, 259, 2**30 + 2**22, 2**30 + 2**22 + 1, -(2**30) - 2**22 - 1]),
    ],
    ids=str,
)
@pytest.mark.parametrize("target", [torch.float32, torch.bfloat16], ids=str)
def test_integers_round_once_when_they_become_floats(
    source: torch.dtype, values: list[int], target: torch.dtype
) -> None:
    a = (values * 4)[:N]
    out = torch.zeros(N, dtype=target)
    run_clean(convert, torch.tensor(a, dtype=source), out)
    assert_same(out.float(), [round_even(Fraction(x), *FLOATS[target]) for x in a])


@pytest.mark.parametrize("target", [d for d in FLOATS if d is not torch.float32], ids=str)
def test_float64_rounds_once(target: torch.dtype) -> None:
    step = 2.0 ** (1 - FLOATS[target][0])
    beside = [1 + step / 2, 1 + step / 2 + 2.0**-45, 1 + 1.5 * step, 1 + 1.5 * step - 2.0**-45]
    a = [sign * v for sign in (1, -1) for v in beside] * 2
    out = torch.zeros(N).to(target)
    run_clean(convert, torch.tensor(a, dtype=torch.float64), out)
    assert_same(out.float(), round_to(a, target))


def _near_ties(dtype: torch.dtype) -> list[float]:
    """Float32 numbers on and beside the middle between two neighbours of a narrower format."""
    precision, least, largest = FLOATS[dtype]
    step = 2.0 ** (1 - precision)
    tiny = 2.0**-23
    ties = [1 + step / 2, 1 + 3 * step / 2, -(1 + step / 2), -(1 + 3 * step / 2)]
    beside = [1 + step / 2 + tiny, 1 + step / 2 - tiny, 2 - step / 2, 2 - step / 2 + tiny]
    subnormal = 2.0 ** (least - precision + 1)
    small = [subnormal, subnormal * 1.5, subnormal * 2.5, subnormal / 2, subnormal * 0.75]
    return [*ties, *beside, *small, largest, -0.0, -largest]


@pytest.mark.parametrize("target", [d for d in FLOATS if d is not torch.float32], ids=str)
def test_floats_round_to_nearest_even(target: torch.dtype) -> None:
    a = _near_ties(target)
    out = torch.zeros(N).to(target)
    run_clean(convert, torch.tensor(a), out)
    assert_same(out.float(), round_to(torch.tensor(a).tolist(), target))


@pytest.mark.parametrize("target", [torch.float16, torch.bfloat16], ids=str)
def test_overflow_gives_infinity_and_nan_survives(target: torch.dtype) -> None:
    _, _, largest = FLOATS[target]
    beyond = 65520.0 if target is torch.float16 else 3.4e38
    a = [beyond, -beyond, INF, -INF, NAN, largest, 0.0, 1.0] * 2
    out = torch.zeros(N, dtype=target)
    run_clean(convert, torch.tensor(a), out)
    assert_same(out.float(), [INF, -INF, INF, -INF, NAN, largest, 0.0, 1.0] * 2)


@ct.kernel
def through_tf32(a, out):
    x = ct.load(a, (0,), (N,))
    ct.store(out, (0,), ct.astype(ct.astype(x, ct.tfloat32), ct.float32))


def test_tf32_keeps_ten_bits_and_rounds_to_even() -> None:
    a = [1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-23, math.pi, -math.e, 2.0**-130]
    a = torch.tensor((a * 3)[:N]).tolist()
    out = torch.zeros(N)
    run_clean(through_tf32, torch.tensor(a), out)
    assert_same(out, [round_even(x, *TF32) for x in a])


@ct.kernel
def half_arithmetic(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), (x + y).reshape((1, N)))
    ct.store(out, (1, 0), (x * y).reshape((1, N)))
    ct.store(out, (2, 0), (x * 0.1).reshape((1, N)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_arithmetic_rounds_after_every_operation(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(5)
    a = (torch.randn(N, generator=generator) * 10).to(dtype)
    b = (torch.randn(N, generator=generator) * 3).to(dtype)
    out = torch.zeros(4, N, dtype=dtype)
    run(half_arithmetic, a, b, out)
    x, y = a.double().tolist(), b.double().tolist()
    [tenth] = round_to([0.1], dtype)
    pairs = [(Fraction(u), Fraction(v)) for u, v in zip(x, y, strict=True)]
    assert_same(out[0].float(), [round_even(u + v, *FLOATS[dtype]) for u, v in pairs])
    assert_same(out[1].float(), [round_even(u * v, *FLOATS[dtype]) for u, v in pairs])
    assert_same(out[2].float(), [round_even(u * Fraction(tenth), *FLOATS[dtype]) for u, _ in pairs])


@ct.kernel
def reinterpret(a, out):
    ct.store(out, (0,), ct.bitcast(ct.load(a, (0,), (N,)), out.dtype))


def test_bitcast_keeps_the_bits() -> None:
    a = [0.0, -0.0, 1.0, -1.5, INF, -INF, 2.0**-149, 3.4e38] * 2
    signed, unsigned = torch.zeros(N, dtype=torch.int32), torch.zeros(N, dtype=torch.uint32)
    run_clean(reinterpret, torch.tensor(a), signed)
    run_clean(reinterpret, torch.tensor(a), unsigned)
    assert_same(signed, [struct.unpack("<i", struct.pack("<f", x))[0] for x in a])
    assert_same(unsigned, [struct.unpack("<I", struct.pack("<f", x))[0] for x in a])
    back = torch.zeros(N)
    run_clean(reinterpret, unsigned, back)
    assert_same(back, torch.tensor(a).tolist())


@ct.kernel
def bytes_there_and_back(a, raw, out):
    x = ct.pack_to_bytes(ct.load(a, (0,), (N,)))
    ct.store(raw, (0,), x)
    ct.store(out, (0,), ct.unpack_from_bytes(x, a.dtype))


@pytest.mark.parametrize("dtype", [torch.int16, torch.bfloat16, torch.int64], ids=str)
def test_bytes_are_little_endian(dtype: torch.dtype) -> None:
    a = torch.arange(-8, 8).mul(1001).to(dtype)
    raw = torch.zeros(N * a.element_size(), dtype=torch.uint8)
    out = torch.zeros_like(a)
    run_clean(bytes_there_and_back, a, raw, out)
    assert torch.equal(raw, a.view(torch.uint8))
    assert torch.equal(out, a)


@ct.kernel
def booleans(a, b, out):
    x = ct.load(a, (0,), (N,)) > 0
    y = ct.load(b, (0,), (N,)) > 0
    ct.store(out, (0, 0), ct.astype(x & ~y, ct.int32).reshape((1, N)))
    ct.store(out, (1, 0), ct.astype(x ^ y, ct.int32).reshape((1, N)))
    z = ct.astype(ct.load(a, (0,), (N,)), ct.bool_)
    ct.store(out, (2, 0), ct.astype(z, ct.int32).reshape((1, N)))
    ct.store(out, (3, 0), ct.broadcast_to(ct.sum(x).reshape((1, 1)), (1, N)))


def test_booleans_are_single_bits() -> None:
    a, b = [-2, 0, 3, 1] * 4, [0, 5, -1, 9] * 4
    out = torch.zeros(4, N, dtype=torch.int32)
    run(booleans, torch.tensor(a, dtype=torch.int32), torch.tensor(b, dtype=torch.int32), out)
    assert_same(out[0], [int(x > 0 and y <= 0) for x, y in zip(a, b, strict=True)])
    assert_same(out[1], [int((x > 0) != (y > 0)) for x, y in zip(a, b, strict=True)])
    assert_same(out[2], [int(x != 0) for x in a])
    assert_same(out[3], [sum(x > 0 for x in a)] * N)


# ---------------------------------------------------------------- floats


@ct.kernel
def nan_rules(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), ct.maximum(x, y).reshape((1, N)))
    ct.store(out, (1, 0), ct.minimum(x, y).reshape((1, N)))
    ct.store(out, (2, 0), ct.maximum(x, y, propagate_nan=True).reshape((1, N)))
    ct.store(out, (3, 0), ct.where(x < y, 1.0, ct.where(x == y, 2.0, 3.0)).reshape((1, N)))


def test_maximum_ignores_nan_unless_told_otherwise() -> None:
    a = [NAN, 1.0, NAN, INF, -INF, NAN, 2.0, 3.0] * 2
    b = [1.0, NAN, NAN, NAN, 0.0, -INF, 2.0, -3.0] * 2
    out = torch.zeros(4, N)
    run(nan_rules, torch.tensor(a), torch.tensor(b), out)
    assert_same(out[0], [1.0, 1.0, NAN, INF, 0.0, -INF, 2.0, 3.0] * 2)
    assert_same(out[1], [1.0, 1.0, NAN, INF, -INF, -INF, 2.0, -3.0] * 2)
    assert_same(out[2], [NAN, NAN, NAN, NAN, 0.0, NAN, 2.0, 3.0] * 2)
    assert_same(out[3], [3.0, 3.0, 3.0, 3.0, 1.0, 3.0, 2.0, 3.0] * 2)


@ct.kernel
def special_functions(a, out):
    x = ct.load(a, (0,), (N,))
    ct.store(out, (0, 0), ct.exp2(x).reshape((1, N)))
    ct.store(out, (1, 0), ct.log2(x).reshape((1, N)))
    ct.store(out, (2, 0), ct.sqrt(x).reshape((1, N)))
    ct.store(out, (3, 0), ct.rsqrt(x).reshape((1, N)))
    ct.store(out, (4, 0), ct.floor(x).reshape((1, N)))
    ct.store(out, (5, 0), ct.ceil(x).reshape((1, N)))
    ct.store(out, (6, 0), (1.0 / x).reshape((1, N)))
    ct.store(out, (7, 0), ct.abs(x).reshape((1, N)))


def test_special_values_of_functions() -> None:
    a = [INF, -INF, NAN, 0.0, -0.0, 4.0, -0.5, 0.25] * 2
    out = torch.zeros(8, N)
    run_clean(special_functions, torch.tensor(a), out)
    half = 2.0**-0.5
    [root] = torch.tensor([half]).tolist()
    quarter = torch.tensor([2.0**0.25]).tolist()[0]
    assert_same(out[0], [INF, 0.0, NAN, 1.0, 1.0, 16.0, root, quarter] * 2)
    assert_same(out[1], [INF, NAN, NAN, -INF, -INF, 2.0, NAN, -2.0] * 2)
    assert_same(out[2], [INF, NAN, NAN, 0.0, -0.0, 2.0, NAN, 0.5] * 2)
    assert_same(out[3], [0.0, NAN, NAN, INF, -INF, 0.5, NAN, 2.0] * 2)
    assert_same(out[4], [INF, -INF, NAN, 0.0, -0.0, 4.0, -1.0, 0.0] * 2)
    assert_same(out[5], [INF, -INF, NAN, 0.0, -0.0, 4.0, -0.0, 1.0] * 2)
    assert_same(out[6], [0.0, -0.0, NAN, INF, -INF, 0.25, -2.0, 4.0] * 2)
    assert_same(out[7], [INF, INF, NAN, 0.0, 0.0, 4.0, 0.5, 0.25] * 2)


@ct.kernel
def float_remainder(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), (x % y).reshape((1, N)))
    ct.store(out, (1, 0), (x // y).reshape((1, N)))


def test_float_remainder_takes_the_sign_of_the_divisor() -> None:
    a = [5.5, -5.5, 5.5, -5.5, 6.0, -6.0, 0.5, -0.5] * 2
    b = [2.0, 2.0, -2.0, -2.0, 1.5, 1.5, 4.0, 4.0] * 2
    out = torch.zeros(2, N)
    run_clean(float_remainder, torch.tensor(a), torch.tensor(b), out)
    assert out[0].tolist() == [x % y for x, y in zip(a, b, strict=True)]
    assert out[1].tolist() == [x // y for x, y in zip(a, b, strict=True)]


@ct.kernel
def powers(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), (x**y).reshape((1, N)))
    ct.store(out, (1, 0), ct.atan2(x, y).reshape((1, N)))


def test_powers_and_quadrants() -> None:
    a = [0.0, 2.0, -2.0, -2.0, 4.0, -1.0, 0.0, 1.0] * 2
    b = [0.0, -2.0, 3.0, 2.0, 0.5, 0.5, 2.0, NAN] * 2
    out = torch.zeros(2, N)
    run_clean(powers, torch.tensor(a), torch.tensor(b), out)
    assert_same(out[0], [1.0, 0.25, -8.0, 4.0, 2.0, NAN, 0.0, 1.0] * 2)
    angles = [math.atan2(x, y) for x, y in zip(a[:7], b[:7], strict=True)]
    np.testing.assert_allclose(out[1][:7].numpy(), np.array(angles, np.float32), rtol=2e-7)


@ct.kernel
def directed_rounding(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), ct.add(x, y, rounding_mode=ct.RoundingMode.RZ).reshape((1, N)))
    ct.store(out, (1, 0), ct.add(x, y, rounding_mode=ct.RoundingMode.RM).reshape((1, N)))
    ct.store(out, (2, 0), ct.add(x, y, rounding_mode=ct.RoundingMode.RP).reshape((1, N)))
    ct.store(out, (3, 0), ct.mul(x, y, rounding_mode=ct.RoundingMode.RZ).reshape((1, N)))


def _directed(exact: Fraction, mode: str) -> float:
    """Round an exact value to float32 in the given direction."""
    near = round_even(exact, *FLOATS[torch.float32])
    if math.isfinite(near) and Fraction(near) == exact:
        return near
    downwards = mode == "down" or (mode == "zero" and exact > 0)
    below = near == -INF or (near != INF and Fraction(near) < exact)
    if below == downwards:
        return near
    return float(np.nextafter(np.float32(near), np.float32(-INF if downwards else INF)))


def test_rounding_modes_are_obeyed() -> None:
    a = [1.0, 1.0, -1.0, -1.0, 3.0, 1.1, -1.1, 1e10] * 2
    b = [2.0**-30, -(2.0**-30), 2.0**-30, -(2.0**-30), 2.0**-23, 1.3, 1.3, 0.7] * 2
    a[8:10], b[8:10] = [3.4e38, -3.4e38], [3.4e38, -3.4e38]  # overflow
    a, b = torch.tensor(a).tolist(), torch.tensor(b).tolist()
    out = torch.zeros(4, N)
    run_clean(directed_rounding, torch.tensor(a), torch.tensor(b), out)
    sums = [Fraction(x) + Fraction(y) for x, y in zip(a, b, strict=True)]
    products = [Fraction(x) * Fraction(y) for x, y in zip(a, b, strict=True)]
    for row, mode in enumerate(("zero", "down", "up")):
        assert_same(out[row], [_directed(exact, mode) for exact in sums])
    assert_same(out[3], [_directed(exact, "zero") for exact in products])


def test_an_exact_zero_is_negative_when_rounding_downwards() -> None:
    out = torch.zeros(4, N)
    run_clean(directed_rounding, torch.full((N,), 1.5), torch.full((N,), -1.5), out)
    assert_same(out[0], [0.0] * N)
    assert_same(out[1], [-0.0] * N)
    assert_same(out[2], [0.0] * N)


@ct.kernel
def flushing(a, b, out):
    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    ct.store(out, (0, 0), ct.mul(x, y, flush_to_zero=True).reshape((1, N)))
    ct.store(out, (1, 0), ct.mul(x, y).reshape((1, N)))


def test_flush_to_zero_keeps_the_sign() -> None:
    tiny = 2.0**-100
    a, b = [tiny, -tiny, 2.0**-140, 1.0] * 4, [2.0**-40, 2.0**-40, 8.0, 2.0**-126] * 4
    out = torch.zeros(2, N)
    run_clean(flushing, torch.tensor(a), torch.tensor(b), out)
    assert_same(out[0], [0.0, -0.0, 0.0, 2.0**-126] * 4)
    assert_same(out[1], [2.0**-140, -(2.0**-140), 2.0**-137, 2.0**-126] * 4)


@ct.kernel
def multiply_add(a, b, c, out):
    ct.store(out, (0,), ct.load(a, (0,), (N,)) * ct.load(b, (0,), (N,)) + ct.load(c, (0,), (N,)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_a_product_that_is_added_is_fused_and_rounded_once(dtype: torch.dtype) -> None:
    step = 2.0 ** (1 - FLOATS[dtype][0])
    a, b = [1 + step] * 8 + [3.0] * 8, [1 - step] * 8 + [1 / 3] * 8
    c = [-1.0] * 8 + [-1.0, 1.0, 0.0, -2.0] * 2
    a, b, c = ([v.item() for v in torch.tensor(x).to(dtype)] for x in (a, b, c))
    out = torch.zeros(N, dtype=dtype)
    run_clean(multiply_add, *(torch.tensor(x, dtype=dtype) for x in (a, b, c)), out)
    exact = [Fraction(x) * Fraction(y) + Fraction(z) for x, y, z in zip(a, b, c, strict=True)]
    assert exact[0] == -(Fraction(step) ** 2)  # which rounding the product first would lose
    assert_same(out.float(), [round_even(e, *FLOATS[dtype]) for e in exact])


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("below", [2.0**-14, 2.0**-35, 2.0**-100], ids=str)
def test_a_fused_sum_beside_a_tie_knows_on_which_side_it_lies(
    dtype: torch.dtype, below: float
) -> None:
    scale = 2.0**10 if dtype is torch.float16 else 1.0
    step = 2.0 ** (1 - FLOATS[dtype][0])
    a, b = 1.5 * scale, 1 + step  # the product lies between two numbers of the format
    c = [v.item() for v in torch.tensor([below, -below, 0.0, -below] * 4).to(dtype)]
    out = torch.zeros(N, dtype=dtype)
    sides = (torch.full((N,), v, dtype=dtype) for v in (a, b))
    run_clean(multiply_add, *sides, torch.tensor(c, dtype=dtype), out)
    exact = [Fraction(a) * Fraction(b) + Fraction(v) for v in c]
    assert_same(out.float(), [round_even(e, *FLOATS[dtype]) for e in exact])


@ct.kernel
def true_division(a, b, out):
    ct.store(out, (0,), ct.load(a, (0,), (N,)) / ct.load(b, (0,), (N,)))


def test_true_division_of_integers_is_a_float_division() -> None:
    a = [7, -7, 1, 2**30 + 1, 0, -1, 10, 9] * 2
    b = [2, 2, 3, 3, 5, 0, 4, -3] * 2
    out = torch.zeros(N)
    run_clean(true_division, *(torch.tensor(v, dtype=torch.int32) for v in (a, b)), out)
    numerators = np.array(a, np.int32).astype(np.float32)
    with np.errstate(divide="ignore"):
        assert_same(out, (numerators / np.array(b, np.int32).astype(np.float32)).tolist())


# ---------------------------------------------------------------- reductions and scans


@ct.kernel
def reductions(a, out, index):
    x = ct.load(a, (0, 0), (4, N))
    ct.store(out, (0, 0), ct.max(x, 1, keepdims=True))
    ct.store(out, (0, 1), ct.min(x, 1, keepdims=True))
    ct.store(out, (0, 2), ct.max(x, 1, keepdims=True, propagate_nan=True))
    ct.store(index, (0, 0), ct.argmax(x, 1, keepdims=True))
    ct.store(index, (0, 1), ct.argmin(x, 1, keepdims=True))
    ct.store(index, (0, 2), ct.argmax(x, 1, keepdims=True, propagate_nan=True))


def test_reductions_with_nan_infinity_and_ties() -> None:
    a = torch.full((4, N), 1.0)
    a[0, 3], a[0, 9] = 5.0, 5.0  # a tie: the smaller index wins
    a[1, 0], a[1, 7] = NAN, -INF
    a[2, 5], a[2, 6] = INF, NAN
    a[3] = -INF
    out, index = torch.zeros(4, 4), torch.zeros(4, 4, dtype=torch.int32)
    run(reductions, a, out, index)
    assert_same(out[:, 0], [5.0, 1.0, INF, -INF])
    assert_same(out[:, 1], [1.0, -INF, 1.0, -INF])
    assert_same(out[:, 2], [5.0, NAN, NAN, -INF])
    assert_same(index[:, 0], [3, 1, 5, 0])
    assert_same(index[:, 1], [0, 7, 0, 0])
    assert_same(index[:, 2], [3, 0, 6, 0])


@ct.kernel
def integer_reductions(a, out):
    x = ct.load(a, (0,), (N,))
    ct.scatter(out, 0, ct.sum(x))
    ct.scatter(out, 1, ct.prod(x))
    ct.scatter(out, 2, ct.max(x))
    ct.scatter(out, 3, ct.min(x))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_reductions_wrap_in_their_own_dtype(dtype: torch.dtype) -> None:
    a = [x | 1 for x in _edge_values(dtype)]
    out = torch.zeros(4, dtype=dtype)
    run_clean(integer_reductions, torch.tensor(a, dtype=dtype), out)
    assert_same(out, [wrap(sum(a), dtype), wrap(math.prod(a), dtype), max(a), min(a)])


@ct.kernel
def scans(a, out):
    x = ct.load(a, (0, 0), (2, N))
    ct.store(out, (0, 0), ct.cumsum(x, 1))
    ct.store(out, (1, 0), ct.cumsum(x, 1, reverse=True))
    ct.store(out, (2, 0), ct.cumprod(x, 1))
    ct.store(out, (3, 0), ct.cumsum(x, 0, reverse=True))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_scans_run_in_both_directions_and_wrap(dtype: torch.dtype) -> None:
    rows = [_edge_values(dtype), _edge_values(dtype)[::-1]]
    out = torch.zeros(8, N, dtype=dtype)
    run_clean(scans, torch.tensor(rows, dtype=dtype), out)
    for r, row in enumerate(rows):
        assert_same(out[r], [wrap(sum(row[: i + 1]), dtype) for i in range(N)])
        assert_same(out[2 + r], [wrap(sum(row[i:]), dtype) for i in range(N)])
        assert_same(out[4 + r], [wrap(math.prod(row[: i + 1]), dtype) for i in range(N)])
        assert_same(out[6 + r], [wrap(sum(v[i] for v in rows[r:]), dtype) for i in range(N)])


@ct.kernel
def linear_recurrence(a, b, out_a, out_b, REVERSE: ct.Constant[bool]):
    def compose(a0, b0, a1, b1):
        return a0 * a1, b0 * a1 + b1  # first (a0, b0), then (a1, b1): not commutative

    x = ct.load(a, (0,), (N,))
    y = ct.load(b, (0,), (N,))
    p, q = ct.scan((x, y), 0, compose, (1, 0), reverse=REVERSE)
    ct.store(out_a, (0,), p)
    ct.store(out_b, (0,), q)


@pytest.mark.parametrize("reverse", [False, True])
def test_a_scan_keeps_the_order_of_a_combiner_that_does_not_commute(reverse: bool) -> None:
    a, b = [2, 1, 3, -1] * 4, [1, 5, -2, 4] * 4
    out_a, out_b = torch.zeros(N, dtype=torch.int32), torch.zeros(N, dtype=torch.int32)
    tensors = torch.tensor(a, dtype=torch.int32), torch.tensor(b, dtype=torch.int32)
    run_clean(linear_recurrence, *tensors, out_a, out_b, reverse)
    pairs = list(zip(a, b, strict=True))
    state, expected = (1, 0), []
    for p, q in reversed(pairs) if reverse else pairs:
        state = state[0] * p, state[1] * p + q
        expected.append(tuple(wrap(v, torch.int32) for v in state))
    if reverse:
        expected.reverse()
    assert_same(out_a, [p for p, _ in expected])
    assert_same(out_b, [q for _, q in expected])


@ct.kernel
def first_above(a, out_value, out_index):
    def earliest(v0, i0, v1, i1):
        take_first = (v0 > 10) & ((v1 <= 10) | (i0 < i1))
        return ct.where(take_first, v0, v1), ct.where(take_first, i0, i1)

    x = ct.load(a, (0, 0), (2, N))
    i = ct.broadcast_to(ct.arange(N, dtype=ct.int32), (2, N))
    v, j = ct.reduce((x, i), 1, earliest, (0, N))
    ct.store(out_value, (0,), v)
    ct.store(out_index, (0,), j)


def test_a_reduction_over_two_tiles_keeps_them_together() -> None:
    a = torch.zeros(2, N, dtype=torch.int32)
    a[0, 5], a[0, 11], a[1, 15] = 11, 99, 12
    value, index = torch.zeros(2, dtype=torch.int32), torch.zeros(2, dtype=torch.int32)
    run_clean(first_above, a, value, index)
    assert_same(value, [11, 12])
    assert_same(index, [5, 15])


@ct.kernel
def saturating_sums(x, out, limit):
    tile = ct.load(x, (0, 0), (2, N))
    ct.store(out, (0, 0), ct.scan(tile, 1, lambda a, b: ct.minimum(a + b, limit), 0))
    total = ct.reduce(tile, 1, lambda a, b: ct.minimum(a + b, limit), 0, keepdims=True)
    ct.store(out, (1, 0), ct.broadcast_to(total, (2, N)))


def test_a_combiner_may_use_values_from_outside() -> None:
    x = torch.arange(2 * N, dtype=torch.int32).reshape(2, N)
    out = torch.zeros(4, N, dtype=torch.int32)
    run_clean(saturating_sums, x, out, 50)
    for r, row in enumerate(x.tolist()):
        assert_same(out[r], [min(sum(row[: i + 1]), 50) for i in range(N)])
        assert_same(out[2 + r], [min(sum(row), 50)] * N)


@ct.kernel
def says_who_it_is(out):
    i = ct.bid(0)
    ones = ct.ones((N,), ct.int32)
    ct.store(out, (i,), ct.reduce(ones, 0, lambda a, b: i, 0, keepdims=True))


def test_what_a_combiner_uses_may_differ_by_block() -> None:
    out = torch.full((3,), -1, dtype=torch.int32)
    run_clean(says_who_it_is, out, grid=(3,))
    assert_same(out, [0, 1, 2])


# ---------------------------------------------------------------- matrix multiplication


@ct.kernel
def multiply(a, b, out, M: Int, K: Int, C: Int):
    x = ct.load(a, (0, 0), (M, K))
    y = ct.load(b, (0, 0), (K, C))
    acc = ct.zeros((M, C), out.dtype)
    ct.store(out, (0, 0), ct.mma(x, y, acc))


@pytest.mark.parametrize(
    ("left", "right"),
    [(torch.int8, torch.int8), (torch.uint8, torch.uint8), (torch.uint8, torch.int8)],
    ids=str,
)
def test_integer_mma_is_exact_beyond_float_precision(left: torch.dtype, right: torch.dtype) -> None:
    k = 2048
    a = torch.full((2, k), limits(left)[1], dtype=left)
    b = torch.full((k, 2), limits(right)[1], dtype=right)
    a[0, 0], b[0, 1] = 3, 5  # an odd total above 2**24, which a float32 sum would lose
    out = torch.zeros(2, 2, dtype=torch.int32)
    run_clean(multiply, a, b, out, 2, k, 2)
    x, y = a.to(torch.int64).tolist(), b.to(torch.int64).tolist()
    expected = [sum(x[i][n] * y[n][j] for n in range(k)) for i in range(2) for j in range(2)]
    assert max(expected) > 2**24
    assert_same(out, expected)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float16, torch.float16),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.float8_e4m3fn, torch.float32),
        (torch.float8_e5m2, torch.float16),
    ],
    ids=str,
)
def test_float_mma_of_small_integers_is_exact(source: torch.dtype, target: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-3, 4, (8, 16), generator=generator)
    b = torch.randint(-3, 4, (16, 4), generator=generator)
    out = torch.zeros(8, 4, dtype=target)
    run_clean(multiply, a.double().to(source), b.double().to(source), out, 8, 16, 4)
    assert torch.equal(out.double(), (a @ b).double())


def test_products_of_halves_are_not_rounded_before_they_are_summed() -> None:
    a = torch.tensor([[1 + 2.0**-10, 1.0]] * 2, dtype=torch.float16)
    b = torch.tensor([[1 + 2.0**-10] * 2, [-1.0] * 2], dtype=torch.float16)
    out = torch.zeros(2, 2)
    run_clean(multiply, a, b, out, 2, 2, 2)
    assert_same(out, [2.0**-9 + 2.0**-20] * 4)


@ct.kernel
def multiply_batched(a, b, c, out):
    x = ct.load(a, (0, 0, 0), (2, 4, 8))
    y = ct.load(b, (0, 0), (8, 4))
    ct.store(out, (0, 0, 0), ct.mma(x, y, ct.load(c, (0, 0, 0), (2, 4, 4))))


def test_batched_mma_broadcasts_and_adds_the_accumulator() -> None:
    a = torch.arange(64).reshape(2, 4, 8).half()
    b = torch.arange(32).reshape(8, 4).sub(16).half()
    c = torch.arange(32).reshape(2, 4, 4).mul(-1.0)
    out = torch.zeros(2, 4, 4)
    run_clean(multiply_batched, a, b, c, out)
    assert torch.equal(out.double(), a.double() @ b.double() + c.double())


@ct.kernel
def multiply_tf32(a, b, out):
    x = ct.astype(ct.load(a, (0, 0), (4, 4)), ct.tfloat32)
    y = ct.astype(ct.load(b, (0, 0), (4, 4)), ct.tfloat32)
    ct.store(out, (0, 0), ct.mma(x, y, ct.zeros((4, 4), ct.float32)))


def test_tf32_mma_rounds_its_inputs() -> None:
    a = torch.eye(4) * (1 + 2.0**-12)
    b = torch.arange(16).reshape(4, 4).float()
    out = torch.zeros(4, 4)
    run_clean(multiply_tf32, a, b, out)
    assert torch.equal(out, b)


@pytest.mark.parametrize(
    ("left", "right", "target"),
    [
        (torch.float16, torch.bfloat16, torch.float32),
        (torch.bfloat16, torch.bfloat16, torch.bfloat16),
        (torch.int8, torch.int8, torch.float32),
        (torch.int32, torch.int32, torch.int32),
    ],
    ids=str,
)
def test_mma_refuses_dtypes_that_the_hardware_lacks(
    left: torch.dtype, right: torch.dtype, target: torch.dtype
) -> None:
    a, b = torch.ones(4, 4).to(left), torch.ones(4, 4).to(right)
    error = refusal_by_cutile(multiply, a, b, torch.zeros(4, 4, dtype=target), 4, 4, 4)
    assert isinstance(error.__cause__, ct.TileTypeError)


@ct.kernel
def multiply_scaled(a, sa, b, sb, out):
    x, y = ct.load(a, (0, 0), (8, 64)), ct.load(b, (0, 0), (64, 4))
    s, t = ct.load(sa, (0, 0), (8, 2)), ct.load(sb, (0, 0), (2, 4))
    ct.store(out, (0, 0), ct.mma_scaled(x, s, y, t, ct.ones((8, 4), ct.float32)))


def test_scaled_mma_applies_one_scale_to_a_block_of_32() -> None:
    generator = torch.Generator().manual_seed(3)
    a = torch.randint(-3, 4, (8, 64), generator=generator).double()
    b = torch.randint(-3, 4, (64, 4), generator=generator).double()
    sa = 2.0 ** torch.randint(-2, 3, (8, 2), generator=generator)
    sb = 2.0 ** torch.randint(-2, 3, (2, 4), generator=generator)
    out = torch.zeros(8, 4)
    e4, e8 = torch.float8_e4m3fn, torch.float8_e8m0fnu
    run_clean(multiply_scaled, a.float().to(e4), sa.to(e8), b.float().to(e4), sb.to(e8), out)
    expected = torch.ones(8, 4, dtype=torch.float64)
    for block in range(2):
        part = slice(32 * block, 32 * block + 32)
        products = a[:, part] @ b[part]
        expected += products * sa[:, block : block + 1].double() * sb[block : block + 1].double()
    assert torch.equal(out.double(), expected)


# ---------------------------------------------------------------- shapes


@ct.kernel
def rearrange(a, out):
    x = ct.load(a, (0, 0), (4, 8))
    left = ct.extract(x, (0, 1), shape=(4, 4))
    swapped = ct.cat((left, ct.extract(x, (0, 0), shape=(4, 4))), axis=1)
    cube = ct.permute(swapped.reshape((2, 2, 8)), (1, 2, 0))
    ct.store(out, (0, 0), ct.transpose(cube, 0, 2).reshape((4, 8)))


def test_rearranging_moves_elements_as_numpy_does() -> None:
    a = np.arange(32, dtype=np.int32).reshape(4, 8)
    out = torch.zeros(4, 8, dtype=torch.int32)
    run_clean(rearrange, torch.from_numpy(a), out)
    swapped = np.concatenate([a[:, 4:], a[:, :4]], axis=1)
    cube = swapped.reshape(2, 2, 8).transpose(1, 2, 0)
    assert_same(out, cube.transpose(2, 1, 0).reshape(-1).tolist())


@ct.kernel
def insert_tile(a, b, out, where):
    x = ct.load(a, (0, 0), (4, 8))
    ct.store(out, (0, 0), ct.insert(x, (1, where), ct.load(b, (0, 0), (2, 4))))


def test_insert_takes_a_tile_index_and_leaves_its_input_alone() -> None:
    a = torch.arange(32, dtype=torch.int32).reshape(4, 8)
    b = -torch.ones(2, 4, dtype=torch.int32)
    out = torch.zeros(4, 8, dtype=torch.int32)
    run_clean(insert_tile, a, b, out, 1)
    expected = a.clone()
    expected[2:4, 4:8] = b
    assert torch.equal(out, expected)
