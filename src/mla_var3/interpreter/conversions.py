"""Converts held values of one of cuTile's dtypes to another, rounded as a GPU rounds them."""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._numeric_semantics import RoundingMode

from mla_var3.interpreter.minifloats import MINIFLOATS, decode_table, encode_minifloat
from mla_var3.interpreter.values import BITS, held_dtype, wrap, wrap_int

_DIRECTED = (RoundingMode.RZ, RoundingMode.RM, RoundingMode.RP, RoundingMode.RA)


def full(shape: tuple[int, ...], value: Any, dtype: DType) -> torch.Tensor:
    """Returns a tile filled with (or, for nested tuples, made of) constants.

    Args:
        shape: Shape of the tile.
        value: A Python number, or nested tuples of numbers with that shape.
        dtype: The dtype, to which floats are rounded.
    """
    if dt.is_float(dtype):
        wide = torch.tensor(value, dtype=torch.float64)
        x = cast(wide, dt.float64, dtype)
        if dtype is dt.float8_e5m2:  # a constant is encoded, not converted: it keeps infinities
            x = torch.where(torch.isinf(wide), wide.float(), x)
    else:
        x = torch.tensor(_wrapped(value, dtype), dtype=held_dtype(dtype))
    return x.expand(shape).contiguous()


def _wrapped(value: Any, dtype: DType) -> Any:
    if isinstance(value, tuple | list):
        return [_wrapped(item, dtype) for item in value]
    if dt.is_boolean(dtype):
        return bool(value)
    return wrap_int(int(value), dt.int64 if dtype is dt.uint64 else dtype)


def cast(
    x: torch.Tensor, source: DType, target: DType, mode: RoundingMode | None = None
) -> torch.Tensor:
    """Converts held values of one dtype to held values of another, as cuTile's ``astype`` does.

    Integers wrap; floats round to nearest even unless ``mode`` says otherwise; float to integer
    truncates, saturates at the ends of the range, and takes NaN to 0.

    Args:
        x: Held values.
        source: Their dtype.
        target: The dtype wanted.
        mode: Rounding mode of a float-to-float conversion; ``None`` means the default one.
    """
    if source is target:
        return x
    if dt.is_boolean(target):
        return x != 0
    if dt.is_float(target):
        if dt.is_float(source):
            return round_float(x, target, mode)
        return round_float(_int_to_float(x, source, target), target, None)
    if dt.is_float(source):
        return _float_to_int(x, target)
    return wrap(x, target)


def round_float(x: torch.Tensor, target: DType, mode: RoundingMode | None) -> torch.Tensor:
    """Rounds a float tensor to the values of ``target``, held as it holds them."""
    if target in MINIFLOATS:
        if mode is None and target is dt.float8_e8m0fnu:
            mode = RoundingMode.RZ  # the nearest-even mode does not exist for this format
        return decode_table(target)[encode_minifloat(x, target, mode or RoundingMode.RN).long()]
    if mode in _DIRECTED:
        return _round_directed(x, target, mode)
    if target is dt.tfloat32:
        return _round_tf32(x if x.dtype != torch.float64 else round_to_odd(x))
    held = held_dtype(target)
    if x.dtype == torch.float64 and held in (torch.float16, torch.bfloat16):
        x = round_to_odd(x)
    return x.to(held)


def round_to_odd(x: torch.Tensor) -> torch.Tensor:
    """Rounds float64 to float32 such that a second rounding to fewer bits is still correct.

    An inexact result gets an odd last bit (Boldo and Melquiond, "When double rounding is odd").
    """
    near = x.float()
    back = near.double()
    inexact_even = (back != x) & ((near.contiguous().view(torch.int32) & 1) == 0)
    inexact_even &= torch.isfinite(near)
    if not bool(inexact_even.any()):
        return near
    towards = torch.where(x > back, torch.inf, -torch.inf).float()
    return torch.where(inexact_even, torch.nextafter(near, towards), near)


