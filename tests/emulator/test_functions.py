"""Arithmetic at run time against Python's own numbers, with every edge of every type."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mla_var3.emulator import formats
from mla_var3.emulator import functions as fn

U16, U32, U64 = np.uint16, np.uint32, np.uint64
F16, F32, F64 = np.float16, np.float32, np.float64
WORD, LONG = (1 << 32) - 1, (1 << 64) - 1


def edges(width: int, signed: bool) -> list[int]:
    """The ends of a type, both sides of each power of two, and numbers without a pattern."""
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    near = {s * (1 << i) + d for i in range(0, width + 1, 3) for d in (-1, 0, 1) for s in (1, -1)}
    near |= {0x12345678_9ABCDEF1 >> (64 - width), 0x5DEECE66D1234567 >> (65 - width), low, high}
    return sorted(x for x in near if low <= x <= high)


def pairs(width: int, signed: bool) -> tuple[np.ndarray, np.ndarray, list[tuple[int, int]]]:
    values = edges(width, signed)
    every = list(itertools.product(values, values))
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    a, b = (np.array(column, dtype=kind) for column in zip(*every, strict=True))
    return a, b, every


# Whole numbers -----------------------------------------------------------------------------------
@pytest.mark.parametrize("width", [16, 32, 64])
def test_signed_division_is_toward_zero(width: int) -> None:
    a, b, every = pairs(width, True)
    quotients, rests = fn.divide(a, b), fn.remainder(a, b)
    for (x, y), q, r in zip(every, quotients.tolist(), rests.tolist(), strict=True):
        if y == 0:
            assert (q, r) == (-1, x)
            continue
        exact = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        assert (q - exact) % (1 << 64) == 0, (x, y)
        assert (r - (x - exact * y)) % (1 << 64) == 0, (x, y)


@pytest.mark.parametrize("width", [16, 32, 64])
def test_unsigned_division(width: int) -> None:
    a, b, every = pairs(width, False)
    ones = (1 << width) - 1
    wanted = [(x // y, x % y) if y else (ones, x) for x, y in every]
    assert fn.udivide(a, b).tolist() == [q for q, _ in wanted]
    assert fn.uremainder(a, b).tolist() == [r for _, r in wanted]
    assert fn.udivide(a, b).dtype == a.dtype


@pytest.mark.parametrize("signed", [False, True])
def test_the_high_half_of_a_product(signed: bool) -> None:
    a, b, every = pairs(64, signed)
    found = fn.mul_hi64(a.view(U64), b.view(U64), signed)
    assert found.tolist() == [(x * y >> 64) % (1 << 64) for x, y in every]


@pytest.mark.parametrize("width", [32, 64])
def test_sums_and_differences_with_what_is_carried(width: int) -> None:
    a, b, every = pairs(width, False)
    for carry in (0, 1):
        c = np.full(len(a), carry, U32)
        total, out = fn.add_carry(a, b, c)
        assert total.tolist() == [(x + y + carry) % (1 << width) for x, y in every]
        assert out.astype(bool).tolist() == [x + y + carry >= 1 << width for x, y in every]
        total, out = fn.sub_borrow(a, b, c)
        assert total.tolist() == [(x - y - carry) % (1 << width) for x, y in every]
        assert out.astype(bool).tolist() == [x - y - carry < 0 for x, y in every]


def test_bits_are_counted_found_and_turned_around() -> None:
    for width, kind in ((32, U32), (64, U64)):
        values = edges(width, False)
        x = np.array(values, kind)
        assert fn.popcount(x).tolist() == [v.bit_count() for v in values]
        assert fn.bit_length(x).tolist() == [v.bit_length() for v in values]
        assert fn.reverse(x, width).tolist() == [
            int(format(v, f"0{width}b")[::-1], 2) for v in values
        ]
    assert fn.popcount(x).dtype == fn.bit_length(x).dtype == U32


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("amount", [False, True])
def test_the_highest_significant_bit(width: int, signed: bool, amount: bool) -> None:
    values = edges(width, signed)
    x = np.array(values, f"{'i' if signed else 'u'}{width // 8}")
    wanted = []
    for v in values:
        at = (~v if v < 0 else v).bit_length() - 1
        wanted.append(WORD if at < 0 else width - 1 - at if amount else at)
    assert fn.find_bit(x, signed, amount, width).tolist() == wanted


@given(st.integers(0, WORD), st.integers(0, 31), st.integers(-34, 34))
@example(0, 0, 1)
@example(WORD, 31, -32)
@example(WORD, 0, 32)
@example(1 << 31, 31, 0)
def test_the_nth_bit_from_a_place_on(mask: int, base: int, n: int) -> None:
    places = range(base, 32) if n > 0 else range(base, -1, -1) if n < 0 else range(base, base + 1)
    there = [p for p in places if mask >> p & 1]
    count = max(abs(n), 1)
    wanted = there[count - 1] if count <= len(there) else WORD
    found = fn.find_nth(np.array([mask], U32), np.array([base], U32), np.array([n], np.int32))
    assert found.tolist() == [wanted]


#: PTX ISA, prmt: the bytes that each mode takes for each of the four selectors, lowest first.
MODES = {
    "f4e": ["0123", "1234", "2345", "3456"], "b4e": ["0765", "1076", "2107", "3210"],
    "rc8": ["0000", "1111", "2222", "3333"], "ecl": ["0123", "1123", "2223", "3333"],
    "ecr": ["0000", "0111", "0122", "0123"], "rc16": ["0101", "2323", "0101", "2323"],
}  # fmt: skip


@pytest.mark.parametrize("mode", MODES)
def test_bytes_by_the_modes_of_the_isa(mode: str) -> None:
    a, b = 0x83_02_81_00, 0x87_06_85_04
    both = (a | b << 32).to_bytes(8, "little")
    for selector in range(8):
        wanted = bytes(both[int(i)] for i in MODES[mode][selector & 3])
        got = fn.permute(*(np.array([v], U32) for v in (a, b, selector)), mode)
        assert int(got[0]).to_bytes(4, "little") == wanted


@given(st.integers(0, WORD), st.integers(0, WORD), st.integers(0, WORD))
def test_bytes_by_a_selector(a: int, b: int, selector: int) -> None:
    both = (a | b << 32).to_bytes(8, "little")
    wanted = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = both[nibble & 7]
        wanted |= (255 * (byte >> 7) if nibble & 8 else byte) << 8 * i
    assert int(fn.permute(*(np.array([v], U32) for v in (a, b, selector)))[0]) == wanted


def test_every_function_of_three_bits() -> None:
    a, b, c = (np.array([v], U32) for v in (0xF0F0F0F0, 0xCCCCCCCC, 0xAAAAAAAA))
    for table in range(256):
        assert int(fn.lop3(a, b, c, table)[0]) == table * 0x01010101


AMOUNTS = [0, 1, 7, 31, 32, 33, 63, 64, 255, WORD]


@pytest.mark.parametrize("side", ["l", "r"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_a_shift_of_two_words(side: str, mode: str) -> None:
    low, high = 0x9ABCDEF1, 0x82345678
    both = high << 32 | low
    for amount in AMOUNTS:
        n = amount & 31 if mode == "wrap" else min(amount, 32)
        wanted = (both << n >> 32) & WORD if side == "l" else both >> n & WORD
        found = fn.funnel(side, mode, *(np.array([v], U32) for v in (low, high, amount)))
        assert found.tolist() == [wanted], amount


@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("signed", [False, True])
def test_fields_of_every_place_and_length(width: int, signed: bool) -> None:
    kind = U64 if width == 64 else U32
    numbers = [0, 1, 2, 8, width - 1, width, width + 1, 100, 255, 256, 257]
    for x in (0x8234567_9ABCDEF1 >> (64 - width), 0xF2345678_9ABCDEF1 >> (64 - width)):
        signed_x = x - (1 << width) if x >> (width - 1) else x
        for start, length in itertools.product(numbers, numbers):
            s, n = start & 255, length & 255
            if n == 0:
                wanted = 0
            elif signed:
                part = signed_x >> min(s, width - 1)
                kept = min(n, width - s) if s < width else 1
                part &= (1 << kept) - 1
                wanted = part - (1 << kept) if part >> (kept - 1) else part
            else:
                wanted = x >> s & ((1 << n) - 1)
            at = np.array([start]), np.array([length])
            got = fn.extract(np.array([x], kind), *at, width, signed)
            assert int(got[0]) == wanted % (1 << width), (x, start, length)
            mask = ((1 << n) - 1 << s) % (1 << width)
            a, b = 0x5A5A5A5A_A5A5A5A5 % (1 << width), x
            got = fn.insert(np.array([a], kind), np.array([b], kind), *at, width)
            assert int(got[0]) == (b & ~mask) | ((a << s) & mask), (start, length)


@pytest.mark.parametrize("wrap", [False, True])
def test_ones_from_a_place_on(wrap: bool) -> None:
    for start, length in itertools.product(AMOUNTS, AMOUNTS):
        s, n = (v & 31 if wrap else min(v, 32) for v in (start, length))
        found = fn.bit_mask(np.array([start], U32), np.array([length], U32), wrap)
        assert int(found[0]) == ((1 << n) - 1 << s) & WORD, (start, length)


@given(
    st.integers(0, WORD), st.integers(0, WORD), st.integers(0, WORD),
    st.tuples(st.booleans(), st.booleans()), st.sampled_from([2, 4]),
)  # fmt: skip
def test_products_of_packed_integers(
    a: int, b: int, c: int, kinds: tuple[bool, bool], parts: int
) -> None:
    def part(x: int, i: int, width: int, signed: bool) -> int:
        v = x >> width * i & ((1 << width) - 1)
        return v - (1 << width) if signed and v >> (width - 1) else v

    wide = 32 // parts
    wanted = c + sum(part(a, i, wide, kinds[0]) * part(b, i, 8, kinds[1]) for i in range(parts))
    found = fn.dot(*(np.array([v], U32) for v in (a, b, c)), kinds, parts)
    assert int(found[0]) % (1 << 32) == wanted % (1 << 32)


# Floats ------------------------------------------------------------------------------------------
#: Bits of precision, the exponent of the least subnormal, and the largest finite value.
SHAPES = {
    F16: (11, -24, Fraction(65504)),
    F32: (24, -149, Fraction(float(np.finfo(F32).max))),
    F64: (53, -1074, Fraction(float(np.finfo(F64).max))),
    "bf16": (8, -133, Fraction((2 - 2.0**-7) * 2.0**127)),
}


def rounded(x: Fraction, shape: tuple[int, int, Fraction], mode: str = "rn") -> float:
    """A number that is not 0 in a format, by its definition."""
    precision, least, top = shape
    size = abs(x)
    exponent = max(math.floor(math.log2(size)) if size else least, least) if size else least
    while Fraction(2) ** (exponent + 1) <= size:
        exponent += 1
    while exponent > least and Fraction(2) ** exponent > size:
        exponent -= 1
    grid = Fraction(2) ** max(exponent - precision + 1, least)
    down = size / grid
    whole, rest = int(down), down - int(down)
    up = {
        "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
        "rz": False, "rm": rest > 0 and x < 0, "rp": rest > 0 and x > 0,
    }[mode]  # fmt: skip
    value = (whole + up) * grid
    if value > top:
        toward_zero = mode == "rz" or (mode == "rm" and x > 0) or (mode == "rp" and x < 0)
        value = top if toward_zero else math.inf  # type: ignore[assignment]
    return math.copysign(float(value), x)


def floats(kind: type) -> st.SearchStrategy[float]:
    width = {F16: 16, F32: 32, F64: 64}[kind]
    return st.floats(width=width, allow_nan=False, allow_infinity=False)


@given(floats(F32), floats(F32), floats(F32))
@example(1.0 + 2.0**-23, 1.0 + 2.0**-23, 2.0**-60)
@example(1.0 + 2.0**-12, 1.0 + 2.0**-12, -(2.0**-54))
@example(2.0**-126, 0.5, 2.0**-149)
@example(2.0**127, 2.0, -(2.0**104))
@example(-1.0, 1.0, 1.0)
def test_a_product_and_a_sum_are_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    with np.errstate(all="ignore"):
        got = float(np.ravel(fn.fma32(F32(a), F32(b), F32(c)))[0])
        wide = float(np.ravel(fn.fma64(F64(a), F64(b), F64(c)))[0])
    if exact:
        assert got == rounded(exact, SHAPES[F32])
        assert wide == rounded(exact, SHAPES[F64])
    else:
        assert got == wide == 0


@given(floats(F16), floats(F16), floats(F16))
@example(1.0 + 2.0**-10, 1.0 + 2.0**-10, 2.0**-24)
@example(2.0**-14, 2.0**-10, 2.0**-24)
@example(65504.0, 1.0, 16.0)
def test_small_products_and_sums_are_rounded_once(a: float, b: float, c: float) -> None:
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    for name, kind in (("f16", F16), ("bf16", "bf16")):
        with np.errstate(all="ignore"):
            code = np.ravel(fn.fma_small(F32(a), F32(b), F32(c), name)).astype(U16)
            got = float((code.view(F16) if name == "f16" else formats.from_bf16(code))[0])
        assert got == (rounded(exact, SHAPES[kind]) if exact else 0), name


@given(floats(F64))
@example(1.0 + 2.0**-8 + 2.0**-40)
@example(1.0 + 2.0**-8 - 2.0**-40)
@example(-(1.0 + 2.0**-8 + 2.0**-40))
@example(-(1.0 + 2.0**-8 - 2.0**-40))
@example(1.0 + 3 * 2.0**-8 - 2.0**-40)
@example(1.0 + 2.0**-8)
@example(3.4e38)
@example(2.0**-134 * (1 + 2.0**-30))
def test_doubles_become_halves_in_one_step(x: float) -> None:
    with np.errstate(all="ignore"):
        for name, kind in (("f16", F16), ("bf16", "bf16")):
            code = np.ravel(fn.to_small(np.array([x]), name)).astype(U16)
            got = float((code.view(F16) if name == "f16" else formats.from_bf16(code))[0])
            assert got == (rounded(Fraction(x), SHAPES[kind]) if x else 0), name


@given(floats(F64), st.sampled_from(["rn", "rz", "rm", "rp"]), st.sampled_from([F16, F32]))
@example(1e300, "rz", F32)
@example(1e300, "rm", F32)
@example(-1e300, "rm", F32)
@example(-1e300, "rp", F16)
@example(1e-300, "rp", F32)
@example(-1e-300, "rm", F32)
def test_wider_values_are_rounded_as_asked(x: float, mode: str, kind: type) -> None:
    with np.errstate(all="ignore"):
        got = float(fn.directed(np.array([x]), kind, mode)[0])
    assert got == (rounded(Fraction(x), SHAPES[kind], mode) if x else 0)


@given(floats(F32), floats(F32), st.sampled_from(["rn", "rz", "rm", "rp"]))
@example(1.0, -1.0, "rm")
@example(0.0, -0.0, "rm")
@example(0.0, 0.0, "rm")
@example(1.0, 2.0**-60, "rp")
@example(1.0, -(2.0**-60), "rz")
def test_a_sum_may_be_rounded_once_more(a: float, b: float, mode: str) -> None:
    exact = Fraction(a) + Fraction(b)
    with np.errstate(all="ignore"):
        total = fn.exact_add(F32(a), F32(b), mode)
        product = fn.exact_fma(F32(a), F32(1), F32(b), mode)
        found = [float(fn.directed(t, F32, mode)[0]) for t in (total, product)]
    assert found[0] == found[1]
    if exact:
        assert found[0] == rounded(exact, SHAPES[F32], mode)
    else:
        assert found[0] == 0
        if mode == "rm":
            plus = math.copysign(1, a) > 0 and math.copysign(1, b) > 0
            assert math.copysign(1, float(total[0])) == (1 if plus else -1)


@pytest.mark.parametrize("kind", [np.int64, np.uint64])
def test_whole_numbers_become_floats_in_one_step(kind: type) -> None:
    values = edges(64, kind is np.int64)
    values += [s for i in range(24, 62, 5) for s in ((1 << i) + 1, (3 << i - 1) + 1)]
    near = fn.odd_integer(np.array(values, kind))
    with np.errstate(all="ignore"):
        small = near.astype(F32)
    for x, got in zip(values, small.tolist(), strict=True):
        assert got == (rounded(Fraction(x), SHAPES[F32]) if x else 0), x


def test_every_value_near_a_half_becomes_one() -> None:
    codes = np.arange(1 << 16, dtype=U16)
    with np.errstate(all="ignore"):
        exact = codes.view(F16).astype(F32)
        above, below = (np.nextafter(exact, F32(s) * F32(np.inf)) for s in (1, -1))
        middle = ((exact.astype(F64) + np.roll(exact, -1).astype(F64)) / 2).astype(F32)
        for x in (exact, above, below, middle):
            want = x.astype(F16).view(U16)
            got = fn.half(x)
            keep = ~np.isnan(x)
            assert (got[keep] == want[keep]).all()
            assert np.isnan(got[~keep].view(F16)).all()


SPECIAL = [
    0.0, -0.0, 1.0, -1.0, 2.5, -2.5, math.inf, -math.inf, math.nan, -math.nan, 2.0**-149,
    -(2.0**-130), 2.0**-126, 3e38,
]  # fmt: skip


def bits(x: object) -> list[int | str]:
    """Bits of float32 values; all NaNs are one."""
    a = np.asarray(x, F32)
    return ["nan" if np.isnan(v) else int(v.view(U32)) for v in a.reshape(-1)]


@pytest.mark.parametrize("nan", [False, True])
@pytest.mark.parametrize("name", ["float_min", "float_max"])
def test_the_smaller_and_the_larger(name: str, nan: bool) -> None:
    for a, b in itertools.product(SPECIAL, SPECIAL):
        pick = min if name == "float_min" else max
        if math.isnan(a) or math.isnan(b):
            wanted = math.nan if nan or (math.isnan(a) and math.isnan(b)) else (
                b if math.isnan(a) else a)  # fmt: skip
        else:
            wanted = pick(a, b, key=lambda v: (v, math.copysign(1, v)))
        for size in (1, 2):  # Alone, and beside a value that is no zero.
            x, y = (np.array([v, 7.0][:size], F32) for v in (a, b))
            assert bits(getattr(fn, name)(x, y, nan)) == bits([wanted, 7.0][:size]), (a, b)


def test_subnormals_are_flushed_and_values_clamped() -> None:
    for x in SPECIAL:
        small = 0 < abs(x) < 2.0**-126
        assert bits(fn.flush(np.array([x], F32))) == bits([math.copysign(0, x) if small else x])
        clamped = 0.0 if math.isnan(x) or x <= 0 else min(x, 1.0)
        for kind in (F32, F64):
            got = fn.saturate(np.array([x], kind))
            assert got.dtype == kind
            assert bits(got) == bits([clamped])


def test_an_approximate_quotient_of_a_huge_divisor_is_zero() -> None:
    at = 2.0**126
    with np.errstate(all="ignore"):
        for a in (3.0, -3.0, math.inf, 0.0):
            for b in (at, -at, at * 1.5, -at * 1.5, math.inf, 2.0, 0.0):
                got = fn.quotient(np.array([a], F32), np.array([b], F32))
                if math.isfinite(b) and abs(b) > at:
                    wanted = F32(a) * F32(math.copysign(0, b))
                else:
                    wanted = F32(a) / F32(b)
                assert bits(got) == bits([wanted]), (a, b)


@pytest.mark.parametrize("mode", "izmp")
@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("signed", [False, True])
def test_floats_become_whole_numbers(mode: str, width: int, signed: bool) -> None:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    rounding = {"i": round, "z": math.trunc, "m": math.floor, "p": math.ceil}[mode]
    values = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -1.5, -2.5, 100.25, -100.75, 1e30, -1e30]
    values += [float(low), float(high), low - 0.5, high + 0.5, high - 0.5, low + 0.5, low - 1.0]
    values += [float(1 << width), float(1 << width - 1), math.nextafter(2.0**width, 0)]
    for x in values:
        got = int(fn.to_integer(np.array([x]), mode, width, signed)[0])
        assert got == min(max(rounding(x), low), high), x
    for x, wanted in ((math.inf, high), (-math.inf, low)):
        assert int(fn.to_integer(np.array([x]), mode, width, signed)[0]) == wanted
    nan = int(fn.to_integer(np.array([math.nan]), mode, width, signed)[0])
    assert nan % (1 << 64) == (1 << 63 if width == 64 else 0)


def test_words_and_their_parts() -> None:
    words = np.array([0x3C00_4000, 0x3F80_C020], U32)
    assert fn.halves(words, "f16").tolist() == [[2.0, 1.0], [-2.0625, 1.875]]
    assert fn.halves(words, "bf16").tolist() == [[2.0, 0.0078125], [-2.5, 1.0]]
    assert fn.octets(np.array([0x1234, 0xFF00], U16)).tolist() == [[0x34, 0x12], [0, 0xFF]]
    assert fn.join(np.array([[1, 2], [0xFFFF, 0]], U16)).tolist() == [0x20001, 0xFFFF]
    whole = np.arange(4)
    assert fn.spread(whole, 4) is whole
    assert fn.spread(5, 3).tolist() == [5, 5, 5]
    assert fn.spread(np.array([5]), 3).tolist() == [5, 5, 5]


# Formats -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", sorted(formats.SMALL))
def test_every_code_of_a_small_format_by_its_definition(name: str) -> None:
    form = formats.SMALL[name]
    table = formats.table(name)
    assert bits(formats.decode(np.arange(256), name)) == bits(table)
    width = form.exponent + form.mantissa
    for code in range(256):
        low = code & ((1 << width) - 1)
        negative = form.signed and code >> width & 1
        beyond = not form.signed and code >> width
        exponent, fraction = low >> form.mantissa, low & ((1 << form.mantissa) - 1)
        bias = (1 << form.exponent - 1) - 1
        if beyond or low == form.nan:
            assert np.isnan(table[code]), code
            continue
        if form.infinity and exponent == (1 << form.exponent) - 1:
            wanted = math.inf if fraction == 0 else math.nan
        elif name == "ue8m0":
            wanted = 2.0 ** (code - 127)
        elif exponent == 0:
            wanted = fraction * 2.0 ** (1 - bias - form.mantissa)
        else:
            wanted = (1 + fraction / (1 << form.mantissa)) * 2.0 ** (exponent - bias)
        wanted = -wanted if negative else wanted
        assert bits([table[code]]) == bits([wanted]), code


@pytest.mark.parametrize("name", sorted(set(formats.SMALL) - {"ue8m0"}))
def test_values_become_the_nearest_code(name: str) -> None:
    """Each value itself, what lies between two, and what lies beyond all."""
    form, table = formats.SMALL[name], formats.table(name)
    width = form.exponent + form.mantissa
    finite = [c for c in range(1 << width) if np.isfinite(table[c])]
    for c, d in itertools.pairwise(finite):
        a, b = float(table[c]), float(table[d])
        middle = (a + b) / 2
        even = c if c % 2 == 0 else d
        for x, wanted in ((a, c), (b, d), (middle, even), (np.nextafter(middle, 0), c),
                          (np.nextafter(middle, 1e9), d)):  # fmt: skip
            assert formats.encode(np.array([x]), name).tolist() == [wanted]
            if form.signed:
                sign = 1 << width
                assert formats.encode(np.array([-x]), name).tolist() == [wanted | sign]
    last = finite[-1]
    nan = last if form.nan is None else form.nan
    assert formats.encode(np.array([1e9, math.inf, math.nan]), name).tolist() == [last, last, nan]
    assert formats.encode(np.array([math.copysign(math.nan, -1)]), name).tolist() == [nan]


@pytest.mark.parametrize("saturate", [False, True])
@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_scales_of_every_power_of_two(mode: str, saturate: bool) -> None:
    over = 254 if saturate else 255
    for k in range(-149, 128):
        for x, up in ((2.0**k, 0), (2.0**k * 1.5, 1)):
            code = k + 127 + (up if mode == "rp" else 0)
            wanted = over if code > 254 else max(code, 0)
            for sign in (1, -1):
                got = formats.encode_scale(np.array([sign * x]), mode, saturate)
                assert got.tolist() == [wanted], (k, x)
    found = formats.encode_scale(np.array([0.0, math.inf, math.nan]), mode, saturate)
    assert found.tolist() == [0, over, 255]


@given(st.integers(0, WORD))
@example(0x7F800000)
@example(0x7F800001)
@example(0x3F808000)
@example(0x3F818000)
@example(0x7F7FFFFF)
@example(0xFFFFFFFF)
def test_floats_become_bfloat16_and_tf32(code: int) -> None:
    x = np.array([code], U32).view(F32)
    value = float(x[0])
    for mode in ("rn", "rz"):
        got = int(formats.to_bf16(x, mode)[0])
        if math.isnan(value):
            assert got == 0x7FFF
        elif mode == "rz" or math.isinf(value) or value == 0:
            assert got == code >> 16
        else:
            said = float(formats.from_bf16(np.array([got], U16))[0])
            assert said == rounded(Fraction(value), SHAPES["bf16"])
    for mode in ("rna", "rn", "rz"):
        got = int(formats.to_tf32(x, mode)[0])
        if not math.isfinite(value):
            assert got == code
            continue
        size, kept = code & 0x7FFFFFFF, code & 0x1FFF
        down = size - kept
        tie = kept == 0x1000 and (mode == "rna" or down >> 13 & 1)
        up = mode != "rz" and (kept > 0x1000 or tie)
        assert got == (code & 0x80000000) | (down + (0x2000 if up else 0))
