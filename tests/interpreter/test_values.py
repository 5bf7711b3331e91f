"""Formats, conversions and directed rounding against rational numbers."""

from __future__ import annotations

import bisect
import itertools
import math
from fractions import Fraction

import pytest
import torch
from cuda.tile import _datatype as dt
from cuda.tile._numeric_semantics import RoundingMode

from mla_var3.interpreter.conversions import full, round_float
from mla_var3.interpreter.exact import exact_directed, fma
from mla_var3.interpreter.minifloats import encode_minifloat
from mla_var3.interpreter.values import (
    from_bits,
    from_memory,
    held_dtype,
    memory_dtype,
    to_bits,
    to_memory,
    wrap,
)

from .helpers import FLOATS, TF32, round_even

RN, RZ, RM, RP, RA = (getattr(RoundingMode, x) for x in ("RN", "RZ", "RM", "RP", "RA"))

# Small formats ---------------------------------------------------------------------------------
#: Bits of exponent and mantissa, bias, whether there is a sign, and the largest finite code.
SMALL = {
    dt.float8_e4m3fn: (4, 3, 7, True, 0x7E),
    dt.float8_e5m2: (5, 2, 15, True, 0x7B),
    dt.float8_e8m0fnu: (8, 0, 127, False, 0xFE),
    dt.float8_e5m3fnu: (5, 3, 15, False, 0xFE),
    dt.float4_e2m1fn: (2, 1, 1, True, 0x7),
}


def magnitudes(dtype: dt.DType) -> list[Fraction]:
    """The finite values of a format without their sign, in the order of their codes."""
    _, mantissa, bias, _, top = SMALL[dtype]
    out = []
    for code in range(top + 1):
        e, m = divmod(code, 1 << mantissa)
        if mantissa and e == 0:
            out.append(Fraction(m, 1 << mantissa) * Fraction(2) ** (1 - bias))
        else:
            out.append((1 + Fraction(m, 1 << mantissa)) * Fraction(2) ** (e - bias))
    return out


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_codes_mean_what_the_format_says(dtype: dt.DType) -> None:
    exponent, mantissa, _, signed, _ = SMALL[dtype]
    grid = [float(x) for x in magnitudes(dtype)]
    codes = torch.arange(len(grid), dtype=torch.uint8)
    assert from_bits(codes, dtype).double().tolist() == grid
    if signed:
        sign = 1 << exponent + mantissa
        assert from_bits(codes | sign, dtype).double().tolist() == [-x for x in grid]


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_every_code_survives_being_held(dtype: dt.DType) -> None:
    codes = torch.arange(1 << dtype.bitwidth).to(torch.uint8)
    assert to_bits(from_bits(codes, dtype), dtype).tolist() == codes.tolist()
    assert to_memory(from_memory(codes, dtype), dtype).tolist() == codes.tolist()


def nearest(x: Fraction, grid: list[Fraction], negative: bool, mode: RoundingMode) -> int:
    """The code of a magnitude that the format does not go beyond."""
    high = bisect.bisect_left(grid, x)
    if high == len(grid):
        return high - 1
    if grid[high] == x or high == 0:
        return high
    low = high - 1
    down, up = x - grid[low], grid[high] - x
    match mode:
        case RoundingMode.RZ:
            return low
        case RoundingMode.RP:
            return low if negative else high
        case RoundingMode.RM:
            return high if negative else low
    if down != up:
        return low if down < up else high
    return high if mode is RA or low % 2 else low


@pytest.mark.parametrize("mode", [RN, RZ, RM, RP, RA], ids=str)
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_numbers_get_the_code_that_the_mode_asks_for(dtype: dt.DType, mode: RoundingMode) -> None:
    *_, signed, _ = SMALL[dtype]
    grid = magnitudes(dtype)
    middle = [(a + b) / 2 for a, b in itertools.pairwise(grid)]
    beside = [m + (a - m) / 8 for m, a in zip(middle, grid, strict=False)]
    beyond = [m + (b - m) / 8 for m, b in zip(middle, grid[1:], strict=True)]
    numbers = [*grid, *middle, *beside, *beyond, grid[-1] * 2, Fraction(0), grid[0] / 2]
    numbers += [-x for x in numbers]
    given = torch.tensor([float(x) for x in numbers], dtype=torch.float64)
    assert given.tolist() == numbers  # No number was rounded on the way.
    sign = 1 << sum(SMALL[dtype][:2])
    wanted = []
    for x in numbers:
        if signed:
            wanted.append(nearest(abs(x), grid, x < 0, mode) | (sign if x < 0 else 0))
        else:
            wanted.append(nearest(max(x, Fraction(0)), grid, False, mode))
    assert encode_minifloat(given, dtype, mode).tolist() == wanted


