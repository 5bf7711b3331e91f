"""The 8-bit and 4-bit float formats: codes of values, values of codes, and rounding to them.

Their values are held in float32, which represents each of them exactly.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._numeric_semantics import RoundingMode


class _Format(NamedTuple):
    """An 8-bit or 4-bit float format: bits of its parts, largest finite code, code of NaN."""

    exponent: int
    mantissa: int
    signed: bool
    top: int
    nan: int | None


MINIFLOATS: dict[DType, _Format] = {
    dt.float8_e4m3fn: _Format(4, 3, True, 0x7E, 0x7F),
    dt.float8_e5m2: _Format(5, 2, True, 0x7B, 0x7F),
    dt.float8_e8m0fnu: _Format(8, 0, False, 0xFE, 0xFF),
    dt.float8_e5m3fnu: _Format(5, 3, False, 0xFE, 0xFF),
    dt.float4_e2m1fn: _Format(2, 1, True, 0x7, None),
}


def minifloat_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the codes of values that the format has, infinities and NaNs included."""
    codes = encode_minifloat(x, dtype)
    special, form = ~torch.isfinite(x), MINIFLOATS[dtype]
    if form.nan is None or not bool(special.any()):
        return codes
    bits = x.contiguous().view(torch.int32)
    code = torch.full_like(bits, form.nan)
    if dtype is dt.float8_e5m2:
        payload = (bits >> 21) & 3
        code = 0x7C | torch.where(torch.isnan(x), payload.clamp(min=1), 0)
    if form.signed:
        code = code | ((bits >> 31) & 1) << (dtype.bitwidth - 1)
    return torch.where(special, code.to(torch.uint8), codes)


@functools.cache
def decode_table(dtype: DType) -> torch.Tensor:
    """The value of each code, float32 [codes]."""
    exponent_bits, mantissa_bits, signed, _, nan = MINIFLOATS[dtype]
    bias = 127 if dtype is dt.float8_e8m0fnu else 2 ** (exponent_bits - 1) - 1
    table = []
    for code in range(1 << dtype.bitwidth):
        magnitude = code & ((1 << (exponent_bits + mantissa_bits)) - 1)
        exponent, mantissa = magnitude >> mantissa_bits, magnitude & ((1 << mantissa_bits) - 1)
        if mantissa_bits == 0:
            value = 2.0 ** (exponent - bias)
        elif exponent == 0:
            value = mantissa * 2.0 ** (1 - bias - mantissa_bits)
        else:
            value = (1 + mantissa / (1 << mantissa_bits)) * 2.0 ** (exponent - bias)
        if nan is not None and magnitude >= nan:
            value = float("nan")
        if dtype is dt.float8_e5m2 and magnitude == 0x7C:
            value = float("inf")
        if signed and code >> (dtype.bitwidth - 1):
            value = -value
        table.append(value)
    held = torch.tensor(table, dtype=torch.float32)
    if dtype is dt.float8_e5m2:  # its NaNs differ by two bits, which float32 carries along
        codes = torch.tensor([0x7D, 0x7E, 0x7F, 0xFD, 0xFE, 0xFF])
        bits = ((codes >> 7) << 31) | 0x7F800000 | ((codes & 3) << 21)
        held.view(torch.int32)[codes] = bits.to(torch.int32)
    elif nan is not None and signed:
        held.view(torch.int32)[nan | 0x80] = -0x400000
    return held


def encode_minifloat(
    x: torch.Tensor, dtype: DType, mode: RoundingMode = RoundingMode.RN
) -> torch.Tensor:
    """Rounds floats to an 8-bit or 4-bit format.

    Values beyond the largest finite one saturate to it, as PTX ``cvt`` with ``.satfinite`` does
    (https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt);
    NaN stays NaN where the format has one.

    Args:
        x: Float tensor.
        dtype: One of the 8-bit and 4-bit float dtypes.
        mode: Rounding mode.

    Returns:
        uint8 codes.
    """
    _, _, signed, top, nan = MINIFLOATS[dtype]
    grid = decode_table(dtype)[: top + 1].double()
    wide = x.double()
    magnitude = wide.abs() if signed else wide.clamp(min=0.0)
    negative = torch.signbit(wide) if signed else torch.zeros_like(wide, dtype=torch.bool)
    magnitude = magnitude.nan_to_num(nan=0.0).clamp(max=grid[-1].item())
    low = torch.searchsorted(grid, magnitude.contiguous(), right=True).sub_(1).clamp_(min=0)
    high = (low + 1).clamp(max=top)
    exact = grid[low] >= magnitude
    code = torch.where(exact, low, _pick(low, high, magnitude, grid, negative, mode))
    if signed:
        code = code | (negative.long() << (dtype.bitwidth - 1))
    if nan is not None:
        code = torch.where(torch.isnan(wide), nan, code)
    return code.to(torch.uint8)


def _pick(
    low: torch.Tensor,
    high: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    negative: torch.Tensor,
    mode: RoundingMode,
) -> torch.Tensor:
    """Chooses the lower or upper neighbor of magnitudes that lie between two grid points."""
    if mode is RoundingMode.RZ:
        return low
    if mode is RoundingMode.RP:
        return torch.where(negative, low, high)
    if mode is RoundingMode.RM:
        return torch.where(negative, high, low)
    down, up = x - grid[low], grid[high] - x
    tie_up = torch.ones_like(negative) if mode is RoundingMode.RA else (low & 1) == 1
    return torch.where((up < down) | ((up == down) & tie_up), high, low)
