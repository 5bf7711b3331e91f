# ruff: noqa: E501  # A PTX statement stays on its line.
"""Instructions of one thread against Python's own arithmetic, exact to the last bit."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mla_var3.emulator import formats, launch
from tests.emulator.snippets import evaluate

N = 64
U32 = arrays(np.uint32, N, elements=st.integers(0, 2**32 - 1))
U64 = arrays(np.uint64, N, elements=st.integers(0, 2**64 - 1))
F32 = U32.map(lambda x: x.view(np.float32))
MASK = 2**32 - 1


def signed(x: int, width: int = 32) -> int:
    return x - (1 << width) if x >> (width - 1) else x


def funnel(a: int, b: int, c: int) -> int:
    return ((((b << 32) | a) << (c & 31)) >> 32) & MASK


def bfe(a: int, b: int, c: int) -> int:
    start, length = b & 255, c & 255
    return (a >> start) & ((1 << length) - 1) if start < 32 else 0


def bfi(a: int, b: int, c: int) -> int:
    start, length = c & 31, (c >> 8) & 31
    mask = (((1 << length) - 1) << start) & MASK
    return (b & ~mask) | ((a << start) & mask)


def nth_set(mask: int, base: int, n: int) -> int:
    """``fns``, as the PTX ISA spells it."""
    if n == 0:
        return base if mask >> base & 1 else -1
    place, left = base, abs(n)
    while 0 <= place < 32:
        left -= mask >> place & 1
        if mask >> place & 1 and left == 0:
            return place
        place += 1 if n > 0 else -1
    return -1


INTEGER = {
    "add.u32 %o, %i0, %i1;": lambda a, b, c: a + b,
    "sub.s32 %o, %i0, %i1;": lambda a, b, c: a - b,
    "mul.lo.u32 %o, %i0, %i1;": lambda a, b, c: a * b,
    "mul.hi.u32 %o, %i0, %i1;": lambda a, b, c: a * b >> 32,
    "mul.hi.s32 %o, %i0, %i1;": lambda a, b, c: signed(a) * signed(b) >> 32,
    "mad.lo.s32 %o, %i0, %i1, %i2;": lambda a, b, c: a * b + c,
    "mad.hi.u32 %o, %i0, %i1, %i2;": lambda a, b, c: (a * b >> 32) + c,
    "min.s32 %o, %i0, %i1;": lambda a, b, c: min(signed(a), signed(b)),
    "max.u32 %o, %i0, %i1;": lambda a, b, c: max(a, b),
    "and.b32 %o, %i0, %i1;": lambda a, b, c: a & b,
    "not.b32 %o, %i0;": lambda a, b, c: ~a,
    "shl.b32 %o, %i0, %i1;": lambda a, b, c: a << b if b < 32 else 0,
    "shr.u32 %o, %i0, %i1;": lambda a, b, c: a >> b if b < 32 else 0,
    "shr.s32 %o, %i0, %i1;": lambda a, b, c: signed(a) >> min(b, 31),
    "and.b32 %r1, %i1, 31; shl.b32 %o, %i0, %r1;": lambda a, b, c: a << (b & 31),
    "shf.l.wrap.b32 %o, %i0, %i1, %i2;": funnel,
    "lop3.b32 %o, %i0, %i1, %i2, 0xE8;": lambda a, b, c: (a & b) | (a & c) | (b & c),
    "lop3.b32 %o, %i0, %i1, %i2, 150;": lambda a, b, c: a ^ b ^ c,
    "popc.b32 %o, %i0;": lambda a, b, c: a.bit_count(),
    "clz.b32 %o, %i0;": lambda a, b, c: 32 - a.bit_length(),
    "brev.b32 %o, %i0;": lambda a, b, c: int(f"{a:032b}"[::-1], 2),
    "bfind.u32 %o, %i0;": lambda a, b, c: a.bit_length() - 1,
    "and.b32 %r1, %i1, 31; fns.b32 %o, %i0, %r1, 1;": lambda a, b, c: nth_set(a, b & 31, 1),
    "and.b32 %r1, %i1, 31; fns.b32 %o, %i0, %r1, -3;": lambda a, b, c: nth_set(a, b & 31, -3),
    "and.b32 %r1, %i1, 31; fns.b32 %o, %i0, %r1, 0;": lambda a, b, c: nth_set(a, b & 31, 0),
    "and.b32 %r1, %i1, 31; fns.b32 %o, %i0, %r1, %i2;": lambda a, b, c: nth_set(
        a, b & 31, signed(c)
    ),
    "bfe.u32 %o, %i0, %i1, %i2;": bfe,
    "and.b32 %r1, %i2, 31; shr.u32 %r2, %i2, 8; and.b32 %r2, %r2, 31; bfi.b32 %o, %i0, %i1, %r1, %r2;": bfi,
    "prmt.b32 %o, %i0, %i1, 0x6240;": lambda a, b, c: (
        a & 255 | (b & 255) << 8 & 0 | ((a >> 0) & 0) | permuted(a, b, 0x6240)
    ),
    "abs.s32 %o, %i0;": lambda a, b, c: abs(signed(a)),
    "neg.s32 %o, %i0;": lambda a, b, c: -a,
    "cnot.b32 %o, %i0;": lambda a, b, c: int(a == 0),
    "setp.lt.s32 %p1, %i0, %i1; selp.b32 %o, %i1, %i2, %p1;": lambda a, b, c: (
        b if signed(a) < signed(b) else c
    ),
    "setp.hs.u32 %p1, %i0, %i1; mov.u32 %o, 7; @%p1 mov.u32 %o, %i2;": lambda a, b, c: (
        c if a >= b else 7
    ),
    "sad.u32 %o, %i0, %i1, %i2;": lambda a, b, c: abs(a - b) + c,
    "dp4a.s32.s32 %o, %i0, %i1, %i2;": lambda a, b, c: (
        c + sum(signed(a >> s & 255, 8) * signed(b >> s & 255, 8) for s in (0, 8, 16, 24))
    ),
    "mul.wide.u16 %o, %h1, %h2;": None,
    "add.cc.u32 %r1, %i0, %i1; addc.u32 %o, %i2, 0;": lambda a, b, c: c + (a + b >> 32),
    "sub.cc.u32 %r1, %i0, %i1; subc.u32 %o, %i2, 0;": lambda a, b, c: c - (a < b),
}
del INTEGER["mul.wide.u16 %o, %h1, %h2;"]


def permuted(a: int, b: int, selector: int) -> int:
    both = b << 32 | a
    out = 0
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = both >> 8 * (nibble & 7) & 255
        out |= (
            (255 if byte >> 7 else 0 if nibble & 8 else byte) << 8 * i
            if nibble & 8
            else byte << 8 * i
        )
    return out


@pytest.mark.parametrize("body", INTEGER)
@settings(max_examples=3, deadline=None)
@given(U32, U32, U32)
def test_integers(body: str, a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    b[: N // 2] &= 63  # Half of the shifts and fields are within reason.
    c[: N // 2] &= 63
    out = evaluate(body, [a, b, c], np.uint32)
    expected = [INTEGER[body](*map(int, x)) & MASK for x in zip(a, b, c, strict=True)]
    assert out.tolist() == expected


@settings(max_examples=5, deadline=None)
@given(U64, U64)
def test_wide_products(a: np.ndarray, b: np.ndarray) -> None:
    out = evaluate("mul.hi.u64 %o, %i0, %i1;", [a, b], np.uint64)
    assert out.tolist() == [int(x) * int(y) >> 64 for x, y in zip(a, b, strict=True)]
    out = evaluate("mul.hi.s64 %o, %i0, %i1;", [a, b], np.uint64)
    exact = [signed(int(x), 64) * signed(int(y), 64) >> 64 for x, y in zip(a, b, strict=True)]
    assert out.tolist() == [x & 2**64 - 1 for x in exact]


@settings(max_examples=5, deadline=None)
@given(U32, U32)
def test_division_rounds_toward_zero(a: np.ndarray, b: np.ndarray) -> None:
    b |= np.uint32(1)
    quotient = evaluate("div.s32 %o, %i0, %i1;", [a, b], np.int32)
    rest = evaluate("rem.s32 %o, %i0, %i1;", [a, b], np.int32)
    for x, y, q, r in zip(a.view(np.int32), b.view(np.int32), quotient, rest, strict=True):
        exact = abs(int(x)) // abs(int(y)) * (1 if (x < 0) == (y < 0) else -1)
        if exact < 2**31:
            assert int(q) == exact
            assert int(q) * int(y) + int(r) == int(x)


def nearest(exact: Fraction) -> np.float32:
    """float32 nearest to an exact value, ties to even, by comparing neighbors exactly."""
    guess = np.float32(float(exact))
    around = [np.nextafter(guess, np.float32(s * np.inf)) for s in (-1, 1)]
    finite = [x for x in [guess, *around] if np.isfinite(x)]
    if not finite:
        return guess
    best = min(finite, key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.uint32)) & 1))
    return best


@settings(max_examples=10, deadline=None)
@given(F32, F32, F32)
def test_fma_rounds_once(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    out = evaluate("fma.rn.f32 %o, %i0, %i1, %i2;", [a, b, c], np.float32)
    for x, y, z, got in zip(a, b, c, out, strict=True):
        if np.isfinite([x, y, z, got]).all():
            exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
            if exact:
                assert got == nearest(exact)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize(
    ("a", "b", "c"),
    [
        (1 + 2**-12, 1 - 2**-12 + 2**-24, 1.0),  # 1 + 2**-24 + 2**-60
        (1 + 2**-20, 1 - 2**-20, 1 + 2**-23),  # 1 + 3 * 2**-24 - 2**-64
    ],
)
def test_fma_of_a_double_rounding(a: float, b: float, c: float, sign: int) -> None:
    """Rounding to float64 first would lose the last term, and tie to even."""
    a, b, c = (np.array([v] * N, np.float32) for v in (a * 2.0**-24, sign * b, sign * c))
    exact = Fraction(float(a[0])) * Fraction(float(b[0])) + Fraction(float(c[0]))
    assert nearest(exact) != np.float32(float(exact))
    out = evaluate("fma.rn.f32 %o, %i0, %i1, %i2;", [a, b, c], np.float32)
    assert out[0] == nearest(exact)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@settings(max_examples=5, deadline=None)
@given(F32, F32)
def test_directed_sums(mode: str, a: np.ndarray, b: np.ndarray) -> None:
    out = evaluate(f"add.{mode}.f32 %o, %i0, %i1;", [a, b], np.float32)
    for x, y, got in zip(a, b, out, strict=True):
        if np.isfinite([x, y, got]).all():
            exact, value = Fraction(float(x)) + Fraction(float(y)), Fraction(float(got))
            below, above = value <= exact, value >= exact
            assert {"rm": below, "rp": above, "rz": below if exact >= 0 else above}[mode]
            step = Fraction(float(np.spacing(np.abs(got))))
            assert abs(value - exact) < max(step, Fraction(2) ** -149) * 2


@settings(max_examples=10, deadline=None)
@given(F32)
def test_to_integers_clamps(a: np.ndarray) -> None:
    for mode, way in (("rni", np.rint), ("rzi", np.trunc), ("rmi", np.floor), ("rpi", np.ceil)):
        out = evaluate(f"cvt.{mode}.s32.f32 %o, %i0;", [a], np.int32)
        for x, got in zip(a, out, strict=True):
            exact = 0 if np.isnan(x) else float(np.clip(way(np.float64(x)), -(2**31), 2**31 - 1))
            assert int(got) == exact


@settings(max_examples=10, deadline=None)
@given(F32, F32)
def test_to_bfloat16(a: np.ndarray, b: np.ndarray) -> None:
    import torch

    out = evaluate("cvt.rn.bf16x2.f32 %o, %i0, %i1;", [a, b], np.uint32)
    for values, codes in ((a, out >> 16), (b, out & 0xFFFF)):
        expected = (
            torch.from_numpy(values).to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16)
        )
        numbers = ~np.isnan(values)
        assert (codes[numbers] == expected[numbers]).all()
        assert (codes[~numbers] == 0x7FFF).all()


@pytest.mark.parametrize("form", ["e4m3", "e5m2"])
@settings(max_examples=10, deadline=None)
@given(F32)
def test_to_eight_bits(form: str, a: np.ndarray) -> None:
    import torch

    kind = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2}[form]
    top = {"e4m3": 448.0, "e5m2": 57344.0}[form]
    a = np.where(np.isnan(a), np.float32(1), a)
    out = evaluate(
        f"cvt.rn.satfinite.{form}x2.f32 %h1, %i0, %i0; cvt.u32.u16 %o, %h1;", [a], np.uint32
    )
    expected = torch.from_numpy(np.clip(a, -top, top)).to(kind).view(torch.uint8).numpy()
    assert ((out & 255) == expected).all()
    assert ((out >> 8) == expected).all()


@pytest.mark.parametrize("form", formats.SMALL)
def test_small_formats_survive_a_round_trip(form: str) -> None:
    width = formats.SMALL[form].exponent + formats.SMALL[form].mantissa + formats.SMALL[form].signed
    codes = np.arange(1 << width).astype(np.uint8)
    values = formats.decode(codes, form)
    numbers = np.isfinite(values)
    assert (formats.encode(values[numbers], form) == codes[numbers]).all()


def test_minimum_and_maximum_of_zeros_and_nans() -> None:
    zero, minus, nan = np.float32(0), np.float32(-0.0), np.float32(np.nan)
    a = np.array([zero, minus, nan, nan, 1], np.float32)
    b = np.array([minus, zero, 2, nan, nan], np.float32)
    low = evaluate("min.f32 %o, %i0, %i1;", [a, b], np.float32)
    high = evaluate("max.f32 %o, %i0, %i1;", [a, b], np.float32)
    assert np.signbit(low[:2]).all()
    assert not np.signbit(high[:2]).any()
    assert low[2] == high[2] == 2
    assert np.isnan(low[3])
    assert low[4] == high[4] == 1
    assert np.isnan(evaluate("max.NaN.f32 %o, %i0, %i1;", [a, b], np.float32)[2:]).all()


def test_packed_halves() -> None:
    a = np.random.default_rng(0).standard_normal((N, 2)).astype(np.float16)
    b = np.random.default_rng(1).standard_normal((N, 2)).astype(np.float16)
    words = [x.view(np.uint32).reshape(-1) for x in (a, b)]
    out = evaluate("add.f16x2 %o, %i0, %i1;", words, np.uint32).view(np.float16).reshape(N, 2)
    assert (out == a + b).all()
    out = (
        evaluate("fma.rn.f16x2 %o, %i0, %i1, %i0;", words, np.uint32).view(np.float16).reshape(N, 2)
    )
    assert (out == (a.astype("f8") * b + a).astype(np.float16)).all()


def test_narrow_registers_keep_their_sign() -> None:
    a = np.arange(-32, 32, dtype=np.int32)
    out = evaluate("cvt.s8.s32 %h1, %i0; cvt.s32.s8 %o, %h1;", [a], np.int32)
    assert (out == a).all()
    out = evaluate("mov.b32 {%h1, %h2}, %i0; mov.b32 %o, {%h2, %h1};", [a], np.uint32)
    assert (out == ((a.view(np.uint32) >> 16) | (a.view(np.uint32) << 16))).all()


def test_registers_of_several_components() -> None:
    a = np.arange(N, dtype=np.uint32)
    body = (
        ".reg .v2 .b32 %v<2>; .reg .v4 .b32 abcd; mov.b32 %v0.x, %i0; add.u32 %v0.y, %i0, 7; "
        "mov.b32 abcd.z, %v0.y; mov.b32 abcd.a, 3; mov.b64 %rd1, %v0; shr.u64 %rd2, %rd1, 32; "
        "cvt.u32.u64 %r1, %rd2; mad.lo.u32 %o, abcd.b, abcd.w, %r1;"
    )
    assert (evaluate(body, [a], np.uint32) == (a + 7) * 4).all()


def test_a_vector_register_is_loaded_and_stored_whole() -> None:
    text = """.version 8.0
