# ruff: noqa: E501  # A PTX statement stays on its line.
"""Bit fields, permutations, dot products, comparisons and packed conversions against Python."""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Callable

import numpy as np
import pytest

from mla_var3.emulator import launch
from tests.emulator.snippets import evaluate
from tests.emulator.test_mma import FLOATS, number

N = 192
MASK = {32: (1 << 32) - 1, 64: (1 << 64) - 1}
AMOUNTS = [
    0,
    1,
    7,
    8,
    15,
    16,
    24,
    31,
    32,
    33,
    40,
    63,
    64,
    65,
    100,
    127,
    128,
    200,
    255,
    256,
    257,
    288,
]


def words(op: str, *kinds: str) -> list[np.ndarray]:
    """Inputs: words of 32 or 64 bits, or amounts (``n``)."""
    random = np.random.default_rng(zlib.crc32(op.encode()))
    made = []
    for kind in kinds:
        if kind == "n":
            made.append(random.choice(AMOUNTS, N).astype(np.uint32))
            continue
        width = int(kind)
        code = np.uint32 if width == 32 else np.uint64
        few = random.integers(0, width, N).astype(code)
        x = random.integers(0, 1 << width, N, code)
        x[::3] >>= few[::3]
        x[1::9], x[2::9], x[3::9] = 0, code(MASK[width]), code(1) << code(width - 1)
        made.append(x)
    return made


def signed(x: int, width: int) -> int:
    return x - (x >> width - 1 << width)


