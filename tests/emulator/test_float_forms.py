# ruff: noqa: E501  # A PTX statement stays on its line.
"""Forms of floats that ``test_forms`` leaves out, against exact rationals and the bounds of the ISA.

Packed halves, quotients and roots, minima, comparisons, packed conversions to all small formats,
products with a third term in double precision over the whole range, and approximations.
"""

from __future__ import annotations

import math
import zlib
from bisect import bisect_right
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from tests.emulator.snippets import evaluate
from tests.emulator.test_forms import (
    CODES,
    FLOATS,
    FORMS,
    decoded,
    encoded,
    expected,
    flushed,
)

N = 128
HALVES = {"f16x2": "f16", "bf16x2": "bf16", "f32x2": "f32"}
#: Bits of exponent and fraction, the bias, and the first code that is no number.
SMALL = {"e4m3": (4, 3, 7, 0x7F), "e5m2": (5, 2, 15, 0x7C), "e2m3": (2, 3, 1, 32), "e3m2": (3, 2, 3, 32), "e2m1": (2, 1, 1, 8)}  # fmt: skip
ARITY = {"fma": 3, "mad": 3, "abs": 1, "neg": 1, "rcp": 1, "sqrt": 1}
Code = int | None


def opcodes(*names: str) -> list[str]:
    """Every opcode of these forms that is run."""
    chosen = [f for f in FORMS if f.name in names and f.status == "run"]
    return sorted({op for f in chosen for op in f.opcodes()})


def width(kind: str) -> int:
    exponent_bits, fraction_bits = FLOATS[kind]
    return 1 + exponent_bits + fraction_bits


def codes(kind: str, seed: str, n: int = N) -> np.ndarray:
    """Random codes: of any exponent, of exponents that meet, and those at the edges."""
    random = np.random.default_rng(zlib.crc32(seed.encode()))
    exponent_bits, fraction_bits = FLOATS[kind]
    bits = width(kind)
    top, bias = (1 << exponent_bits) - 1, (1 << exponent_bits - 1) - 1
    code = random.integers(0, 1 << bits - 1, n, dtype=np.uint64)
    code |= random.integers(0, 2, n).astype(np.uint64) << np.uint64(bits - 1)
    near = random.integers(bias - 6, bias + 8, n).astype(np.uint64) << np.uint64(fraction_bits)
    kept = code & np.uint64(1 << bits - 1 | (1 << fraction_bits) - 1)
    code = np.where(random.random(n) < 0.5, kept | near, code)
    sign = 1 << bits - 1
    edges = [
        0,
        1,
        (1 << fraction_bits) - 1,
        1 << fraction_bits,
        bias << fraction_bits,
        top << fraction_bits,
        (top << fraction_bits) - 1,
    ]
    every = np.array([*edges, *(e | sign for e in edges), (top << fraction_bits) + (1 << fraction_bits - 1)], np.uint64)  # fmt: skip
    return np.where(random.random(n) < 0.2, random.choice(every, n), code).astype(CODES[kind])


def is_nan(code: int, kind: str) -> bool:
    return decoded(code, kind)[0] == "nan"


def order(code: int, kind: str) -> tuple[int, Fraction, bool]:
    """A key by which numbers are sorted; -0 is below +0."""
    value, sign = decoded(code, kind)
    if isinstance(value, str):
        return (-1 if sign else 1), Fraction(0), not sign
    return 0, value, not sign


def quotient(a: int, b: int, kind: str, mode: str) -> Code:
    (x, s), (y, t) = decoded(a, kind), decoded(b, kind)
    sign = s != t
    if "nan" in (x, y) or x == y == "inf" or x == y == 0:
        return None
    zero = int(sign) << width(kind) - 1
    exponent_bits, fraction_bits = FLOATS[kind]
    if x == "inf" or y == 0:
        return zero | (1 << exponent_bits) - 1 << fraction_bits
    if y == "inf" or x == 0:
        return zero
    return encoded(Fraction(x) / Fraction(y), kind, mode, sign)