.target sm_90
.visible .entry k(.param .u64 a)
{
.reg .v4 .f32 %v; .reg .b64 %d;
ld.param.u64 %d, [a];
ld.global.v4.f32 %v, [%d];
add.f32 %v.y, %v.x, %v.w;
st.global.v4.f32 [%d], %v;
ret;
}
"""
    data = np.arange(1, 5, dtype=np.float32)
    assert launch(text, [data], 1, 1).diagnostics == []
    assert data.tolist() == [1, 5, 3, 4]


@pytest.mark.parametrize("kind", ["s32", "u32", "s64", "u64", "s16", "u16"])
def test_a_division_by_zero_gives_ones_and_its_remainder_the_dividend(kind: str) -> None:
    code = np.dtype(f"u{int(kind[1:]) // 8}")
    a = np.array([0, 1, 5, 1 << 14, np.iinfo(code).max, np.iinfo(code).max // 2 + 1], code)
    zero = np.zeros_like(a)
    assert (evaluate(f"div.{kind} %o, %i0, %i1;", [a, zero], code) == np.iinfo(code).max).all()
    assert evaluate(f"rem.{kind} %o, %i0, %i1;", [a, zero], code).tolist() == a.tolist()


@pytest.mark.parametrize("value", [3.0, 7.0, 1e-3, -1.7, 1e200])
def test_reciprocals_of_doubles_have_all_their_bits(value: float) -> None:
    x = np.array([value, 2.0])
    assert evaluate("rcp.rn.f64 %o, %i0;", [x], np.float64).tolist() == (1.0 / x).tolist()


@pytest.mark.parametrize("value", [1.0 + 3 * 2.0**-11, -(1.0 + 3 * 2.0**-11), 0.1, 2049.0])
def test_halves_are_rounded_as_asked(value: float) -> None:
    one = np.array([value], np.float32)
    near = np.float16(value)
    inner = near if abs(float(near)) <= abs(value) else np.nextafter(near, np.float16(0))
    for mode, expected in (("rn", near), ("rz", inner)):
        out = evaluate(f"cvt.{mode}.f16x2.f32 %o, %i0, %i0;", [one], np.uint32)
        code = int(np.array(expected, np.float16).view(np.uint16))
        assert out.tolist() == [code << 16 | code], mode


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, MASK), st.integers(0, 31), st.integers(-33, 33), st.tuples(*[st.booleans()] * 3)
)
def test_a_set_bit_is_found_whatever_is_a_constant(
    mask: int, base: int, n: int, constant: tuple[bool, ...]
) -> None:
    """Operands of ``fns`` may be numbers in the text, or registers, in any mix."""
    given_ = (mask, base, n & MASK if not constant[2] else n)
    texts = [
        str(x) if known else f"%i{i}"
        for i, (x, known) in enumerate(zip(given_, constant, strict=True))
    ]
    inputs = [np.full(4, x & MASK, np.uint32) for x in given_]
    out = evaluate(f"fns.b32 %o, {', '.join(texts)};", inputs, np.uint32)
    assert out.tolist() == [nth_set(mask, base, n) & MASK] * 4


@pytest.mark.parametrize("text", INTEGER)
def test_an_operand_may_be_a_number_in_the_text(text: str) -> None:
    """Registers and constants give the same, in any mix."""
    numbers = (0x80F00F21, 13, 0x1C05)
    inputs = [np.full(4, x, np.uint32) for x in numbers]
    wanted = evaluate(text, inputs, np.uint32).tolist()
    assert wanted == [INTEGER[text](*numbers) & MASK] * 4
    used = [i for i in range(3) if f"%i{i}" in text]
    for size in range(1, len(used) + 1):
        for chosen in itertools.combinations(used, size):
            edited = text
            for i in chosen:
                edited = edited.replace(f"%i{i}", str(signed(numbers[i])))
            assert evaluate(edited, inputs, np.uint32).tolist() == wanted, edited
