"""Operations against torch, numpy and exact arithmetic."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import cuda.tile as ct
import numpy as np
import pytest
import torch
from cuda.tile import RoundingMode as RM
from cuda.tile import _datatype as dt
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import conversions, minifloats, values
from mla_var3.interpreter.exact import fma

from .helpers import INTEGERS, assert_same, only, refusal, run, run_clean, wrap

Int = ct.Constant[int]

INTEGER_DTYPES = list(INTEGERS)
FLOAT_DTYPES = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def tensor(items: list[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.tensor([wrap(i, dtype) for i in items], dtype=dtype)


# ------------------------------------------------------------------------ integers, exactly


@ct.kernel
def integers(x, y, out, OP: Int, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    if OP == 0:
        r = a + b
    elif OP == 1:
        r = a - b
    elif OP == 2:
        r = a * b
    elif OP == 3:
        r = a // b
    elif OP == 4:
        r = a % b
    elif OP == 5:
        r = ct.cdiv(a, b)
    elif OP == 6:
        r = min(a, b)
    elif OP == 7:
        r = max(a, b)
    elif OP == 8:
        r = a & b
    elif OP == 9:
        r = a | b
    elif OP == 10:
        r = a ^ b
    elif OP == 11:
        r = -a
    elif OP == 12:
        r = ~a
    else:
        r = abs(a)
    ct.store(out, (0,), r)


@ct.kernel
def scalar_integers(x, y, out, OP: Int):
    a, b = ct.load(x, 0, ()), ct.load(y, 0, ())
    if OP == 0:
        r = a + b
    elif OP == 1:
        r = a - b
    elif OP == 2:
        r = a * b
    elif OP == 3:
        r = a // b
    elif OP == 4:
        r = a % b
    elif OP == 5:
        r = ct.cdiv(a, b)
    elif OP == 6:
        r = min(a, b)
    elif OP == 7:
        r = max(a, b)
    elif OP == 8:
        r = a & b
    elif OP == 9:
        r = a | b
    elif OP == 10:
        r = a ^ b
    elif OP == 11:
        r = -a
    elif OP == 12:
        r = ~a
    else:
        r = abs(a)
    ct.store(out, (0,), r)


def exact(op: int, a: int, b: int) -> int:
    return [
        lambda: a + b,
        lambda: a - b,
        lambda: a * b,
        lambda: a // b,
        lambda: a % b,
        lambda: -(-a // b),
        lambda: min(a, b),
        lambda: max(a, b),
        lambda: a & b,
        lambda: a | b,
        lambda: a ^ b,
        lambda: -a,
        lambda: ~a,
        lambda: abs(a),
    ][op]()


@settings(max_examples=60)
@given(st.data())
def test_integer_arithmetic_wraps(data: st.DataObject) -> None:
    dtype = data.draw(st.sampled_from(INTEGER_DTYPES))
    op = data.draw(st.integers(0, 13))
    bits, signed = INTEGERS[dtype]
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    number = st.one_of(st.integers(low, high), st.sampled_from([low, high, 1, high - 1]))
    a = data.draw(st.lists(number, min_size=4, max_size=4))
    b = data.draw(st.lists(number.filter(bool), min_size=4, max_size=4))
    out = torch.zeros(4, dtype=dtype)
    run_clean(integers, tensor(a, dtype), tensor(b, dtype), out, op, 4)
    expected = [wrap(exact(op, i, j), dtype) for i, j in zip(a, b, strict=True)]
    assert out.tolist() == expected
    single = torch.zeros(1, dtype=dtype)
    run_clean(scalar_integers, tensor(a[:1], dtype), tensor(b[:1], dtype), single, op)
    assert single.tolist() == expected[:1]


@ct.kernel
def shifts(x, n, out, LEFT: Int, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(n, (0,), (N,))
    ct.store(out, (0,), (a << b) if LEFT else (a >> b))


@ct.kernel
def scalar_shifts(x, n, out, LEFT: Int):
    a, b = ct.load(x, 0, ()), ct.load(n, 0, ())
    ct.store(out, (0,), (a << b) if LEFT else (a >> b))


@pytest.mark.parametrize("dtype", INTEGER_DTYPES, ids=str)
@pytest.mark.parametrize("left", [0, 1])
def test_shifts(dtype: torch.dtype, left: int) -> None:
    bits, _ = INTEGERS[dtype]
    a, n = [-1, 77, 1 << (bits - 1), 5], [0, 1, bits - 1, 3]
    x, by, out = tensor(a, dtype), tensor(n, dtype), torch.zeros(4, dtype=dtype)
    run_clean(shifts, x, by, out, left, 4)
    held = x.tolist()
    expected = [wrap(i << j if left else i >> j, dtype) for i, j in zip(held, n, strict=True)]
    assert out.tolist() == expected
    single = torch.zeros(1, dtype=dtype)
    run_clean(scalar_shifts, x, by, single, left)
    assert single.tolist() == expected[:1]
    by[1] = bits
    assert only(run(shifts, x, by, out, left, 4), "shift-range").severity == "error"
    assert out.tolist()[2:] == expected[2:]
    only(run(scalar_shifts, x, by[1:], single, left), "shift-range")


@pytest.mark.parametrize("op", [3, 4, 5])
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.uint64], ids=str)
def test_division_by_zero_is_reported_and_the_rest_is_right(op: int, dtype: torch.dtype) -> None:
    x, y, out = tensor([7, 9, 8, 6], dtype), tensor([2, 0, 3, 0], dtype), tensor([0] * 4, dtype)
    report = run(integers, x, y, out, op, 4)
    assert {d.kind for d in report.errors} == {"division-by-zero"}
    assert out.tolist()[::2] == [exact(op, 7, 2), exact(op, 8, 3)]
    single = tensor([0], dtype)
    report = run(scalar_integers, x, y[1:], single, op)
    assert {d.kind for d in report.errors} == {"division-by-zero"}


@ct.kernel
def comparisons(x, y, out, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    for i, c in ct.static_iter(enumerate((a == b, a != b, a < b, a <= b, a > b, a >= b))):
        ct.store(out, (i, 0), c.reshape((1, N)))


@ct.kernel
def scalar_comparisons(x, y, out):
    a, b = ct.load(x, 0, ()), ct.load(y, 0, ())
    for i, c in ct.static_iter(enumerate((a == b, a != b, a < b, a <= b, a > b, a >= b))):
        ct.store(out, (i, 0), c)


@pytest.mark.parametrize("dtype", [*INTEGER_DTYPES, torch.float32, torch.bfloat16], ids=str)
def test_comparisons(dtype: torch.dtype) -> None:
    top = 200 if dtype.is_floating_point else -1
    items = [0, 1, top, 5, top, 0, 5, 1]
    x = torch.tensor(items).to(dtype) if dtype.is_floating_point else tensor(items, dtype)
    y = torch.tensor(x.tolist()[::-1], dtype=dtype)
    out = torch.zeros(6, 8, dtype=torch.bool)
    run_clean(comparisons, x, y, out, 8)
    a, b = (np.array(t.tolist(), dtype=object) for t in (x, y))
    expected = [a == b, a != b, a < b, a <= b, a > b, a >= b]
    assert out.tolist() == [row.tolist() for row in expected]
    first = torch.zeros(6, 1, dtype=torch.bool)
    run_clean(scalar_comparisons, x, y, first)
    assert first[:, 0].tolist() == [bool(row[0]) for row in expected]


# ---------------------------------------------------------------------------- floats


@ct.kernel
def unary(x, out, OP: Int, N: Int):
    a = ct.load(x, (0,), (N,))
    if OP == 0:
        r = ct.exp(a)
    elif OP == 1:
        r = ct.exp2(a)
    elif OP == 2:
        r = ct.log(a)
    elif OP == 3:
        r = ct.log2(a)
    elif OP == 4:
        r = ct.sin(a)
    elif OP == 5:
        r = ct.cos(a)
    elif OP == 6:
        r = ct.tan(a)
    elif OP == 7:
        r = ct.sinh(a)
    elif OP == 8:
        r = ct.cosh(a)
    elif OP == 9:
        r = ct.tanh(a)
    elif OP == 10:
        r = ct.sqrt(a)
    elif OP == 11:
        r = ct.rsqrt(a)
    elif OP == 12:
        r = ct.floor(a)
    elif OP == 13:
        r = ct.ceil(a)
    elif OP == 14:
        r = abs(a)
    else:
        r = -a
    ct.store(out, (0,), r)


UNARY = [
    *("exp", "exp2", "log", "log2", "sin", "cos", "tan", "sinh"),
    *("cosh", "tanh", "sqrt", "rsqrt", "floor", "ceil", "abs", "neg"),
]


@pytest.mark.parametrize("op", range(16), ids=UNARY)
@pytest.mark.parametrize("dtype", FLOAT_DTYPES, ids=str)
def test_functions(op: int, dtype: torch.dtype) -> None:
    x = torch.tensor([0.25, 1.0, 2.5, 0.7], dtype=dtype)
    out = torch.zeros(4, dtype=dtype)
    report = run(unary, x, out, op, 4)
    expected = getattr(torch, UNARY[op])(x.double())
    torch.testing.assert_close(out.double(), expected.to(dtype).double())
    assert report.flops == ({} if UNARY[op] in ("floor", "ceil", "abs", "neg") else {UNARY[op]: 4})


@ct.kernel
def binary(x, y, out, OP: Int, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    if OP == 0:
        r = a / b
    elif OP == 1:
        r = a // b
    elif OP == 2:
        r = a % b
    elif OP == 3:
        r = a**b
    elif OP == 4:
        r = ct.atan2(a, b)
    elif OP == 5:
        r = ct.minimum(a, b)
    elif OP == 6:
        r = ct.maximum(a, b, propagate_nan=True)
    else:
        r = ct.maximum(a, b)
    ct.store(out, (0,), r)


def test_float_operators() -> None:
    x = torch.tensor([5.5, -5.5, 2.0, math.nan])
    y = torch.tensor([2.0, 2.0, -3.0, 1.0])
    expected = [
        x / y,
        torch.floor(x / y),
        torch.remainder(x, y),
        torch.pow(x, y),
        torch.atan2(x, y),
        torch.tensor([2.0, -5.5, -3.0, 1.0]),
        torch.tensor([5.5, 2.0, 2.0, math.nan]),
        torch.tensor([5.5, 2.0, 2.0, 1.0]),
    ]
    for op, want in enumerate(expected):
        out = torch.zeros(4)
        run(binary, x, y, out, op, 4)
        torch.testing.assert_close(out, want, equal_nan=True)


@ct.kernel
def integer_power(x, n, out, N: Int):
    ct.store(out, (0,), ct.load(x, (0,), (N,)) ** ct.load(n, (0,), (N,)))


def test_integer_powers_of_floats() -> None:
    x, n = torch.tensor([2.0, -2.0, 0.5, 3.0]), torch.tensor([3, 3, -2, 0], dtype=torch.int32)
    out = torch.zeros(4)
    report = run(integer_power, x, n, out, 4)
    assert out.tolist() == [8.0, -8.0, 4.0, 1.0]
    assert report.flops == {"pow": 4}


@ct.kernel
def directed(x, y, out, OP: Int, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    if OP == 0:
        r = ct.add(a, b, rounding_mode=ct.RoundingMode.RP)
    elif OP == 1:
        r = ct.sub(a, b, rounding_mode=ct.RoundingMode.RM)
    elif OP == 2:
        r = ct.mul(a, b, rounding_mode=ct.RoundingMode.RZ)
    elif OP == 3:
        r = ct.truediv(a, b, rounding_mode=ct.RoundingMode.RP)
    elif OP == 4:
        r = ct.sqrt(a, rounding_mode=ct.RoundingMode.RM)
    elif OP == 5:
        r = ct.add(
            ct.mul(a, b, rounding_mode=ct.RoundingMode.RM), b, rounding_mode=ct.RoundingMode.RM
        )
    else:
        r = ct.truediv(a, b, rounding_mode=ct.RoundingMode.RZ)
    ct.store(out, (0,), r)


@settings(max_examples=40)
@given(
    op=st.integers(0, 6),
    a=st.floats(2.0**-10, 2.0**10, width=32),
    b=st.floats(2.0**-10, 2.0**10, width=32),
    sign=st.sampled_from([1.0, -1.0]),
)
def test_directed_rounding_is_exact(op: int, a: float, b: float, sign: float) -> None:
    x, y, out = torch.tensor([a]), torch.tensor([b * sign]), torch.zeros(1)
    run_clean(directed, x, y, out, op, 1)
    p, q = Fraction(a), Fraction(b * sign)
    true = [p + q, p - q, p * q, p / q, p, p * q + q, p / q][op]
    got = Fraction(out.item())
    below, above = (
        Fraction(torch.nextafter(out, torch.tensor(d)).item()) for d in (-math.inf, math.inf)
    )
    if op == 4:
        got, below, above = got * got, below * below, above * above
    up = {0: True, 3: True, 1: False, 4: False, 5: False, 2: true < 0, 6: true < 0}[op]
    assert (below < true <= got) if up else (got <= true < above)


def test_directed_rounding_of_special_values() -> None:
    x = torch.tensor([math.inf, math.nan, 1.0, 3e38])
    y = torch.tensor([1.0, 1.0, 0.0, 3e38])
    out = torch.zeros(4)
    run(directed, x, y, out, 3, 4)
    assert_same(out, [math.inf, math.nan, math.inf, 1.0])
    run(directed, x, y, out, 0, 4)
    assert_same(out, [math.inf, math.nan, 1.0, math.inf])
    run(directed, x, y, out, 2, 4)
    assert out[3].item() == torch.finfo(torch.float32).max  # towards zero never overflows
    run(directed, torch.tensor([-1.0, 4.0, 0.0, 2.0]), y, out, 4, 4)
    assert_same(out[:3], [math.nan, 2.0, 0.0])


@ct.kernel
def flushed(x, y, out, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    ct.store(out, (0, 0), ct.mul(a, b, flush_to_zero=True).reshape((1, N)))
    ct.store(out, (1, 0), ct.exp2(a, flush_to_zero=True).reshape((1, N)))
    ct.store(out, (2, 0), ct.sqrt(b, flush_to_zero=True).reshape((1, N)))


def test_subnormals_are_flushed() -> None:
    x = torch.tensor([-140.0, -126.0, 3.0, math.nan])
    y = torch.tensor([1e-39, -1e-38 / 4, 2.0, 1.0])
    out = torch.zeros(3, 4)
    run(flushed, x, y, out, 4)
    assert_same(out[0], [-0.0, 0.0, 6.0, math.nan])
    assert_same(out[1], [0.0, 2.0**-126, 8.0, math.nan])
    assert_same(out[2], [0.0, -0.0, math.sqrt(torch.tensor(2.0)), 1.0][:2] + out[2, 2:].tolist())
    assert out[2, 3] == 1.0


@settings(max_examples=50)
@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=3, max_size=3))
def test_fma_rounds_once(xs: list[float]) -> None:
    a, b, c = (torch.tensor([x]) for x in xs)
    got = fma(a, b, c).item()
    exact_value = Fraction(xs[0]) * Fraction(xs[1]) + Fraction(xs[2])
    if abs(exact_value) < Fraction(2) ** 127:
        near = np.float32(float(exact_value))
        assert got == near or abs(got - near) <= np.spacing(abs(near))


# ------------------------------------------------------------------------ conversions


@ct.kernel
def convert(x, out, N: Int):
    ct.store(out, (0,), ct.load(x, (0,), (N,)).astype(out.dtype))


@ct.kernel
def convert_scalar(x, out):
    ct.store(out, (0,), ct.load(x, 0, ()).astype(out.dtype))


NUMBERS = [*INTEGER_DTYPES, *FLOAT_DTYPES, torch.bool]


@pytest.mark.parametrize(("source", "target"), list(itertools.product(NUMBERS, NUMBERS)), ids=str)
def test_conversions(source: torch.dtype, target: torch.dtype) -> None:
    if source in INTEGERS:
        x = tensor([0, 5, -1, 1 << (INTEGERS[source][0] - 1)], source)
    elif source is torch.bool:
        x = torch.tensor([False, True, True, False])
    else:
        x = torch.tensor([0.0, 2.5, -1.75, 300.0]).to(source)
    out = torch.zeros(4, dtype=target)
    run_clean(convert, x, out, 4)
    expected: list[Any] = []
    for item in x.tolist():
        if target is torch.bool:
            expected.append(item != 0)
        elif target in INTEGERS:
            bits, signed = INTEGERS[target]
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
            whole = int(item)
            clamped = min(max(whole, low), high) if source.is_floating_point else whole
            expected.append(wrap(clamped, target))
        else:
            expected.append(torch.tensor(float(item), dtype=torch.float64).to(target).item())
    assert out.tolist() == expected
    single = torch.zeros(1, dtype=target)
    run_clean(convert_scalar, x[1:2], single)
    assert single.tolist() == expected[1:2]


def test_floats_saturate_as_integers() -> None:
    x = torch.tensor([math.nan, math.inf, -math.inf, 1e30], dtype=torch.float64)
    for dtype, expected in {
        torch.int64: [0, 2**63 - 1, -(2**63), 2**63 - 1],
        torch.uint64: [0, 2**64 - 1, 0, 2**64 - 1],
        torch.int8: [0, 127, -128, 127],
        torch.uint32: [0, 2**32 - 1, 0, 2**32 - 1],
    }.items():
        out = torch.zeros(4, dtype=dtype)
        run_clean(convert, x, out, 4)
        assert out.tolist() == expected
    out = torch.zeros(1, dtype=torch.uint64)
    run_clean(convert, torch.tensor([2.0**63 + 4096], dtype=torch.float64), out, 1)
    assert out.tolist() == [2**63 + 4096]


@pytest.mark.parametrize("target", FLOAT_DTYPES, ids=str)
@pytest.mark.parametrize("source", [torch.int64, torch.uint64], ids=str)
@settings(max_examples=25)
@given(n=st.integers(-(2**63), 2**63 - 1))
def test_wide_integers_round_once(source: torch.dtype, target: torch.dtype, n: int) -> None:
    x, out = tensor([n], source), torch.zeros(1, dtype=target)
    run_clean(convert, x, out, 1)
    value = x.tolist()[0]
    got = out.double().item()
    if math.isinf(got):
        assert abs(value) > torch.finfo(target).max
        return
    step = torch.tensor([got]).to(target)
    near = [
        conversions.neighbour(
            step,
            {
                torch.float16: dt.float16,
                torch.bfloat16: dt.bfloat16,
                torch.float32: dt.float32,
                torch.float64: dt.float64,
            }[target],
            up=u,
        )
        for u in (0, 1)
    ]
    if target is not torch.float64:
        assert all(
            abs(Fraction(got) - value) <= abs(Fraction(f.double().item()) - value)
            for f in near
            if bool(torch.isfinite(f))
        )


@ct.kernel
def narrow(x, out, N: Int):
    wide = ct.load(x, (0,), (N,)).astype(ct.tfloat32)
    ct.store(out, (0,), wide.astype(ct.float32))


def test_tf32_rounds_to_nearest_even() -> None:
    ulp = 2.0**-10
    x = torch.tensor(
        [1 + ulp / 2, 1 + 1.5 * ulp, 1 + ulp / 2 + 2**-23, math.nan, -math.inf, 0, 7, 9]
    )
    out = torch.zeros(8)
    run(narrow, x, out, 8)
    assert_same(out, [1.0, 1 + 2 * ulp, 1 + ulp, math.nan, -math.inf, 0.0, 7.0, 9.0])


@pytest.mark.parametrize(
    ("dtype", "theirs"),
    [
        (dt.float8_e4m3fn, torch.float8_e4m3fn),
        (dt.float8_e5m2, torch.float8_e5m2),
        (dt.float8_e8m0fnu, torch.float8_e8m0fnu),
    ],
    ids=lambda d: str(d),
)
def test_every_code_of_an_8_bit_float(dtype: Any, theirs: torch.dtype) -> None:
    codes = torch.arange(256, dtype=torch.uint8)
    mine = values.from_bits(codes, dtype)
    assert_same(mine, codes.view(theirs).float().tolist())
    finite = torch.isfinite(mine)
    assert torch.equal(values.to_bits(mine, dtype)[finite], codes[finite])


@pytest.mark.parametrize("dtype", [dt.float8_e4m3fn, dt.float8_e5m2], ids=str)
@settings(max_examples=60)
@given(x=st.floats(-400, 400))
def test_8_bit_floats_round_as_torch_does(dtype: Any, x: float) -> None:
    theirs = {dt.float8_e4m3fn: torch.float8_e4m3fn, dt.float8_e5m2: torch.float8_e5m2}[dtype]
    wide = torch.tensor([x], dtype=torch.float32)
    assert conversions.round_float(wide, dtype, None).item() == wide.to(theirs).float().item()


def test_8_bit_floats_saturate() -> None:
    x = torch.tensor([1e9, -1e9, math.inf, math.nan])
    assert_same(
        conversions.round_float(x, dt.float8_e4m3fn, None), [448.0, -448.0, 448.0, math.nan]
    )
    assert_same(conversions.round_float(x, dt.float4_e2m1fn, None), [6.0, -6.0, 6.0, 0.0])
    assert_same(conversions.round_float(x[:1], dt.float8_e8m0fnu, None), [2.0**29])  # towards zero


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (RM.RN, [1.0, 1.0, 2.0, -1.0, -2.0]),
        (RM.RZ, [1.0, 1.0, 1.5, -1.0, -1.5]),
        (RM.RP, [1.5, 1.5, 2.0, -1.0, -1.5]),
        (RM.RM, [1.0, 1.0, 1.5, -1.5, -2.0]),
        (RM.RA, [1.0, 1.5, 2.0, -1.5, -2.0]),
    ],
    ids=lambda m: getattr(m, "name", ""),
)
def test_rounding_modes_of_a_4_bit_float(mode: Any, expected: list[float]) -> None:
    x = torch.tensor([1.1, 1.25, 1.75, -1.25, -1.75])
    codes = minifloats.encode_minifloat(x, dt.float4_e2m1fn, mode)
    assert values.from_bits(codes, dt.float4_e2m1fn).tolist() == expected


@pytest.mark.parametrize("target", [dt.bfloat16, dt.float16, dt.float32, dt.tfloat32], ids=str)
@pytest.mark.parametrize("mode", [RM.RZ, RM.RM, RM.RP, RM.RA], ids=lambda m: m.name)
@settings(max_examples=30)
@given(x=st.floats(-1e4, 1e4))
def test_directed_conversions(target: Any, mode: Any, x: float) -> None:
    wide = torch.tensor([x], dtype=torch.float64)
    result = conversions.round_float(wide, target, mode)
    got, true = Fraction(result.double().item()), Fraction(x)
    below = Fraction(conversions.neighbour(result, target, up=False).double().item())
    above = Fraction(conversions.neighbour(result, target, up=True).double().item())
    if got == 0 or below == above:
        return
    if mode is RM.RA:
        assert abs(got - true) <= min(abs(below - true), abs(above - true))
    elif mode is RM.RP or (mode is RM.RZ and true < 0):
        assert below < true <= got
    else:
        assert got <= true < above


def test_directed_conversion_keeps_wide_and_special_values() -> None:
    x = torch.tensor([math.inf, math.nan, 1e300], dtype=torch.float64)
    assert_same(conversions.round_float(x, dt.float64, RM.RZ), x.tolist())
    assert_same(conversions.round_float(x[:2], dt.float32, RM.RZ), [math.inf, math.nan])


@ct.kernel
def bits(x, out, N: Int):
    ct.store(out, (0,), ct.bitcast(ct.load(x, (0,), (N,)), out.dtype))


@ct.kernel
def scalar_bits(x, out):
    ct.store(out, (0,), ct.bitcast(ct.load(x, 0, ()), out.dtype))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.uint32),
        (torch.uint32, torch.float32),
        (torch.int16, torch.bfloat16),
        (torch.float16, torch.uint16),
        (torch.uint64, torch.float64),
        (torch.int64, torch.uint64),
        (torch.uint8, torch.float8_e4m3fn),
        (torch.float8_e5m2, torch.int8),
    ],
    ids=str,
)
def test_bits_are_kept(source: torch.dtype, target: torch.dtype) -> None:
    raw = torch.arange(8 * source.itemsize, dtype=torch.uint8) * 7 + 1
    x = raw.view(source)
    out = torch.zeros(8 * target.itemsize, dtype=torch.uint8).view(target)
    run_clean(bits, x, out, 8)
    assert torch.equal(out.view(torch.uint8), raw)
    single = torch.zeros(target.itemsize, dtype=torch.uint8).view(target)
    run_clean(scalar_bits, x, single)
    assert torch.equal(single.view(torch.uint8), raw[: source.itemsize])


@ct.kernel
def pack(x, out, N: Int):
    ct.store(out, (0,), ct.pack_to_bytes(ct.load(x, (0,), (N,))))


@ct.kernel
def unpack(x, out, N: Int):
    ct.store(out, (0,), ct.unpack_from_bytes(ct.load(x, (0,), (N,)), out.dtype))


@ct.kernel
def through_4_bits(x, out, packed, N: Int):
    small = ct.pack_to_bytes(ct.load(x, (0,), (N,)).astype(ct.float4_e2m1fn))
    ct.store(packed, (0,), small)
    ct.store(out, (0,), ct.unpack_from_bytes(small, ct.float4_e2m1fn).astype(ct.float32))


def test_packing() -> None:
    x = torch.arange(4, dtype=torch.int32) * 70000
    raw, back = torch.zeros(16, dtype=torch.uint8), torch.zeros(4, dtype=torch.int32)
    run_clean(pack, x, raw, 4)
    assert torch.equal(raw, x.view(torch.uint8))
    run_clean(unpack, raw, back, 16)
    assert torch.equal(back, x)
    floats, packed = torch.tensor([0.5, -1.5, 6.0, 100.0]), torch.zeros(2, dtype=torch.uint8)
    out = torch.zeros(4)
    run_clean(through_4_bits, floats, out, packed, 4)
    assert out.tolist() == [0.5, -1.5, 6.0, 6.0]
    assert packed.tolist() == [0x1 | 0xB << 4, 0x77]


# --------------------------------------------------------------------------- moving elements


@ct.kernel
def cut_and_join(x, y, out):
    a = ct.load(x, (0, 0), (4, 4))
    part = ct.extract(a, (1, 0), (2, 4))
    joined = ct.cat((part, ct.load(y, (0, 0), (2, 4))), 0)
    joined = ct.insert(joined, (0, 3), ct.full((1, 1), 99.0, ct.float32))
    ct.store(out, (0, 0), ct.transpose(joined))


def test_moving_elements() -> None:
    x, y, out = torch.arange(16.0).reshape(4, 4), -torch.ones(2, 4), torch.zeros(4, 4)
    run_clean(cut_and_join, x, y, out)
    expected = torch.cat((x[2:], y))
    expected[0, 3] = 99
    assert torch.equal(out, expected.T)


@ct.kernel
def dynamic_parts(x, out, at):
    i = ct.load(at, 0, ())
    part = ct.extract(ct.load(x, (0,), (8,)), (i,), (2,))
    whole = ct.insert(ct.zeros((8,), ct.float32), (i,), part)
    ct.store(out, (0,), whole)


def test_parts_outside_a_tile_are_reported() -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    run_clean(dynamic_parts, x, out, torch.tensor([2], dtype=torch.int32))
    assert out.tolist() == [0, 0, 0, 0, 4, 5, 0, 0]
    for i in (-1, 4):
        report = run(dynamic_parts, x, out, torch.tensor([i], dtype=torch.int32))
        assert {d.kind for d in report.errors} == {"out-of-bounds"}


# -------------------------------------------------------------------------- matrix products


@ct.kernel
def product(x, y, c, out, M: Int, N: Int, K: Int):
    a, b = ct.load(x, (0, 0), (M, K)), ct.load(y, (0, 0), (K, N))
    ct.store(out, (0, 0), ct.mma(a, b, ct.load(c, (0, 0), (M, N))))


@ct.kernel
def batched(x, y, c, out, B: Int, M: Int, N: Int, K: Int):
    a, b = ct.load(x, (0, 0, 0), (B, M, K)), ct.load(y, (0, 0, 0), (B, K, N))
    ct.store(out, (0, 0, 0), ct.mma(a, b, ct.load(c, (0, 0, 0), (B, M, N))))


@pytest.mark.parametrize(
    ("dtype", "acc"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float16, torch.float16),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
        (torch.float8_e4m3fn, torch.float32),
        (torch.int8, torch.int32),
        (torch.uint8, torch.int32),
    ],
    ids=str,
)
def test_matrix_products(dtype: torch.dtype, acc: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    x, y = (torch.randint(-9, 9, s, generator=generator) for s in ((8, 16), (16, 4)))
    if dtype is torch.uint8:
        x, y = x.abs(), y.abs()
    c = torch.randint(-9, 9, (8, 4), generator=generator)
    out = torch.zeros(8, 4, dtype=acc)
    report = run(product, x.to(dtype), y.to(dtype), c.to(acc), out, 8, 4, 16)
    assert report.diagnostics == []
    assert torch.equal(out.double(), (x @ y + c).double())  # small integers are exact throughout
    assert report.mma_flops == (0 if dtype in INTEGERS else 2 * 8 * 4 * 16)


def test_integer_products_wrap() -> None:
    x = torch.full((16, 32), -128, dtype=torch.int8)
    c = torch.full((16, 16), 2**31 - 1, dtype=torch.int32)
    out = torch.zeros(16, 16, dtype=torch.int32)
    run_clean(product, x, x.T.contiguous(), c, out, 16, 16, 32)
    assert out[0, 0] == wrap(2**31 - 1 + 32 * 128 * 128, torch.int32)


def test_batched_products() -> None:
    x, y, c = torch.randn(2, 4, 8), torch.randn(2, 8, 4), torch.randn(2, 4, 4)
    out = torch.zeros(2, 4, 4)
    report = run(batched, x, y, c, out, 2, 4, 4, 8)
    torch.testing.assert_close(out, x @ y + c)
    assert report.mma_flops == 2 * 2 * 4 * 4 * 8


@ct.kernel
def scaled_product(x, xs, y, ys, out, M: Int, N: Int, K: Int, S: Int):
    a, b = ct.load(x, (0, 0), (M, K)), ct.load(y, (0, 0), (K, N))
    sa, sb = ct.load(xs, (0, 0), (M, S)), ct.load(ys, (0, 0), (S, N))
    acc = ct.zeros((M, N), dtype=ct.float32)
    ct.store(out, (0, 0), ct.mma_scaled(a, sa, b, sb, acc))


def test_scaled_products() -> None:
    x, y = torch.randint(-4, 4, (4, 64)).float(), torch.randint(-4, 4, (64, 4)).float()
    xs = torch.tensor([[1.0, 2.0]] * 4).to(torch.float8_e8m0fnu)
    ys = torch.tensor([[4.0] * 4, [0.5] * 4]).to(torch.float8_e8m0fnu)
    out = torch.zeros(4, 4)
    e4m3 = torch.float8_e4m3fn
    report = run(scaled_product, x.to(e4m3), xs, y.to(e4m3), ys, out, 4, 4, 64, 2)
    wide_x = x * xs.float().repeat_interleave(32, 1)
    assert torch.equal(out, wide_x @ (y * ys.float().repeat_interleave(32, 0)))
    assert report.mma_flops == 2 * 4 * 4 * 64


@ct.kernel
def scaled_batch(x, xs, y, ys, out):
    a, b = ct.load(x, (0, 0, 0), (2, 4, 64)), ct.load(y, (0, 0, 0), (2, 64, 8))
    sa, sb = ct.load(xs, (0, 0, 0), (2, 4, 2)), ct.load(ys, (0, 0, 0), (2, 2, 8))
    acc = ct.zeros((2, 4, 8), dtype=ct.float32)
    ct.store(out, (0, 0, 0), ct.mma_scaled(a, sa, b, sb, acc))


def test_scaled_products_of_batches() -> None:
    made = torch.Generator().manual_seed(1)
    x = torch.randint(-4, 4, (2, 4, 64), generator=made).float()
    y = torch.randint(-4, 4, (2, 64, 8), generator=made).float()
    xs, ys = (2.0 ** torch.randint(-2, 3, s, generator=made) for s in ((2, 4, 2), (2, 2, 8)))
    out, e4m3, e8m0 = torch.zeros(2, 4, 8), torch.float8_e4m3fn, torch.float8_e8m0fnu
    run(scaled_batch, x.to(e4m3), xs.to(e8m0), y.to(e4m3), ys.to(e8m0), out)
    wide = x * xs.repeat_interleave(32, 2)
    assert torch.equal(out, wide @ (y * ys.repeat_interleave(32, 1)))


# ------------------------------------------------------------------------ reductions and scans


@ct.kernel
def reductions(x, out, OP: Int, M: Int, N: Int):
    a = ct.load(x, (0, 0), (M, N))
    if OP == 0:
        r = ct.sum(a, axis=1)
    elif OP == 1:
        r = ct.prod(a, axis=1)
    elif OP == 2:
        r = ct.max(a, axis=1)
    elif OP == 3:
        r = ct.min(a, axis=1)
    elif OP == 4:
        r = ct.argmax(a, axis=1)
    else:
        r = ct.argmin(a, axis=1)
    ct.store(out, (0,), r.astype(out.dtype))


@pytest.mark.parametrize("op", range(6))
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.int32, torch.uint64, torch.float64], ids=str
)
def test_reductions(op: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(op)
    x = torch.randint(1, 5, (4, 8), generator=generator)
    out = torch.zeros(4, dtype=torch.int32 if op >= 4 else dtype)
    report = run(reductions, x.to(dtype), out, op, 4, 8)
    fn = [torch.sum, torch.prod, torch.amax, torch.amin, torch.argmax, torch.argmin][op]
    assert out.tolist() == fn(x.double(), 1).tolist()
    if op < 4 and dtype.is_floating_point:
        assert report.flops == {("add", "mul", "max", "min")[op]: 4 * 7}


def test_maximum_skips_nan_and_ties_go_to_the_first() -> None:
    x = torch.tensor([[math.nan, 3.0, 3.0, 1.0], [math.nan] * 4])
    out, at = torch.zeros(2), torch.zeros(2, dtype=torch.int32)
    run(reductions, x, out, 2, 2, 4)
    assert_same(out, [3.0, math.nan])
    run(reductions, x[:1], at[:1], 4, 1, 4)
    assert at[0] == 1


@ct.kernel
def totals(x, out, n, N: Int):
    a = ct.load(x, (0,), (N,))
    ct.store(out, (0,), ct.sum(a))
    ct.store(out, (1,), ct.reduce(a, 0, lambda p, q: p * n + q * n, 0))
    ct.store(out, (2,), ct.max(a))


def test_reductions_to_scalars_and_captured_values() -> None:
    out = torch.zeros(3, dtype=torch.int32)
    run_clean(totals, torch.tensor([1, 2, 3, 4], dtype=torch.int32), out, 3, 4)
    # By halves: 3 * (3 * (1 + 3)) + 3 * (3 * (2 + 4)).
    assert out.tolist() == [10, 9 * 10, 4]


@ct.kernel
def constant_combiner(x, out, N: Int):
    ct.store(out, (0,), ct.reduce(ct.load(x, (0,), (N,)), 0, lambda p, q: 7.0, 0.0))


def test_a_combiner_may_ignore_its_operands() -> None:
    out = torch.zeros(1)
    run_clean(constant_combiner, torch.ones(8), out, 8)
    assert out[0] == 7.0


@ct.kernel
def two_at_once(x, y, out, N: Int):
    a, b = ct.load(x, (0,), (N,)), ct.load(y, (0,), (N,))
    s, p = ct.reduce((a, b), 0, lambda l0, l1, r0, r1: (l0 + r0, l1 * r1), (0.0, 1.0))
    ct.store(out, (0,), s)
    ct.store(out, (1,), p)


def test_a_reduction_of_several_tiles() -> None:
    out = torch.zeros(2)
    run_clean(two_at_once, torch.tensor([1.0, 2, 3, 4]), torch.tensor([2.0, 2, 2, 3]), out, 4)
    assert out.tolist() == [10.0, 24.0]


@ct.kernel
def sixteen_bit_sum(x, out, N: Int):
    ct.store(out, (0,), ct.sum(ct.load(x, (0,), (N,))))


def test_16_bit_sums_round_at_each_step() -> None:
    x = torch.tensor([256.0, 1.0, 1.0, 0.0]).bfloat16()
    out = torch.zeros(1, dtype=torch.bfloat16)
    run_clean(sixteen_bit_sum, x, out, 4)
    # Halves: (256 + 1, 1 + 0); 257 is no bfloat16 and rounds to 256, and so does 256 + 1 again.
    assert out[0] == 256.0


@ct.kernel
def scans(x, out, OP: Int, N: Int):
    a = ct.load(x, (0, 0), (2, N))
    if OP == 0:
        r = ct.cumsum(a, 1)
    elif OP == 1:
        r = ct.cumsum(a, 1, reverse=True)
    elif OP == 2:
        r = ct.cumprod(a, 1)
    elif OP == 3:
        r = ct.scan(a, 1, lambda p, q: ct.maximum(p, q), -1)
    else:
        r = ct.scan(a, 1, lambda p, q: ct.maximum(p, q), -1, reverse=True)
    ct.store(out, (0, 0), r)


@pytest.mark.parametrize("op", range(5))
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int8, torch.float16], ids=str)
def test_scans(op: int, dtype: torch.dtype) -> None:
    x = torch.tensor([[3, 1, 2, 2, 5, 1, 1, 2], [1, 2, 1, 4, 1, 1, 2, 1]])
    out = torch.zeros(2, 8, dtype=dtype)
    run_clean(scans, x.to(dtype), out, op, 8)
    y = x.flip(1) if op in (1, 4) else x
    y = [y.cumsum(1), y.cumsum(1), y.cumprod(1), y.cummax(1).values, y.cummax(1).values][op]
    assert torch.equal(out.long(), y.flip(1) if op in (1, 4) else y)


# ------------------------------------------------------------------------------ control flow


@ct.kernel
def collatz(x, out):
    n, steps = ct.load(x, ct.bid(0), ()), 0
    while True:
        if n == 1:
            break
        if n % 2 == 0:
            n = n // 2
            steps += 1
            continue
        n = 3 * n + 1
        steps += 1
    ct.store(out, ct.bid(0), steps)


def test_while_break_continue() -> None:
    starts = [1, 6, 7, 27]
    out = torch.zeros(4, dtype=torch.int32)
    run_clean(collatz, torch.tensor(starts, dtype=torch.int32), out, grid=(4,))
    assert out.tolist() == [0, 8, 16, 111]


@ct.kernel
def early(x, out, stop):
    total = ct.zeros((4,), ct.float32)
    for i in range(1, 8, 2):
        if i > stop:
            return
        if i == 3:
            continue
        total = total + ct.load(x, (0,), (4,)) * i
        if i == 5:
            break
    ct.store(out, (0,), total)


@pytest.mark.parametrize(("stop", "factor"), [(0, 0), (4, 0), (5, 6), (9, 6)])
def test_return_and_break_inside_loops(stop: int, factor: int) -> None:
    x, out = torch.ones(4), torch.zeros(4)
    run(early, x, out, stop)
    assert out.tolist() == [float(factor)] * 4


@ct.kernel
def stepped(out, by):
    n = 0
    for _ in range(0, 10, by):
        n += 1
    ct.store(out, 0, n)


def test_steps_of_a_loop_are_positive() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    run_clean(stepped, out, 3)
    assert out[0] == 4
    assert "must be positive" in str(refusal(stepped, out, -1))


@ct.kernel
def checked(x):
    ct.assert_(ct.load(x, (0,), (4,)) > 0, "all positive")  # noqa: PT009


def test_assertions() -> None:
    run_clean(checked, torch.ones(4))
    error = refusal(checked, torch.zeros(4))
    assert isinstance(error, InterpreterError)
    said = "assertion failed in block (0, 0, 0) at element (0,), one of 4: 0 > 0 is false"
    assert f"{said}: all positive" in str(error)


@ct.kernel
def prints(x, u):
    ct.printf("%5d|%-4d|%+.2f|%%|%x|%a\n", ct.bid(0), 7, 1.5, 255, 1.0)
    print(f"{ct.load(x, (0,), (2,)):.1f}", ct.load(u, (0,), (2,)), sep=" / ")
    print(ct.load(u, 0, ()))


def test_printing(capsys: pytest.CaptureFixture[str]) -> None:
    run_clean(prints, torch.tensor([0.5, 2.0]), torch.tensor([2**64 - 1, 3], dtype=torch.uint64))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "    0|7   |+1.50|%|ff|0x1.0000000000000p+0"
    assert lines[1] == "[0.5, 2.0] / [18446744073709551615, 3]"
    assert lines[2] == "18446744073709551615"


def test_an_internal_failure_names_the_line(monkeypatch: pytest.MonkeyPatch) -> None:
    from mla_var3.interpreter import frontend
    from mla_var3.interpreter.handlers import HANDLERS

    def broken(op: Any, lo: Any) -> Any:
        def step(env: Any, rt: Any) -> None:
            raise ZeroDivisionError("broken")

        return step

    monkeypatch.setitem(HANDLERS, "tile_bid", broken)
    frontend.clear_cache()
    error = refusal(collatz, torch.ones(1, dtype=torch.int32), torch.ones(1, dtype=torch.int32))
    frontend.clear_cache()
    assert isinstance(error, InterpreterError)
    assert "failed at operation 'tile_bid' in block (0, 0, 0): ZeroDivisionError" in str(error)
    assert "test_ops.py:" in str(error)


@ct.kernel
def narrowed(x, out, N: Int):
    wide = ct.load(x, (0,), (N,))
    ct.store(out, (0,), ct.astype(wide, out.dtype, rounding_mode=ct.RoundingMode.RZ))


@pytest.mark.parametrize("to", [torch.float16, torch.bfloat16])
def test_a_cast_rounds_as_asked(to: torch.dtype) -> None:
    x = torch.tensor([1.0 + 2.0**-13, 2.0 - 2.0**-13, -2.0 + 2.0**-13, 1.5])
    out = torch.zeros(4, dtype=to)
    run_clean(narrowed, x, out, 4)
    step = torch.finfo(to).eps
    assert out.double().tolist() == ((x.double() / step).trunc() * step).tolist()