def _round_tf32(x: torch.Tensor) -> torch.Tensor:
    bits = x.float().contiguous().view(torch.int32)
    rounded = (bits + 0xFFF + ((bits >> 13) & 1)) & ~0x1FFF
    keep = (bits & 0x7F800000) == 0x7F800000  # infinities and NaN
    return torch.where(keep, bits, rounded).view(torch.float32)


def _round_directed(x: torch.Tensor, target: DType, mode: RoundingMode) -> torch.Tensor:
    wide = x.double()
    if target is dt.float64:
        return wide
    near = round_float(wide, target, None)
    down = torch.where(near.double() > wide, neighbour(near, target, up=False), near)
    up = torch.where(near.double() < wide, neighbour(near, target, up=True), near)
    if mode is RoundingMode.RM:
        result = down
    elif mode is RoundingMode.RP:
        result = up
    elif mode is RoundingMode.RZ:
        result = torch.where(wide < 0, up, down)
    else:
        below, above = wide - down.double(), up.double() - wide
        away = torch.where(wide < 0, down, up)
        result = torch.where(below == above, away, torch.where(below < above, down, up))
    result = torch.copysign(result, near)  # What rounds to 0 keeps its sign.
    return torch.where(torch.isfinite(wide) & torch.isfinite(result), result, near)


def neighbour(x: torch.Tensor, target: DType, *, up: bool) -> torch.Tensor:
    """Returns the next larger or smaller value of the target format."""
    step = 0x2000 if target is dt.tfloat32 else 1
    bits_dtype = BITS[x.dtype.itemsize * 8]
    low_bits = torch.iinfo(bits_dtype).max
    raw = x.contiguous().view(bits_dtype).long()
    # A monotonic integer for each float: negative floats count downwards.
    order = torch.where(raw < 0, -(raw & low_bits), raw) + (step if up else -step)
    bits = torch.where(order < 0, (-order) | ~low_bits, order)
    return bits.to(bits_dtype).view(x.dtype)


def _int_to_float(x: torch.Tensor, source: DType, target: DType) -> torch.Tensor:
    held = held_dtype(target)
    if source is dt.uint64:
        # Halve with the lost bit kept as a sticky bit, convert, and double: one rounding.
        halved = ((x >> 1) & 0x7FFFFFFFFFFFFFFF) | (x & 1)
        wide = _int64_to_float(halved, held) * 2
        return torch.where(x < 0, wide, _int64_to_float(x, held))
    if dt.is_boolean(source) or source.bitwidth < 64:
        return x.double()
    return _int64_to_float(x, held)


def _int64_to_float(x: torch.Tensor, held: torch.dtype) -> torch.Tensor:
    """Converts int64, rounded once: to float64, or to float32, or ready for fewer bits."""
    if held in (torch.float64, torch.float32):
        return x.to(held)
    # float64 keeps 53 bits, so fold what it would lose into a sticky bit first.
    big = x.abs() >= 1 << 52
    folded = ((x >> 11) | ((x & 0x7FF) != 0).long()).double() * 2048.0
    return torch.where(big, folded, x.double())


def _float_to_int(x: torch.Tensor, target: DType) -> torch.Tensor:
    info = dt.IntegerInfo(target)
    wide = x.double().nan_to_num(nan=0.0, posinf=torch.inf, neginf=-torch.inf).trunc()
    low, high = info.min, info.max
    if target.bitwidth < 64:
        return wrap(wide.clamp(low, high).long(), target)
    if target is dt.int64:
        inside = wide.clamp(-(2.0**63), 2.0**63 - 1024).long()
        return torch.where(wide >= 2.0**63, high, inside)
    upper = (wide.clamp(2.0**63, 2.0**64 - 2048) - 2.0**63).long() ^ (-(2**63))
    inside = torch.where(wide >= 2.0**63, upper, wide.clamp(0.0, 2.0**63 - 1024).long())
    return torch.where(wide >= 2.0**64, -1, inside)


def flush_subnormals(x: torch.Tensor) -> torch.Tensor:
    """Takes float32 subnormals to zero of the same sign, as ``flush_to_zero`` does."""
    return x * (x.abs() >= torch.finfo(torch.float32).tiny)