def root(code: int, kind: str, mode: str) -> Code:
    value, sign = decoded(code, kind)
    if value == 0 or (value == "inf" and not sign):
        return code
    if isinstance(value, str) or sign:
        return None
    scaled = value * (1 << 1400)  # More bits than any result has; a half more says "inexact".
    low = math.isqrt(scaled.numerator // scaled.denominator)
    exact = Fraction(low) if low * low == scaled else Fraction(2 * low + 1, 2)
    return encoded(exact / (1 << 700), kind, mode, False)


def smallest(name: str, a: int, b: int, kind: str, nan: bool) -> Code:
    numbers = [c for c in (a, b) if not is_nan(c, kind)]
    if not numbers or (nan and len(numbers) < 2):
        return None
    return (min if name == "min" else max)(numbers, key=lambda c: order(c, kind))


def one(name: str, parts: list[str], kind: str, terms: list[int]) -> Code:
    """What an instruction gives of one element; None for NaN."""
    mode = next((p for p in parts if p in ("rz", "rm", "rp")), "rn")
    ftz = "ftz" in parts
    terms = [flushed(c, kind) for c in terms] if ftz else terms
    top = 1 << width(kind) - 1
    match name:
        case "min" | "max":
            return smallest(name, terms[0], terms[1], kind, "NaN" in parts)
        case "abs" | "neg":
            code = terms[0] & ~top if name == "abs" else terms[0] ^ top
            return None if is_nan(code, kind) else code
        case "div" | "rcp" | "sqrt":
            unit = encoded(Fraction(1), kind, "rn", False)
            a, b = terms if name == "div" else (unit, terms[0])
            out = root(b, kind, mode) if name == "sqrt" else quotient(a, b, kind, mode)
            return flushed(out, kind) if ftz and out is not None else out
    kinds = [kind] * (len(terms) + 1)
    return expected("fma" if name == "mad" else name, mode, kinds, terms, set(parts))


def agree(got: int, wanted: Code, kind: str, said: object) -> None:
    if wanted is None:
        assert is_nan(got, kind), (said, hex(got))
    else:
        assert got == wanted, (said, hex(got), hex(wanted))


EXACT = [
    op
    for op in opcodes("add", "sub", "mul", "fma", "mad", "min", "max", "abs", "neg", "div", "rcp", "sqrt")
    if not {"approx", "full"} & set(op.split("."))
    and (op.split(".")[-1] in HALVES or op.split(".")[-1] in FLOATS)
    and op.split(".")[-2] != "f32"
]  # fmt: skip


@pytest.mark.sampled(3)
@pytest.mark.parametrize("op", EXACT)
def test_elements_against_exact_rationals(op: str) -> None:
    name, *parts = op.split(".")
    packed, kind = parts[-1] in HALVES, HALVES.get(parts[-1], parts[-1])
    count, each = ARITY.get(name, 2), 2 if packed else 1
    inputs = [codes(kind, f"{op} {i}", each * N) for i in range(count)]
    words = [x.view(np.dtype(f"u{each * x.itemsize}")) for x in inputs]
    text = f"{op} %o, {', '.join(f'%i{i}' for i in range(count))};"
    out = evaluate(text, words, words[0].dtype.type).view(inputs[0].dtype)
    for got, *terms in zip(out.tolist(), *(x.tolist() for x in inputs), strict=True):
        agree(got, one(name, parts, kind, terms), kind, (op, [hex(c) for c in terms]))


@pytest.mark.parametrize("op", ["fma.rn.f64", "mad.rn.f64"])
def test_products_in_double_lose_nothing(op: str) -> None:
    """Over the whole range, with terms that cancel, ties, and results below the least normal."""
    random = np.random.default_rng(7)
    n = 1000

    def numbers(low: int, high: int) -> np.ndarray:
        whole = random.integers(1, 1 << 53, n).astype(np.float64)
        return np.ldexp(whole * random.choice([-1, 1], n), random.integers(low, high, n))

    a, b = numbers(-1074, 970), numbers(-60, 0)
    with np.errstate(all="ignore"):
        c = np.where(random.random(n) < 0.5, -a * b, numbers(-1074, 970))
        c[::5] = (a * b * 2.0 ** random.integers(-54, 55, n))[::5]
    a[:4], b[:4], c[:4] = [-1e-300, 1e-300, 2.0**1023, 3e300], [1e-300, -0.0, 1.5, 2.0], [-0.0, -0.0, -(2.0**1023), -np.inf]  # fmt: skip
    inputs = [x.view(np.uint64) for x in (a, b, c)]
    out = evaluate(f"{op} %o, %i0, %i1, %i2;", inputs, np.uint64)
    for got, *terms in zip(out.tolist(), *(x.tolist() for x in inputs), strict=True):
        agree(got, one("fma", ["rn"], "f64", terms), "f64", [hex(x) for x in terms])


# Comparisons ---------------------------------------------------------------------------------
TESTS: dict[str, Callable[[tuple[int, Fraction], tuple[int, Fraction]], bool]] = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip


def compared(test: str, a: int, b: int, kind: str) -> bool:
    unordered = is_nan(a, kind) or is_nan(b, kind)
    if test in ("num", "nan"):
        return unordered == (test == "nan")
    if unordered:
        return test.endswith("u")
    return TESTS[test.removesuffix("u")](order(a, kind)[:2], order(b, kind)[:2])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("op", [op for op in opcodes("setp") if op.split(".")[-1] in FLOATS])
def test_comparisons(op: str) -> None:
    _, *parts = op.split(".")
    kind, join = parts[-1], next((p for p in parts if p in ("and", "or", "xor")), None)
    a, b = (codes(kind, f"{op} {i}") for i in range(2))
    b[::3] = a[::3]
    third = (np.arange(N, dtype=np.uint32) >> 2) & 1
    body = f"setp.ne.u32 %p3, %i2, 0; {op} %p1|%p2, %i0, %i1{', !%p3' if join else ''};"
    body += "selp.u32 %o, 1, 0, %p1; selp.u32 %r1, 2, 0, %p2; or.b32 %o, %o, %r1;"
    out = evaluate(body, [a, b, third], np.uint32)
    how = {"and": lambda x, y: x and y, "or": lambda x, y: x or y, "xor": lambda x, y: x != y}
    for got, x, y, z in zip(out.tolist(), a.tolist(), b.tolist(), third.tolist(), strict=True):
        x, y = (flushed(c, kind) if "ftz" in parts else c for c in (x, y))
        result = compared(parts[0], x, y, kind)
        both = [result, not result]
        both = [how[join](v, not z) for v in both] if join else both
        assert got == both[0] + 2 * both[1], (op, hex(x), hex(y), z)


# Packed conversions --------------------------------------------------------------------------
@cache
def sizes(form: str) -> list[Fraction]:
    """The magnitudes of a small format, by code."""
    _, fraction_bits, bias, end = SMALL[form]
    out = []
    for code in range(end):
        exponent, fraction = code >> fraction_bits, code & (1 << fraction_bits) - 1
        whole = fraction + (bool(exponent) << fraction_bits)
        out.append(Fraction(whole) * Fraction(2) ** (max(exponent, 1) - bias - fraction_bits))
    return out


def narrowed(code: int, kind: str, form: str, relu: bool) -> int:
    """The nearest code, ties to even, at most the largest number."""
    exponent_bits, fraction_bits, _, _ = SMALL[form]
    value, sign = decoded(code, kind)
    every = sizes(form)
    if value == "nan":
        return 0x7F if form in ("e4m3", "e5m2") else len(every) - 1
    if relu and sign:
        return 0
    size = every[-1] if value == "inf" else abs(Fraction(value))
    low = min(bisect_right(every, size), len(every)) - 1
    if low + 1 < len(every):
        below, above = size - every[low], every[low + 1] - size
        low += above < below or (above == below and low & 1)
    return low | sign << exponent_bits + fraction_bits


def pair(op: str, parts: list[str], high: int, low: int) -> list[Code]:
    """What a conversion of two numbers of single precision gives, the lower one first."""
    to, relu = parts[-2].removesuffix("x2"), "relu" in parts
    mode = next((p for p in parts if p in ("rz", "rp")), "rn")
    if to in SMALL:
        return [narrowed(c, "f32", to, relu) for c in (low, high)]
    out: list[Code] = []
    for code in (low, high):
        value, sign = decoded(code, "f32")
        top = (1 << FLOATS[to][0]) - 1 << FLOATS[to][1]
        if value == "nan":
            out.append(None)
        elif relu and sign:
            out.append(0)
        else:
            infinite = top | sign << width(to) - 1
            out.append(infinite if isinstance(value, str) else encoded(value, to, mode, sign))
    return out


PAIRS = [op for op in opcodes("cvt") if op.endswith("x2.f32") and "ue8m0" not in op and "e2m1" not in op]  # fmt: skip


@pytest.mark.parametrize("op", PAIRS)
def test_pairs_are_rounded_once(op: str) -> None:
    parts = op.split(".")[1:]
    to = parts[-2].removesuffix("x2")
    a, b = (codes("f32", f"{op} {i}") for i in range(2))
    if to in SMALL:  # Numbers within its range, and ties.
        grid = np.array([float(x) for x in sizes(to)] * 2)
        ties = ((grid[:-1] + grid[1:]) / 2).astype(np.float32)
        a[: len(ties)][:N] = ties[:N].view(np.uint32)
        b[::2] = np.random.default_rng(1).choice(ties, N // 2).view(np.uint32) ^ (1 << 31)
    bits = 8 if to in SMALL else 16
    word = np.uint16 if to in SMALL else np.uint32
    out = evaluate(f"{op} %o, %i0, %i1;", [a, b], word)
    for got, x, y in zip(out.tolist(), a.tolist(), b.tolist(), strict=True):
        halves = [got & (1 << bits) - 1, got >> bits]
        for half, wanted in zip(halves, pair(op, parts, x, y), strict=True):
            if to in SMALL:
                assert half == wanted, (op, hex(x), hex(y), hex(got))
            else:
                agree(half, wanted, to, (op, hex(x), hex(y)))


@pytest.mark.parametrize("op", [op for op in opcodes("cvt") if ".tf32." in op])
def test_tf32_keeps_ten_bits_of_the_fraction(op: str) -> None:
    parts = op.split(".")[1:]
    code = codes("f32", op)
    code[::2] = code[::2] & ~np.uint32(0xFFF)  # Ties among them.
    out = evaluate(f"{op} %o, %i0;", [code], np.uint32)
    for got, x in zip(out.tolist(), code.tolist(), strict=True):
        value, sign = decoded(x, "f32")
        if value == "nan":
            assert is_nan(got, "f32")
            continue
        low, up = x & 0x1FFF, x & ~0x1FFF
        away = {"rna": low >= 0x1000, "rz": False, "rn": low > 0x1000 or (low == 0x1000 and up >> 13 & 1)}[parts[0]]  # fmt: skip
        wanted = 0 if "relu" in parts and sign else x if value == "inf" else up + 0x2000 * away
        assert got == wanted, (op, hex(x), hex(got), hex(wanted))


# Approximations ------------------------------------------------------------------------------
#: By opcode: the function, its relative error, and what is allowed beside it.
BOUNDS: dict[str, tuple[Callable[..., np.ndarray], float, float]] = {
    "rcp.approx": (lambda a: 1 / a, 2.0**-23, 0),
    "rsqrt.approx": (lambda a: 1 / np.sqrt(a), 2.0**-22.9, 0),
    "sqrt.approx": (np.sqrt, 2.0**-23, 0),
    "lg2.approx": (np.log2, 2.0**-22, 2.0**-22),
    "ex2.approx": (np.exp2, 2.0**-22, 0),
    "sin.approx": (np.sin, 0, 2.0**-20.5),
    "cos.approx": (np.cos, 0, 2.0**-20.5),
    "div.full": (lambda a, b: a / b, 2.0**-22, 0),
    "div.approx": (lambda a, b: np.where((abs(b) > 2.0**126) & np.isfinite(b), a * 0, a / b), 2.0**-22, 0),
}  # fmt: skip


@pytest.mark.parametrize("ftz", ["", ".ftz"])
@pytest.mark.parametrize("name", BOUNDS)
def test_approximations_keep_the_bounds_of_the_isa(name: str, ftz: str) -> None:
    function, relative, absolute = BOUNDS[name]
    random = np.random.default_rng(zlib.crc32(name.encode()))
    n = 1000
    edges = np.array([0, -0.0, np.inf, -np.inf, np.nan, 1, -1, 1e-45, 1e-39, 3e38, 2.0**126, 2.0**127], np.float32)  # fmt: skip
    inputs = []
    for _ in range(1 + name.startswith("div")):
        if name[:3] in ("sin", "cos"):
            x = random.uniform(-np.pi, np.pi, n).astype(np.float32)
            x[:5] = edges[:5]
        else:
            span = (-8, 8) if name.startswith("ex2") else (-126, 128)
            x = np.ldexp(random.uniform(1, 2, n), random.integers(*span, n)).astype(np.float32)
            x *= random.choice(np.array([-1, 1], np.float32), n)
            x[: n // 4] = random.choice(edges, n // 4)
        inputs.append(x)
    text = f"{name}{ftz}.f32 %o, {', '.join(f'%i{i}' for i in range(len(inputs)))};"
    got = evaluate(text, [x.view(np.uint32) for x in inputs], np.uint32).view(np.float32)
    tiny = np.float32(2.0**-126)
    if ftz:
        inputs = [np.where(np.abs(x) < tiny, np.copysign(np.float32(0), x), x) for x in inputs]
    with np.errstate(all="ignore"):
        want = function(*(x.astype(np.longdouble) for x in inputs))
        allowed = np.abs(want) * relative + absolute + (tiny if ftz else 2.0**-148)
        near = np.abs(got - want) <= allowed
        over = (np.abs(want) >= 3.4028e38) & (np.abs(got) >= 3.4028e38) & (got * want > 0)
        right = (np.isnan(want) & np.isnan(got)) | near | over
    assert right.all(), (name, [x[~right][:3] for x in inputs], got[~right][:3], want[~right][:3])