def bfe(width: int, sign: bool) -> Callable[[int, int, int], int]:
    def field(a: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        top = min(start + length - 1, width - 1)
        fill = a >> top & 1 if sign and length else 0
        bits = (
            a >> start + i & 1 if i < length and start + i < width else fill for i in range(width)
        )
        return sum(bit << i for i, bit in enumerate(bits))

    return field


def bfi(width: int) -> Callable[[int, int, int, int], int]:
    def put(a: int, b: int, start: int, length: int) -> int:
        start, length = start & 255, length & 255
        mask = ((1 << length) - 1 << start) & MASK[width]
        return b & ~mask | a << start & mask

    return put


def bmsk(start: int, length: int, wraps: bool) -> int:
    if wraps:
        start, length = start & 31, length & 31
    return ((1 << min(length, 32)) - 1 << start) & MASK[32] if start < 32 else 0


def szext(a: int, length: int, sign: bool, wraps: bool) -> int:
    length = length & 31 if wraps else min(length, 32)
    if not length:
        return 0
    low = a & (1 << length) - 1
    return (low | (-1 << length if sign and low >> length - 1 else 0)) & MASK[32]


def shf(low: int, high: int, amount: int, side: str, wraps: bool) -> int:
    amount = amount & 31 if wraps else min(amount, 32)
    both = high << 32 | low
    return (both << amount >> 32 if side == "l" else both >> amount) & MASK[32]


#: Bytes that the modes of ``prmt`` take, by the selector's two low bits (PTX ISA, "prmt").
MODES = {
    "f4e": ("3210", "4321", "5432", "6543"), "b4e": ("5670", "6701", "7012", "0123"),
    "rc8": ("0000", "1111", "2222", "3333"), "ecl": ("3210", "3211", "3222", "3333"),
    "ecr": ("0000", "1110", "2210", "3210"), "rc16": ("1010", "3232", "1010", "3232"),
}  # fmt: skip


def prmt(a: int, b: int, selector: int, mode: str) -> int:
    source = (b << 32 | a).to_bytes(8, "little")
    if mode:
        return int.from_bytes(
            bytes(source[int(c)] for c in reversed(MODES[mode][selector & 3])), "little"
        )
    out = []
    for i in range(4):
        nibble = selector >> 4 * i & 15
        byte = source[nibble & 7]
        out.append((0xFF if byte >> 7 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def lop3(a: int, b: int, c: int, table: int) -> int:
    return sum(
        (table >> (a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1) & 1) << i for i in range(32)
    )


def dot(a: int, b: int, c: int, kinds: tuple[str, str], form: str) -> int:
    def parts(x: int, kind: str, width: int) -> list[int]:
        pieces = [x >> i & (1 << width) - 1 for i in range(0, 32, width)]
        return [signed(p, width) if kind == "s32" else p for p in pieces]

    left = parts(a, kinds[0], 8 if form == "dp4a" else 16)
    right = parts(b, kinds[1], 8)
    if form != "dp4a":
        right = right[2:] if form == "hi" else right[:2]
    return c + sum(x * y for x, y in zip(left, right, strict=True))


#: Instruction, kinds of inputs, width of the result, reference.
TABLE: dict[str, tuple[tuple[str, ...], int, Callable[..., int]]] = {
    **{f"bfe.{t}{w} %o, %i0, %i1, %i2;": ((str(w), "n", "n"), w, bfe(w, t == "s")) for t in "us" for w in (32, 64)},
    **{f"bfi.b{w} %o, %i0, %i1, %i2, %i3;": ((str(w), str(w), "n", "n"), w, bfi(w)) for w in (32, 64)},
    **{f"bmsk.{m}.b32 %o, %i0, %i1;": (("n", "n"), 32, lambda a, b, m=m: bmsk(a, b, m == "wrap")) for m in ("clamp", "wrap")},
    **{
        f"szext.{m}.{t}32 %o, %i0, %i1;": (("32", "n"), 32, lambda a, n, m=m, t=t: szext(a, n, t == "s", m == "wrap"))
        for m in ("clamp", "wrap") for t in "us"
    },
    **{
        f"shf.{s}.{m}.b32 %o, %i0, %i1, %i2;": (("32", "32", "n"), 32, lambda a, b, n, s=s, m=m: shf(a, b, n, s, m == "wrap"))
        for s in "lr" for m in ("clamp", "wrap")
    },
    **{
        f"prmt.b32{'.' * bool(m) + m} %o, %i0, %i1, %i2;": (("32", "32", "32"), 32, lambda a, b, s, m=m: prmt(a, b, s, m))
        for m in ("", *MODES)
    },
    **{
        f"lop3.b32 %o, %i0, %i1, %i2, {t};": (("32", "32", "32"), 32, lambda a, b, c, t=t: lop3(a, b, c, t))
        for t in (0, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B, 0x2D, 255)
    },
    **{
        f"setp.ne.u32 %p1, %i2, 0; lop3.{g}.b32 %r0|%p0, %i0, %i1, %i2, 0x80, %p1; selp.u32 %r1, 1, 0, %p0; xor.b32 %o, %r0, %r1;": (
            ("32", "32", "32"), 32, lambda a, b, c, g=g: a & b & c ^ (bool(a & b & c) and bool(c) if g == "and" else bool(a & b & c) or bool(c)))
        for g in ("and", "or")
    },
    **{
        f"dp4a.{x}.{y} %o, %i0, %i1, %i2;": (("32", "32", "32"), 32, lambda a, b, c, k=(x, y): dot(a, b, c, k, "dp4a"))
        for x in ("u32", "s32") for y in ("u32", "s32")
    },
    **{
        f"dp2a.{h}.{x}.{y} %o, %i0, %i1, %i2;": (("32", "32", "32"), 32, lambda a, b, c, k=(x, y), h=h: dot(a, b, c, k, h))
        for x in ("u32", "s32") for y in ("u32", "s32") for h in ("lo", "hi")
    },
    "slct.b32.s32 %o, %i0, %i1, %i2;": (("32",) * 3, 32, lambda a, b, c: a if signed(c, 32) >= 0 else b),
    "slct.u64.s32 %o, %i0, %i1, %i2;": (("64", "64", "32"), 64, lambda a, b, c: a if signed(c, 32) >= 0 else b),
    "mov.b64 {%r0, %r1}, %i0; mov.b64 %o, {%r1, %r0};": (("64",), 64, lambda a: (a & MASK[32]) << 32 | a >> 32),
    "mov.b64 {%h0, %h1, %h2, %h3}, %i0; mov.b64 %o, {%h1, %h0, %h3, %h2};": (
        ("64",), 64, lambda a: (a >> 16 & 0xFFFF0000FFFF) | (a & 0xFFFF0000FFFF) << 16),
    "mov.b64 {_, %r1}, %i0; cvt.u64.u32 %o, %r1;": (("64",), 64, lambda a: a >> 32),
    "add.cc.u32 %r0, %i0, %i1; addc.cc.u32 %r1, %i1, %i2; addc.u32 %o, %i2, %i0;": (
        ("32",) * 3, 32, lambda a, b, c: c + a + (b + c + (a + b >> 32) >> 32)),
    "sub.cc.u32 %r0, %i0, %i1; subc.cc.u32 %r1, %i1, %i2; subc.u32 %o, %i2, %i0;": (
        ("32",) * 3, 32, lambda a, b, c: c - a - (b - c - (a < b) < 0)),
    "add.cc.u64 %rd0, %i0, %i1; addc.u64 %o, %i2, 1;": (("64",) * 3, 64, lambda a, b, c: c + 1 + (a + b >> 64)),
    "add.cc.s32 %r0, %i0, %i1; addc.s32 %o, %i2, 0;": (("32",) * 3, 32, lambda a, b, c: c + (a + b >> 32)),
    **{
        f"cvt.pack.sat.{t}{w}.s32{'.b32' * (w < 16)} %o, %i0, %i1{', %i2' * (w < 16)};": (
            ("32",) * 3, 32, lambda a, b, c, t=t, w=w: pack(a, b, c if w < 16 else 0, t, w))
        for t in "us" for w in (8,)
    },
    **{
        f"{name}{relu}.{t}16x2 %o, %i0, %i1;": (("32", "32"), 32, lambda a, b, op=op, t=t, relu=relu: halves(a, b, op, t, relu))
        for name, op in (("min", min), ("max", max)) for t, relu in (("u", ""), ("s", ""), ("s", ".relu"))
    },
}  # fmt: skip


def halves(a: int, b: int, op: Callable[[int, int], int], kind: str, relu: str) -> int:
    """Of each half the result of its own."""
    out = 0
    for at in (0, 16):
        x, y = (v >> at & 0xFFFF for v in (a, b))
        found = op(signed(x, 16), signed(y, 16)) if kind == "s" else op(x, y)
        out |= (max(found, 0) if relu else found) % (1 << 16) << at
    return out


def pack(a: int, b: int, c: int, kind: str, width: int) -> int:
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if kind == "s" else (0, (1 << width) - 1)
    x, y = (min(max(signed(v, 32), low), high) & (1 << width) - 1 for v in (a, b))
    return (c << 2 * width | x << width | y) & MASK[32]


@pytest.mark.parametrize("body", TABLE)
def test_words(body: str) -> None:
    kinds, width, reference = TABLE[body]
    inputs = words(body, *kinds)
    out = evaluate(body, inputs, np.uint32 if width == 32 else np.uint64)
    for got, *given in zip(out.tolist(), *(x.tolist() for x in inputs), strict=True):
        assert got == reference(*given) & MASK[width], (body, given, hex(got))


@pytest.mark.parametrize(("start", "length"), [(0, 8), (4, 12), (31, 4), (32, 4), (8, 0), (3, 32)])
def test_fields_that_are_known(start: int, length: int) -> None:
    (x, y) = words("fields", "32", "32")
    out = evaluate(f"bfe.u32 %o, %i0, {start}, {length};", [x], np.uint32)
    assert out.tolist() == [bfe(32, False)(a, start, length) for a in x.tolist()]
    out = evaluate(f"bfe.s32 %o, %i0, {start}, {length};", [x], np.uint32)
    if start < 32:
        assert out.tolist() == [bfe(32, True)(a, start, length) for a in x.tolist()]
    else:
        assert set(out.tolist()) == {MASK[32]}  # As ptxas makes it.
    out = evaluate(f"bfi.b32 %o, %i0, %i1, {start}, {length};", [x, y], np.uint32)
    assert out.tolist() == [
        bfi(32)(a, b, start, length) for a, b in zip(x.tolist(), y.tolist(), strict=True)
    ]


# Comparisons ---------------------------------------------------------------------------------------

COMPARISONS = {
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a, b: a >= b,
}  # fmt: skip
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}


def compared(test: str, kind: str, a: object, b: object) -> bool:
    """Whether a comparison holds (PTX ISA, "comparisons")."""
    if kind[0] != "f":
        return bool(COMPARISONS[UNSIGNED.get(test, test)](a, b))
    unordered = math.isnan(a) or math.isnan(b)
    if test in ("num", "nan"):
        return unordered == (test == "nan")
    if test.endswith("u"):
        return unordered or bool(COMPARISONS[test[:-1]](a, b))
    return not unordered and bool(COMPARISONS[test](a, b))


CASES = [
    *((t, k) for t in COMPARISONS for k in ("s32", "u64", "f32", "f64", "s16")),
    *((t, k) for t in UNSIGNED for k in ("u32", "u16")),
    *((t, k) for t in ("equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan") for k in ("f32", "f64")),
]  # fmt: skip


@pytest.mark.parametrize(("test", "kind"), CASES)
def test_comparisons(test: str, kind: str) -> None:
    random = np.random.default_rng(zlib.crc32(f"{test}{kind}".encode()))
    code = {"s": "i", "u": "u", "f": "f"}[kind[0]] + str(int(kind[1:]) // 8)
    a, b = (random.integers(-3, 4, N).astype(code) for _ in range(2))
    if kind[0] == "f":
        a[::7], b[::5] = np.nan, np.nan
        a[1::11] = np.inf
    flag = random.integers(0, 2, N).astype(np.uint32)
    body = (
        f"setp.ne.u32 %p0, %i2, 0; setp.{test}.{kind} %p1|%p2, %i0, %i1; setp.{test}.and.{kind} %p3, %i0, %i1, %p0; "
        f"setp.{test}.or.{kind} %p4, %i0, %i1, %p0; setp.{test}.xor.{kind} %p5, %i0, %i1, !%p0; set.{test}.u32.{kind} %r6, %i0, %i1; "
        + "".join(f"selp.u32 %r{i}, {1 << i}, 0, %p{i}; " for i in range(1, 6))
        + "and.b32 %r6, %r6, 64; or.b32 %r1, %r1, %r2; or.b32 %r1, %r1, %r3; or.b32 %r1, %r1, %r4; or.b32 %r1, %r1, %r5; or.b32 %o, %r1, %r6;"
    )
    out = evaluate(body, [a, b, flag], np.uint32)
    for got, x, y, p in zip(out.tolist(), a.tolist(), b.tolist(), flag.tolist(), strict=True):
        holds, p = compared(test, kind, x, y), bool(p)
        wanted = [holds, not holds, holds and p, holds or p, holds != (not p), holds]
        assert got == sum(bit << i for i, bit in enumerate(wanted, 1)), (x, y, p)


@pytest.mark.parametrize("combine", ["and", "or", "xor"])
@pytest.mark.parametrize("negated", [False, True])
def test_both_results_of_a_comparison_are_combined_with_what_a_predicate_was(
    combine: str, negated: bool
) -> None:
    """The first may take the place of the predicate that the second is combined with as well."""
    a, b, flag = np.array([0, 0, 1, 1]), np.array([1, 1, 0, 0]), np.array([0, 1, 0, 1])
    out = evaluate(
        f"setp.ne.u32 %p1, %i2, 0; setp.lt.{combine}.u32 %p1|%p2, %i0, %i1, {'!' * negated}%p1; "
        "selp.u32 %r1, 1, 0, %p1; selp.u32 %r2, 2, 0, %p2; or.b32 %o, %r1, %r2;",
        [x.astype(np.uint32) for x in (a, b, flag)],
        np.uint32,
    )
    logic = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[combine]
    was = (flag != 0) != negated
    assert out.tolist() == (logic(a < b, was) + 2 * logic(a >= b, was)).tolist()


@pytest.mark.parametrize(
    ("test", "holds"),
    [
        ("finite", math.isfinite), ("infinite", math.isinf), ("number", lambda x: not math.isnan(x)),
        ("notanumber", math.isnan), ("normal", lambda x: math.isfinite(x) and abs(x) >= 2.0**-126),
        ("subnormal", lambda x: x != 0 and abs(x) < 2.0**-126),
    ],
)  # fmt: skip
def test_what_a_float_is(test: str, holds: Callable[[float], bool]) -> None:
    x = np.array(
        [0, -0.0, 1, -2.5, 1e-40, -1e-45, 2.0**-126, 3.4e38, np.inf, -np.inf, np.nan, -np.nan], "f4"
    )
    out = evaluate(f"testp.{test}.f32 %p0, %i0; selp.u32 %o, 1, 0, %p0;", [x], np.uint32)
    assert out.tolist() == [int(holds(v)) for v in x.tolist()]


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_signs_are_copied(kind: str) -> None:
    code = f"f{int(kind[1:]) // 8}"
    a, b = np.array([1, -1, 0, -0.0, np.inf], code), np.array([-2, 3, -0.0, 0, -np.nan], code)
    out = evaluate(f"copysign.{kind} %o, %i0, %i1;", [a, b], np.dtype(code).type)
    assert np.signbit(out).tolist() == np.signbit(a).tolist()  # Of the first, on the second.
    assert np.abs(out)[:4].tolist() == np.abs(b)[:4].tolist()


# Small floats --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["e4m3", "e5m2", "e2m3", "e3m2", "e2m1"])
def test_small_floats_become_halves(kind: str) -> None:
    exponent_bits, fraction_bits, _ = FLOATS[kind]
    width = 1 + exponent_bits + fraction_bits
    codes = np.arange(1 << 2 * width if width == 4 else 256, dtype=np.uint32)
    low, high = (
        (codes & 15, codes >> 4)
        if width == 4
        else (codes % (1 << width), codes[::-1] % (1 << width))
    )
    word = low | high << (4 if width == 4 else 8)
    register = (
        "{ .reg .b8 %b; cvt.u8.u32 %b, %i0; cvt.rn.f16x2.e2m1x2 %o, %b; }"
        if width == 4
        else f"cvt.u16.u32 %h0, %i0; cvt.rn.f16x2.{kind}x2 %o, %h0;"
    )
    out = evaluate(register, [word], np.uint32)
    got = out.view(np.float16).reshape(-1, 2)
    for pair, *given in zip(got.tolist(), low.tolist(), high.tolist(), strict=True):
        for one, code in zip(pair, given, strict=True):
            top = code >> fraction_bits & (1 << exponent_bits) - 1 == (1 << exponent_bits) - 1
            fraction = code & (1 << fraction_bits) - 1
            if (kind == "e4m3" and top and fraction == 7) or (kind == "e5m2" and top and fraction):
                assert math.isnan(one)
            elif kind == "e5m2" and top:
                assert math.isinf(one)
            else:
                assert one == number(code, kind)


# Spaces of addresses -------------------------------------------------------------------------------


def test_the_space_of_an_address() -> None:
    out = np.zeros(4, np.uint32)
    text = (
        """
.version 8.8\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .pred %p<5>; .reg .b32 %r<9>; .reg .b64 %d<9>; .shared .align 8 .b8 s[16]; .local .align 8 .b8 l[16];
ld.param.u64 %d0, [o]; mov.u64 %d1, s; cvta.shared.u64 %d1, %d1; mov.u64 %d2, l; cvta.local.u64 %d2, %d2; mov.u64 %d3, o; cvta.param.u64 %d3, %d3;
"""
        + "".join(
            f"isspacep.global %p0, %d{i}; isspacep.shared %p1, %d{i}; isspacep.local %p2, %d{i}; isspacep.param %p3, %d{i};\n"
            "selp.u32 %r0, 1, 0, %p0; selp.u32 %r1, 2, 0, %p1; selp.u32 %r2, 4, 0, %p2; selp.u32 %r3, 8, 0, %p3;\n"
            f"or.b32 %r0, %r0, %r1; or.b32 %r0, %r0, %r2; or.b32 %r0, %r0, %r3; st.global.u32 [%d0+{4 * i}], %r0;\n"
            for i in range(4)
        )
        + "ret;\n}\n"
    )
    assert not launch(text, [out], 1, 1).diagnostics
    assert out.tolist() == [1, 2, 4, 8]


@pytest.mark.parametrize(
    ("start", "length"), [(0, 32), (4, 31), (4, 33), (0, 40), (8, 64), (31, 1), (40, 4)]
)
def test_a_field_of_constant_place_is_put_into_a_word(start: int, length: int) -> None:
    """A length past the word is taken modulo 32 where it is known."""
    a, b = words("bfi constant", "32", "32")
    made = evaluate(f"bfi.b32 %o, %i0, %i1, {start}, {length};", [a, b], np.uint32)
    count = length if length <= 32 else length & 31
    field = (((1 << count) - 1) << start) & MASK[32] if start < 32 else 0
    wanted = [
        (y & ~field) | ((x << start) & field) for x, y in zip(a.tolist(), b.tolist(), strict=True)
    ]
    assert made.tolist() == [w & MASK[32] for w in wanted]


@pytest.mark.parametrize("body", TABLE)
def test_an_operand_may_be_a_number_in_the_text(body: str) -> None:
    """Registers and constants give the same, in any mix."""
    kinds, width, reference = TABLE[body]
    out = np.uint32 if width == 32 else np.uint64
    inputs = [x[20:24] for x in words(body, *kinds)]
    for thread in range(0, 4, 3):
        own = [np.full(4, x[thread]) for x in inputs]
        given = [int(x[thread]) for x in inputs]
        wanted = [reference(*given) & MASK[width]] * 4
        used = [i for i in range(len(given)) if f"%i{i}" in body]
        for size in range(1, len(used) + 1):
            for chosen in itertools.combinations(used, size):
                edited = body
                for i in chosen:
                    number = signed(given[i], 8 * inputs[i].itemsize)
                    edited = edited.replace(f"%i{i}", str(number))
                assert evaluate(edited, own, out).tolist() == wanted, edited