def test_scales_round_towards_zero_where_no_mode_is_given() -> None:
    x = torch.tensor([1.0, 1.99, 3.9, 0.7])
    assert round_float(x, dt.float8_e8m0fnu, None).tolist() == [1.0, 1.0, 2.0, 0.5]


# Directed rounding ------------------------------------------------------------------------------
TYPES = {
    dt.float16: (torch.float16, FLOATS[torch.float16]),
    dt.bfloat16: (torch.bfloat16, FLOATS[torch.bfloat16]),
    dt.float32: (torch.float32, FLOATS[torch.float32]),
    dt.float64: (torch.float64, (53, -1022, (2 - 2.0**-52) * 2.0**1023)),
    dt.tfloat32: (torch.float32, TF32),
}


def directed(exact: Fraction, form: tuple[int, int, float], mode: RoundingMode) -> float:
    """A number that is not 0, rounded down, up, or towards zero."""
    precision, least, top = form
    size = abs(exact)
    e = size.numerator.bit_length() - size.denominator.bit_length()
    e = e if size >= Fraction(2) ** e else e - 1
    unit = Fraction(2) ** (max(e, least) - precision + 1)
    up = mode is (RP if exact > 0 else RM)
    whole = (math.ceil if up else math.floor)(size / unit) * unit
    found = math.inf if whole > top and up else min(float(min(whole, Fraction(top))), top)
    return found if exact > 0 else -found


def evaluated(fn: str, xs: tuple[float, ...], mode: RoundingMode, form) -> float | None:
    """What IEEE 754 asks for; None where there is no rational number to round."""
    a, *rest = (Fraction(x) for x in xs)
    signs = [math.copysign(1.0, x) for x in xs]
    if fn == "truediv" and not rest[0]:
        return None
    exact = {
        "add": lambda: a + rest[0], "sub": lambda: a - rest[0], "mul": lambda: a * rest[0],
        "truediv": lambda: a / rest[0], "fma": lambda: a * rest[0] + rest[1],
    }[fn]()  # fmt: skip
    if exact:
        return directed(exact, form, mode)
    if fn in ("mul", "truediv"):
        return math.copysign(0.0, signs[0] * signs[1])
    first = signs[0] * signs[1] if fn == "fma" else signs[0]
    last = -signs[1] if fn == "sub" else signs[-1]
    if xs[-1] or first != last:  # Numbers that cancel, or zeros of both signs.
        return -0.0 if mode is RM else 0.0
    return math.copysign(0.0, first)


@pytest.mark.parametrize("mode", [RZ, RM, RP], ids=str)
@pytest.mark.parametrize("fn", ["add", "sub", "mul", "truediv", "fma"])
@pytest.mark.parametrize("dtype", [t for t in TYPES if t is not dt.tfloat32], ids=str)
def test_directed_results_of_edges(dtype: dt.DType, fn: str, mode: RoundingMode) -> None:
    torch_type, form = TYPES[dtype]
    precision, least, top = form
    tiny = 2.0 ** (least - precision + 1)
    edges = [0.0, 1.0, 1.5 + 2.0 ** (1 - precision), tiny, top]
    cases = list(itertools.product([*edges, *(-x for x in edges)], repeat=3 if fn == "fma" else 2))[
        :: 3 if fn == "fma" else 1
    ]
    operands = tuple(torch.tensor(x, dtype=torch_type) for x in zip(*cases, strict=True))
    got = exact_directed(fn, operands, dtype, mode).double().tolist()
    for case, value in zip(cases, got, strict=True):
        wanted = evaluated(fn, case, mode, form)
        if wanted is not None:
            assert repr(value) == repr(wanted), case


