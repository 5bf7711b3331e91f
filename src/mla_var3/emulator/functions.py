"""Arithmetic that lowered PTX calls at run time and numpy lacks, such as fma, prmt and lop3."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from mla_var3.emulator import formats
from mla_var3.emulator.formats import F16, F32, F64, U16, U32, U64

I32, I64 = np.int32, np.int64
HALF_ULP = U64(0x1FFFFFFF), U64(0x10000000)
TINY32 = 2.0**-126
#: The least normal float16, and a float32 whose last bit is worth the least subnormal.
HALF_NORMAL, HALF_GRID = F32(2.0**-14), F32(0.75)
_FMA = ctypes.CDLL(None).fma
_FMA.restype, _FMA.argtypes = ctypes.c_double, [ctypes.c_double] * 3
_fma = np.frompyfunc(_FMA, 3, 1)


def spread(value: Any, n: int) -> Any:
    """One value per thread; most often it is so already, and ``broadcast_to`` is slow to say so."""
    return value if getattr(value, "shape", None) == (n,) else np.broadcast_to(value, n)


def divide(a: Any, b: Any) -> Any:
    """Signed division that rounds toward zero; a division by zero gives all ones, as nvcc's."""
    wide = I64
    a, b = np.asarray(a).astype(wide), np.asarray(b).astype(wide)
    # Magnitudes are unsigned: that of the least number has no other form.
    quotient = (np.abs(a).astype(U64) // np.maximum(np.abs(b).astype(U64), U64(1))).astype(wide)
    return np.where(b == 0, -1, np.where((a < 0) != (b < 0), -quotient, quotient))


def remainder(a: Any, b: Any) -> Any:
    """Signed remainder with the sign of ``a``."""
    a, b = np.asarray(a).astype(I64), np.asarray(b).astype(I64)
    return np.where(b == 0, a, a - divide(a, b) * b)


def udivide(a: Any, b: Any) -> Any:
    """Unsigned division; all ones where ``b`` is zero."""
    a, b = np.asarray(a), np.asarray(b)
    ones = np.array(-1).astype(a.dtype)
    return np.where(b == 0, ones, a // np.maximum(b, b.dtype.type(1)))


def uremainder(a: Any, b: Any) -> Any:
    """Unsigned remainder; ``a`` where ``b`` is zero."""
    a, b = np.asarray(a), np.asarray(b)
    return np.where(b == 0, a, a % np.maximum(b, b.dtype.type(1)))


def mul_hi64(a: Any, b: Any, signed: bool) -> Any:
    """High 64 bits of a 128-bit product."""
    x, y = np.asarray(a).astype(U64), np.asarray(b).astype(U64)
    low, s32 = U64(0xFFFFFFFF), U64(32)
    x0, x1, y0, y1 = x & low, x >> s32, y & low, y >> s32
    middle = x1 * y0 + (x0 * y0 >> s32)
    high = x1 * y1 + (middle >> s32) + ((middle & low) + x0 * y1 >> s32)
    if signed:
        high = high - np.where(x >> U64(63), y, U64(0)) - np.where(y >> U64(63), x, U64(0))
    return high


def add_carry(a: Any, b: Any, carry: Any) -> tuple[Any, Any]:
    """Sum of unsigned values and a carry; and the carry out."""
    total = a + b
    out = total < a
    total2 = total + carry.astype(total.dtype)
    return total2, out | (total2 < total)


def sub_borrow(a: Any, b: Any, borrow: Any) -> tuple[Any, Any]:
    """Difference of unsigned values less a borrow; and the borrow out."""
    first = a - b
    last = first - borrow.astype(first.dtype)
    return last, (a < b) | (first < last)


def fma32(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` in float32, rounded once."""
    product = np.multiply(a, b, dtype=F64)
    total = np.atleast_1d(product + c)
    risky = (total.view(U64) & HALF_ULP[0]) == HALF_ULP[1]
    if np.count_nonzero(risky) or np.count_nonzero(np.abs(total) < TINY32):
        total = formats.odd32(total, _sum_error(product, np.asarray(c, F64), total))
    return total.astype(F32)


def _sum_error(a: Any, b: Any, total: Any) -> Any:
    """What rounding took from ``a + b`` (Knuth's TwoSum)."""
    back = total - a
    error = (a - (total - back)) + (b - back)
    return np.where(np.isfinite(error), error, 0.0)


def fma64(a: Any, b: Any, c: Any) -> Any:
    """``a * b + c`` in float64, rounded once: the C library's, which numpy lacks."""
    return np.asarray(_fma(a, b, c), F64)


def quotient(a: Any, b: Any) -> Any:
    """``div.approx.f32``: zero where the divisor is above 2**126, and NaN there for infinities."""
    huge = (np.abs(b) > F32(2.0**126)) & np.isfinite(b)
    return np.where(huge, a * np.copysign(F32(0), b), a / b)


def fma_small(a: Any, b: Any, c: Any, kind: str) -> Any:
    """``a * b + c`` of float16 or bfloat16 values (as float32), rounded once to the format."""
    product = np.multiply(a, b, dtype=F64)
    total = np.atleast_1d(product + c)
    exact = formats.odd32(total, _sum_error(product, np.asarray(c, F64), total))
    return to_small(exact, kind)


def to_small(x: Any, kind: str) -> Any:
    """float64 values to codes of float16 or bfloat16, rounded once."""
    x = np.asarray(x, F64)
    if kind == "f16":
        return x.astype(F16).view(U16)
    near = np.atleast_1d(x.astype(F32))
    back = near.astype(F64)
    toward = np.where(np.abs(back) < np.abs(x), 1, -1).astype(I32)
    odd = (near.view(U32) & U32(1)) == 0
    fix = odd & (back != x) & np.isfinite(near)
    near = np.where(fix, near.view(I32) + toward, near.view(I32)).view(F32)
    return formats.to_bf16(near)


def directed(x: Any, dtype: Any, mode: str) -> Any:
    """Wider values to ``dtype``, rounded to nearest (rn), zero (rz), down (rm) or up (rp)."""
    x = np.asarray(x)
    x = x if x.dtype == np.longdouble else x.astype(F64)
    y = x.astype(dtype)
    if mode == "rn":
        return y
    back = y.astype(x.dtype)
    over = {"rz": np.abs(back) > np.abs(x), "rm": back > x, "rp": back < x}[mode]
    target = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[mode]
    return np.where(over, np.nextafter(y, np.asarray(target, dtype)), y)


def odd_integer(x: Any) -> Any:
    """64-bit integers to float64 whose last bit is odd where it is not exact.

    Another rounding, to a narrower format, is then right.
    """
    exact = np.asarray(x).astype(np.longdouble)  # Has 64 bits or more.
    near = np.atleast_1d(exact.astype(F64))
    return formats.odd32(near, (exact - near.astype(np.longdouble)).astype(F64))


def half(x: Any) -> Any:
    """float32 values to codes of float16.

    numpy raises an exception, which takes long, for each value that becomes an inexact subnormal.
    Those are rounded to the grid of subnormals first, by a sum whose last bit is that grid's.
    """
    x = np.asarray(x)
    tiny = np.abs(x) < HALF_NORMAL
    if np.count_nonzero(tiny):
        x = np.where(tiny, np.copysign((x + HALF_GRID) - HALF_GRID, x), x)
    return x.astype(F16).view(U16)


def flush(x: Any) -> Any:
    """float32 values with subnormals replaced by zeros of their sign (``.ftz``)."""
    return x * (np.abs(x) >= F32(TINY32))


def saturate(x: Any) -> Any:
    """Values clamped to [+0, 1]; NaN and -0 give +0 (``.sat``)."""
    return np.where(x > 0, np.minimum(x, 1), 0).astype(x.dtype)


def float_min(a: Any, b: Any, nan: bool = False) -> Any:
    """The smaller value; of a number and a NaN the number, unless ``nan``; -0 is below +0."""
    low = np.minimum(a, b) if nan else _number(np.minimum(a, b), a, b)
    if np.count_nonzero(low) < np.size(low):
        zeros = (low == 0) & (a == b)
        low = np.where(zeros & (np.signbit(a) | np.signbit(b)), -np.abs(low), low)
    return low


def float_max(a: Any, b: Any, nan: bool = False) -> Any:
    """The larger value; of a number and a NaN the number, unless ``nan``; +0 is above -0."""
    high = np.maximum(a, b) if nan else _number(np.maximum(a, b), a, b)
    if np.count_nonzero(high) < np.size(high):
        zeros = (high == 0) & (a == b)
        high = np.where(zeros & ~(np.signbit(a) & np.signbit(b)), np.abs(high), high)
    return high


def _number(chosen: Any, a: Any, b: Any) -> Any:
    """``chosen``, or the operand that is a number (numpy's fmin keeps a signaling NaN)."""
    nan = np.isnan(chosen)
    return np.where(nan, np.where(np.isnan(a), b, a), chosen) if np.count_nonzero(nan) else chosen


def to_integer(x: Any, mode: str, width: int, signed: bool) -> Any:
    """Float values to integers, rounded by ``mode`` and clamped; NaN gives 0 (64 bits: 2**63)."""
    x = np.asarray(x, F64)
    x = {"i": np.rint, "z": np.trunc, "m": np.floor, "p": np.ceil}[mode](x)
    low, high = (-(1 << width - 1), (1 << width - 1) - 1) if signed else (0, (1 << width) - 1)
    wide = I64 if signed else U64
    inside = (x >= low) & (x < float(high) + (width < 64))
    out = np.where(inside, x, 0).astype(wide)
    out = np.where(x < low, wide(low), np.where(inside | np.isnan(x), out, wide(high)))
    if width == 64:
        out = np.where(np.isnan(x), U64(1 << 63).view(wide), out)
    return out


def permute(a: Any, b: Any, selector: Any, mode: str = "") -> Any:
    """``prmt``: four bytes of the eight of ``b:a``, the sign of a byte where bit 3 is set."""
    both = (np.asarray(b).astype(U64) << U64(32)) | a
    out = np.zeros(np.broadcast(a, b, selector).shape, U32)
    for i in range(4):
        nibble = _nibble(selector, i, mode)
        byte = ((both >> ((nibble & U32(7)).astype(U64) * U64(8))) & U64(255)).astype(U32)
        sign = np.where(byte & U32(128), U32(255), U32(0))
        out |= np.where(nibble & U32(8), sign, byte) << U32(8 * i)
    return out


def _nibble(selector: Any, i: int, mode: str) -> Any:
    """The nibble that chooses byte ``i`` (PTX, ``prmt``, table of modes)."""
    if not mode:
        return (selector >> U32(4 * i)) & U32(15)
    c = selector & U32(3)
    k = U32(i)
    match mode:
        case "f4e":
            return c + k
        case "b4e":
            return (c - k) & U32(7)
        case "rc8":
            return c
        case "ecl":
            return np.maximum(c, k)
        case "ecr":
            return np.minimum(c, k)
        case _:
            return (c & U32(1)) * U32(2) + U32(i & 1)


def lop3(a: Any, b: Any, c: Any, table: int) -> Any:
    """Any function of three bits, given by its table of eight."""
    a, b, c = np.asarray(a), np.asarray(b), np.asarray(c)
    out = np.zeros(np.broadcast(a, b, c).shape, U32)
    for i in range(8):
        if table >> i & 1:
            out |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return out


def popcount(x: Any) -> Any:
    """Number of bits set."""
    return np.bitwise_count(np.asarray(x)).astype(U32)


def bit_length(x: Any) -> Any:
    """Position of the highest bit set, counted from 1; 0 for 0."""
    x = np.asarray(x).astype(U64)
    for shift in (1, 2, 4, 8, 16, 32):
        x = x | (x >> U64(shift))
    return np.bitwise_count(x).astype(U32)


def find_bit(x: Any, signed: bool, amount: bool, width: int) -> Any:
    """``bfind``: position of the highest significant bit, or all ones."""
    x = np.asarray(x)
    if signed:
        x = np.where(x < 0, ~x, x)
    found = bit_length(x.astype(U64) & U64((1 << width) - 1)) - U32(1)
    return np.where(found == U32(0xFFFFFFFF), found, U32(width - 1) - found) if amount else found


def find_nth(mask: Any, base: Any, offset: Any) -> Any:
    """``fns``: position of the n-th set bit from ``base`` on, downwards where n is negative."""
    mask, base, n = (np.asarray(x)[..., None] for x in (mask, base, offset))
    place = np.arange(32)
    up = place >= base.astype(np.int64)
    near = np.where(n > 0, up, np.where(n < 0, place <= base, place == base))
    there = ((mask >> place.astype(U32)) & U32(1)).astype(bool) & near  # Any may be one number.
    rank = np.where(n < 0, there[..., ::-1].cumsum(-1)[..., ::-1], there.cumsum(-1))
    hit = there & (rank == np.maximum(np.abs(n.astype(np.int64)), 1))
    return np.where(hit.any(-1), hit.argmax(-1), -1).astype(U32)


def reverse(x: Any, width: int) -> Any:
    """Bits in reverse order."""
    x = np.asarray(x)
    kind = x.dtype.type
    out = np.zeros_like(x)
    for i in range(width):
        out |= ((x >> kind(i)) & kind(1)) << kind(width - 1 - i)
    return out


def funnel(side: str, mode: str, low: Any, high: Any, amount: Any) -> Any:
    """``shf``: shift of the 64 bits ``high:low``, of which one word is returned."""
    count = (amount & U32(31)) if mode == "wrap" else np.minimum(amount, U32(32))
    both = (np.asarray(high).astype(U64) << U64(32)) | low
    count = np.asarray(count).astype(U64)
    return ((both << count) >> U64(32) if side == "l" else both >> count).astype(U32)


def extract(x: Any, start: Any, length: Any, width: int, signed: bool) -> Any:
    """``bfe``: a bit field, with its sign where ``signed``."""
    kind = U64 if width == 64 else U32
    x = np.asarray(x).astype(kind)
    start = np.asarray(start).astype(I64) & 255
    length = np.asarray(length).astype(I64) & 255
    field = np.where(start < width, x >> np.minimum(start, width - 1).astype(kind), kind(0))
    # Bits past the end are the sign's, or zeros.
    inside = np.minimum(length, np.maximum(width - start, 0))
    mask = np.where(
        inside >= width, kind(-1 & (1 << width) - 1), (kind(1) << inside.astype(kind)) - kind(1)
    )
    field = field & mask
    if not signed:
        return field
    top = np.minimum(start + length - 1, width - 1)
    sign = (length > 0) & ((x >> np.maximum(top, 0).astype(kind) & kind(1)) == 1)
    return np.where(sign, field | ~mask, field)


def insert(a: Any, b: Any, start: Any, length: Any, width: int) -> Any:
    """``bfi``: the low ``length`` bits of ``a`` put into ``b`` at ``start``."""
    kind = U64 if width == 64 else U32
    a, b = np.asarray(a).astype(kind), np.asarray(b).astype(kind)
    start = np.asarray(start).astype(I64) & 255
    length = np.asarray(length).astype(I64) & 255
    mask = np.where(
        length >= width, kind(-1 & (1 << width) - 1), (kind(1) << length.astype(kind)) - kind(1)
    )
    at = np.minimum(start, width).astype(kind)
    mask = np.where(start >= width, kind(0), mask << at)
    return (b & ~mask) | ((a << at) & mask)


def bit_mask(start: Any, length: Any, wrap: bool) -> Any:
    """``bmsk``: ``length`` ones from bit ``start`` on."""
    start, length = np.asarray(start).astype(U64), np.asarray(length).astype(U64)
    limit = (lambda v: v & U64(31)) if wrap else (lambda v: np.minimum(v, U64(32)))
    return ((((U64(1) << limit(length)) - U64(1)) << limit(start)) & U64(0xFFFFFFFF)).astype(U32)


def dot(a: Any, b: Any, c: Any, kinds: tuple[bool, bool], parts: int) -> Any:
    """``dp4a`` and ``dp2a``: ``c`` plus a dot product of ``parts`` integers, modulo 2**32."""
    out = np.asarray(c).astype(I64)
    wide = (8, 16)[parts == 2]
    for i in range(parts):
        x = extract(a, wide * i, wide, 32, kinds[0])
        y = extract(b, 8 * i, 8, 32, kinds[1])
        out = out + x.astype(I64) * y.astype(I64)
    return out


def halves(word: Any, kind: str) -> Any:
    """A word of two float16 or bfloat16 to their values, [..., 2] float32."""
    both = np.ascontiguousarray(word).reshape(-1).view(U16).reshape(-1, 2)
    return both.view(F16).astype(F32) if kind == "f16" else formats.from_bf16(both)


def octets(word: Any) -> Any:
    """A word of 16 bits to its two bytes, the lower one first, [..., 2]."""
    return np.ascontiguousarray(word, U16).reshape(-1).view(np.uint8).reshape(-1, 2)


def join(codes: Any) -> Any:
    """Codes of 16 bits, [n, 2], to words."""
    return np.ascontiguousarray(codes, U16).view(U32).reshape(-1)


def exact_add(a: Any, b: Any, mode: str) -> Any:
    """Sum in float64 whose last bit is odd where it is not exact: one more rounding is right.

    A zero that is rounded down is -0 unless both terms are +0.
    """
    x, y = np.asarray(a, F64), np.asarray(b, F64)
    total = np.atleast_1d(x + y)
    if mode == "rm":
        total = np.where((total == 0) & (np.signbit(x) | np.signbit(y)), -0.0, total)
    return formats.odd32(total, _sum_error(x, y, total))


def exact_fma(a: Any, b: Any, c: Any, mode: str) -> Any:
    """``a * b + c`` likewise."""
    return exact_add(np.multiply(a, b, dtype=F64), c, mode)
