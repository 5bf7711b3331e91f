"""Converts number formats that numpy lacks: bfloat16, tf32, and formats of 8 bits or fewer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

U16, U32, U64 = np.uint16, np.uint32, np.uint64
F16, F32, F64 = np.float16, np.float32, np.float64

Array = NDArray[np.generic]


@dataclass(frozen=True)
class Small:
    """A float format of at most 8 bits, as the PTX ISA's table of alternate formats gives it.

    Attributes:
        exponent: Bits of the exponent.
        mantissa: Bits of the mantissa.
        infinity: The top exponent holds infinities and NaNs, as in IEEE 754.
        nan: The code of NaN; None for a format without one.
        signed: There is a sign bit.
    """

    exponent: int
    mantissa: int
    infinity: bool = False
    nan: int | None = None
    signed: bool = True


SMALL = {
    "e4m3": Small(4, 3, nan=0x7F),
    "e5m2": Small(5, 2, infinity=True, nan=0x7F),
    "e3m2": Small(3, 2),
    "e2m3": Small(2, 3),
    "e2m1": Small(2, 1),
    "ue8m0": Small(8, 0, nan=0xFF, signed=False),
    "ue4m3": Small(4, 3, nan=0x7F, signed=False),
}


@cache
def _magnitudes(name: str) -> NDArray[np.float64]:
    """Every finite magnitude of a format, by code."""
    form = SMALL[name]
    if name == "ue8m0":
        return np.ldexp(1.0, np.arange(255) - 127)
    bias = (1 << form.exponent - 1) - 1
    code = np.arange(1 << form.exponent + form.mantissa)
    exponent, fraction = code >> form.mantissa, code & (1 << form.mantissa) - 1
    value = np.where(
        exponent == 0,
        np.ldexp(fraction.astype(F64), 1 - bias - form.mantissa),
        np.ldexp(1 + fraction / (1 << form.mantissa), exponent - bias),
    )
    if form.infinity:
        return value[exponent < (1 << form.exponent) - 1]
    return value if form.nan is None else value[: form.nan]


@cache
def table(name: str) -> NDArray[np.float32]:
    """The value of each of the 256 codes of a byte."""
    form, finite = SMALL[name], _magnitudes(name)
    out = np.full(256, np.nan, F32)
    out[: len(finite)] = finite
    width = form.exponent + form.mantissa
    if form.infinity:
        out[len(finite)] = np.inf
    if form.signed:
        sign = 1 << width
        out[sign : 2 * sign] = -out[:sign]
        for start in range(2 * sign, 256, 2 * sign):  # Bits above the format are not looked at.
            out[start : start + 2 * sign] = out[: 2 * sign]
    return out


def decode(codes: Array, name: str) -> NDArray[np.float32]:
    """Bytes to their values."""
    return table(name)[codes]


def encode(values: Array, name: str) -> NDArray[np.uint16]:
    """Values to bytes: nearest, ties to even, saturating at the largest finite value.

    A NaN becomes the format's NaN, or its largest value where it has none (PTX, ``cvt``).
    """
    form, finite = SMALL[name], _magnitudes(name)
    x = np.asarray(values, F64)
    size = np.abs(x)
    middle = (finite[:-1] + finite[1:]) / 2
    code = np.searchsorted(middle, size, "left")
    tie = (code < len(middle)) & (middle[np.minimum(code, len(middle) - 1)] == size)
    code = code + (tie & (code & 1 == 1))
    code = np.where(np.isnan(x), len(finite) - 1 if form.nan is None else form.nan, code)
    if form.signed:
        code = code | (np.signbit(x) & ~np.isnan(x)) << (form.exponent + form.mantissa)
    return code.astype(U16)


def encode_scale(values: Array, mode: str, saturate: bool) -> NDArray[np.uint16]:
    """Magnitudes to ``ue8m0``: the power of two at or below, or at or above for mode ``rp``."""
    x = np.abs(np.asarray(values, F64))
    fraction, exponent = np.frexp(np.where(np.isfinite(x), x, 1.0))
    code = np.where(x == 0, 0, exponent + 126 + ((mode == "rp") & (fraction > 0.5)))
    over = (code > 254) | np.isinf(x)
    code = np.where(over, 254 if saturate else 255, np.maximum(code, 0))
    return np.where(np.isnan(x), 255, code).astype(U16)


def from_bf16(x: Array) -> NDArray[np.float32]:
    """Codes of bfloat16 to values."""
    return (np.asarray(x).astype(U32) << U32(16)).view(F32)


def to_bf16(x: Array, mode: str = "rn") -> NDArray[np.uint16]:
    """Values (float32) to codes of bfloat16; ``mode`` is rn or rz."""
    u = np.ascontiguousarray(x, F32).view(U32)
    nan = (u & U32(0x7FFFFFFF)) > U32(0x7F800000)
    if mode == "rn":
        u = u + (U32(0x7FFF) + ((u >> U32(16)) & U32(1)))
    out = (u >> U32(16)).astype(U16)
    if nan.any():
        out = np.where(nan, U16(0x7FFF), out)
    return out


def to_tf32(x: Array, mode: str = "rna") -> NDArray[np.uint32]:
    """Values (float32) to tf32, its low 13 bits zero; ``mode`` is rna, rn or rz."""
    u = np.ascontiguousarray(x, F32).view(U32)
    finite = (u & U32(0x7F800000)) != U32(0x7F800000)
    if mode == "rna":
        v = u + U32(0x1000)
    elif mode == "rn":
        v = u + (U32(0xFFF) + ((u >> U32(13)) & U32(1)))
    else:
        v = u
    return np.where(finite, v & U32(0xFFFFE000), u)


def odd32(x: NDArray[np.float64], error: NDArray[np.float64]) -> NDArray[np.float64]:
    """``x`` with its last bit made odd where ``error`` says that it is not exact.

    Rounding what this returns once more, to a format with at most 51 bits, is then one rounding of
    the exact value (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
    """
    code = x.view(U64)
    even = (code & U64(1)) == 0
    toward = np.where((error > 0) == (x > 0), 1, -1).astype(np.int64)
    fix = even & (error != 0) & np.isfinite(x)
    return np.where(fix, (code.view(np.int64) + toward), code.view(np.int64)).view(F64)