@pytest.mark.parametrize("mode", [RZ, RM, RP, RA], ids=str)
@pytest.mark.parametrize("target", [t for t in TYPES if t is not dt.float64], ids=str)
def test_directed_conversions_of_neighbors(target: dt.DType, mode: RoundingMode) -> None:
    precision, least, top = form = TYPES[target][1]
    near = [1.0, 1.75, 2.0 ** (least - precision + 1), 2.0**least, 2.0**least * 1.25, top / 4]
    numbers = []
    for x in near:
        unit = 2.0 ** (max(math.frexp(x)[1] - 1, least) - precision + 1)
        numbers += [x, x + unit / 2, x + unit / 4, x + 3 * unit / 4, x - unit / 8, x + unit]
    numbers += [-x for x in numbers]
    made = round_float(torch.tensor(numbers, dtype=torch.float64), target, mode)
    for x, value in zip(numbers, made.double().tolist(), strict=True):
        exact = Fraction(x)
        if mode is not RA:
            assert repr(value) == repr(directed(exact, form, mode)), x
            continue
        down, up = (Fraction(directed(exact, form, m)) for m in (RM, RP))
        away = up if x > 0 else down
        middle = (down + up) / 2
        assert value == (away if exact == middle else up if exact > middle else down), x


# Memory -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dtype", [dt.int8, dt.uint8, dt.int16, dt.uint16, dt.int32, dt.uint32, dt.int64, dt.uint64],
    ids=str,
)  # fmt: skip
def test_integers_come_back_from_memory(dtype: dt.DType) -> None:
    info = dt.IntegerInfo(dtype)
    numbers = [
        info.min,
        info.min + 1,
        0,
        1,
        info.max // 2,
        info.max // 2 + 1,
        info.max - 1,
        info.max,
    ]
    held = torch.tensor([x - 2**64 if x >= 2**63 else x for x in numbers], dtype=held_dtype(dtype))
    stored = to_memory(held, dtype)
    assert stored.dtype == memory_dtype(dtype)
    assert stored.dtype.itemsize * 8 == dtype.bitwidth
    assert from_memory(stored, dtype).tolist() == held.tolist()
    assert from_bits(to_bits(held, dtype), dtype).tolist() == held.tolist()
    mask = (1 << dtype.bitwidth) - 1
    assert [x & mask for x in to_bits(held, dtype).tolist()] == [x & mask for x in numbers]
    past = wrap(held + 1, dtype).tolist()
    assert [x & mask for x in past] == [(x + 1) & mask for x in numbers]
    assert all(info.min <= x <= info.max for x in past) or dtype is dt.uint64


@pytest.mark.parametrize("dtype", [*SMALL, *TYPES], ids=str)
def test_a_tile_of_constants(dtype: dt.DType) -> None:
    made = full((2, 3), 2.0, dtype)
    assert made.dtype == held_dtype(dtype)
    assert made.tolist() == [[2.0] * 3] * 2
    assert made.is_contiguous()
    rows = full((2, 2), ((1.0, 2.0), (0.5, 4.0)), dtype)
    assert rows.tolist() == [[1.0, 2.0], [0.5, 4.0]]


def test_constants_keep_infinities_where_conversions_do_not() -> None:
    x = torch.tensor([math.inf, -math.inf])
    assert full((2,), (math.inf, -math.inf), dt.float8_e5m2).tolist() == x.tolist()
    assert round_float(x, dt.float8_e5m2, None).tolist() == [57344.0, -57344.0]
    assert full((2,), (math.inf, -math.inf), dt.float8_e4m3fn).tolist() == [448.0, -448.0]


@pytest.mark.parametrize("dtype", [dt.int8, dt.uint8, dt.uint16, dt.uint32, dt.int64, dt.uint64])
def test_constants_wrap(dtype: dt.DType) -> None:
    bits = dtype.bitwidth
    made = full((4,), ((1 << bits) + 5, -1, 1 << bits - 1, 7), dtype).tolist()
    mask = (1 << bits) - 1
    assert [x & mask for x in made] == [5, mask, 1 << bits - 1, 7]
    assert full((2,), (3, 0), dt.bool_).tolist() == [True, False]


@pytest.mark.parametrize("factors", [(7, 37), (9, 29), (13, 21), (15, 17), (21, 23)])
@pytest.mark.parametrize("part", [0, 1, 100, 127, 128, 129, 200, 255])
@pytest.mark.parametrize("unit", [-53, -52, -51, -45, -44])
def test_what_a_sum_in_double_loses_decides_a_tie(
    factors: tuple[int, int], part: int, unit: int
) -> None:
    """The product lies half way between two numbers, the term at the last bit of a double."""
    a, b = factors
    for x, sign in itertools.product((a, -a), (1, -1)):
        term = sign * part * 2.0**unit
        given = [torch.tensor([v], dtype=torch.bfloat16) for v in (x, b, term)]
        assert [float(v) for v in given] == [x, b, term]
        wanted = round_even(Fraction(x * b) + Fraction(term), *FLOATS[torch.bfloat16])
        assert float(fma(*given)) == wanted
