"""Converts tile values between cuTile's dtypes and the torch tensors or numbers that hold them.

A tile of rank 0 with an integer or bool dtype is a Python ``int`` or ``bool`` (index arithmetic is
most of what a kernel executes, and Python integers are far cheaper than tensors). Every other tile
is a torch tensor of the dtype that ``held_dtype`` names:

* uint16 is held in int32, uint32 and uint64 in int64 (uint64 as its two's complement), because
  torch has no arithmetic for them; results are wrapped to the width.
* tfloat32 and the 8-bit and 4-bit floats are held in float32, which represents each of their
  values exactly; they are rounded when a value is converted to them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._numeric_semantics import RoundingMode

Value = Any  # int, bool or torch.Tensor, see the module's docstring

_HELD: dict[DType, torch.dtype] = {
    dt.bool_: torch.bool,
    dt.int8: torch.int8,
    dt.int16: torch.int16,
    dt.int32: torch.int32,
    dt.int64: torch.int64,
    dt.uint8: torch.uint8,
    dt.uint16: torch.int32,
    dt.uint32: torch.int64,
    dt.uint64: torch.int64,
    dt.float16: torch.float16,
    dt.bfloat16: torch.bfloat16,
    dt.float32: torch.float32,
    dt.float64: torch.float64,
    dt.tfloat32: torch.float32,
    dt.float8_e4m3fn: torch.float32,
    dt.float8_e5m2: torch.float32,
    dt.float8_e8m0fnu: torch.float32,
    dt.float8_e5m3fnu: torch.float32,
    dt.float4_e2m1fn: torch.float32,
}

# Held wider than they are, with the bits that they have.
_NARROWED: dict[DType, int] = {dt.uint16: 0xFFFF, dt.uint32: 0xFFFFFFFF}

# What an array of the dtype is in memory, as bits torch can reinterpret.
_BITS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}

_MEMORY: dict[DType, torch.dtype] = {
    **{d: _HELD[d] for d in (dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8)},
    **{d: _HELD[d] for d in (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.tfloat32)},
    dt.uint16: torch.int16,
    dt.uint32: torch.int32,
    dt.uint64: torch.int64,
}


class _Format(NamedTuple):
    """An 8-bit or 4-bit float format: bits of its parts, largest finite code, code of NaN."""

    exponent: int
    mantissa: int
    signed: bool
    top: int
    nan: int | None


_MINIFLOATS: dict[DType, _Format] = {
    dt.float8_e4m3fn: _Format(4, 3, True, 0x7E, 0x7F),
    dt.float8_e5m2: _Format(5, 2, True, 0x7B, 0x7F),
    dt.float8_e8m0fnu: _Format(8, 0, False, 0xFE, 0xFF),
    dt.float8_e5m3fnu: _Format(5, 3, False, 0xFE, 0xFF),
    dt.float4_e2m1fn: _Format(2, 1, True, 0x7, None),
}


def held_dtype(dtype: DType) -> torch.dtype:
    """Returns the torch dtype in which tiles of ``dtype`` are held (pointers: int64)."""
    return _HELD.get(dtype, torch.int64)


def memory_dtype(dtype: DType) -> torch.dtype:
    """Returns the torch dtype by which array elements of ``dtype`` are read and written."""
    return _MEMORY.get(dtype, torch.uint8 if dtype in _MINIFLOATS else torch.int64)


def same_in_memory(dtype: DType) -> bool:
    """Tells whether an element in memory is already what is held."""
    return dtype not in _MINIFLOATS and memory_dtype(dtype) == held_dtype(dtype)


def from_memory(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Converts elements as ``memory_dtype`` has them to held values."""
    if same_in_memory(dtype):
        return x
    return from_bits(x, dtype)


def to_memory(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Converts held values to elements as ``memory_dtype`` has them."""
    if same_in_memory(dtype):
        return x
    return to_bits(x, dtype)


def is_scalar_type(dtype: DType, shape: tuple[int, ...]) -> bool:
    """Tells whether a tile of this type is held as a Python int or bool."""
    return shape == () and (dt.is_integral(dtype) or dt.is_boolean(dtype))


def wrap_int(value: int, dtype: DType) -> int:
    """Wraps a Python integer to the range of an integer dtype."""
    bits = dtype.bitwidth
    value &= (1 << bits) - 1
    if dt.is_signed(dtype) and value >> (bits - 1):
        value -= 1 << bits
    return value


def wrap(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Wraps integers to the width of ``dtype``; a no-op where torch wraps by itself."""
    held = _HELD[dtype]
    # Widened first: a mask that is wider than the tensor's dtype would wrap with it.
    x = x if x.dtype == held else x.to(held)
    return x & _NARROWED[dtype] if dtype in _NARROWED else x


def to_tensor(value: Value, dtype: DType) -> torch.Tensor:
    """Returns a tensor for a value that may be a Python scalar."""
    if isinstance(value, torch.Tensor):
        return value
    if dtype is dt.uint64:
        value = wrap_int(value, dt.int64)
    return torch.tensor(value, dtype=held_dtype(dtype))


def to_scalar(x: Value, dtype: DType) -> int | bool:
    """Returns the Python scalar for a one-element integer or bool tensor."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.dtype == torch.bool:
        return bool(x.item())
    return wrap_int(int(x.item()), dtype)


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


# ------------------------------------------------------------------------------------ bits


def to_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the bits of held values, as a torch integer dtype of the same width.

    They are those that the values came with: infinities and each NaN of an 8-bit format survive,
    for saturation belongs to conversion.
    """
    if dtype in _MINIFLOATS:
        return _minifloat_bits(x, dtype)
    bits = _BITS[dtype.bitwidth]
    return x.contiguous().view(bits) if x.dtype.itemsize == bits.itemsize else x.to(bits)


def from_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the held values that bits stand for; the inverse of ``to_bits``."""
    if dtype in _MINIFLOATS:
        return _decode_table(dtype)[x.long() & 0xFF]
    held = held_dtype(dtype)
    if held.itemsize * 8 == dtype.bitwidth:
        return x.contiguous().view(held)
    return wrap(x.to(held), dtype)


def _minifloat_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the codes of values that the format has, infinities and NaNs included."""
    codes = encode_minifloat(x, dtype)
    special, form = ~torch.isfinite(x), _MINIFLOATS[dtype]
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
def _decode_table(dtype: DType) -> torch.Tensor:
    exponent_bits, mantissa_bits, signed, _, nan = _MINIFLOATS[dtype]
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
    _, _, signed, top, nan = _MINIFLOATS[dtype]
    grid = _decode_table(dtype)[: top + 1].double()
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


# ------------------------------------------------------------------------------- conversions

_DIRECTED = (RoundingMode.RZ, RoundingMode.RM, RoundingMode.RP, RoundingMode.RA)


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
    if target in _MINIFLOATS:
        if mode is None and target is dt.float8_e8m0fnu:
            mode = RoundingMode.RZ  # the nearest-even mode does not exist for this format
        return _decode_table(target)[encode_minifloat(x, target, mode or RoundingMode.RN).long()]
    if mode in _DIRECTED:
        return _round_directed(x, target, mode)
    if target is dt.tfloat32:
        return _round_tf32(x if x.dtype != torch.float64 else _round_to_odd(x))
    held = held_dtype(target)
    if x.dtype == torch.float64 and held in (torch.float16, torch.bfloat16):
        x = _round_to_odd(x)
    return x.to(held)


def _round_to_odd(x: torch.Tensor) -> torch.Tensor:
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
    down = torch.where(near.double() > wide, _neighbour(near, target, up=False), near)
    up = torch.where(near.double() < wide, _neighbour(near, target, up=True), near)
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


def _neighbour(x: torch.Tensor, target: DType, *, up: bool) -> torch.Tensor:
    """Returns the next larger or smaller value of the target format."""
    step = 0x2000 if target is dt.tfloat32 else 1
    bits_dtype = _BITS[x.dtype.itemsize * 8]
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


# -------------------------------------------------------------------- exact, directed rounding


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """Square roots rounded to nearest, as on a GPU.

    torch's own on a CPU are those of a vector library: of random values one in a hundred is off by
    one in the last place.
    """
    if x.dtype not in (torch.float32, torch.float64):
        return sqrt(x.float()).to(x.dtype)
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(x.numpy())))


def exact_directed(
    fn: str, operands: tuple[torch.Tensor, ...], dtype: DType, mode: RoundingMode
) -> torch.Tensor:
    """Evaluates one arithmetic operation with a directed rounding mode, exactly.

    Works element by element on rational numbers: slow, and meant for the rare kernel that asks
    for a directed mode.

    Args:
        fn: ``"add"``, ``"sub"``, ``"mul"``, ``"truediv"``, ``"fma"`` or ``"sqrt"``.
        operands: Float tensors of one shape and dtype.
        dtype: The dtype.
        mode: RZ, RM or RP.
    """
    near = _EXACT_FALLBACK[fn](*operands)
    flat = [op.double().flatten().tolist() for op in operands]
    results = near.double().flatten().tolist()
    out = near.flatten().clone()
    for i, (result, *xs) in enumerate(zip(results, *flat, strict=True)):
        finite = all(x - x == 0 for x in xs) and result == result
        if not finite or (fn == "truediv" and xs[1] == 0) or (fn == "sqrt" and xs[0] < 0):
            continue
        out[i] = _directed_scalar(fn, xs, out[i], dtype, mode)
    return out.reshape(near.shape)


_EXACT_FALLBACK: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "fma": lambda a, b, c: fma(a, b, c),
    "sqrt": sqrt,
}


def _directed_scalar(
    fn: str, xs: list[float], near: torch.Tensor, dtype: DType, mode: RoundingMode
) -> torch.Tensor:
    def sign(candidate: torch.Tensor) -> int:
        """Compares a candidate with the exact result: -1 below, 0 equal, 1 above."""
        value = float(candidate.double())
        if value in (float("inf"), float("-inf")):
            return 1 if value > 0 else -1
        c = Fraction(value)
        if fn == "sqrt":
            exact, c = Fraction(xs[0]), (c * c if c >= 0 else -c * c)
        else:
            exact = _exact(fn, [Fraction(x) for x in xs])
        return (c > exact) - (c < exact)

    down = up = near.reshape(1)
    if mode is RoundingMode.RM and fn in ("add", "sub", "fma") and _cancels(fn, xs):
        return -near.abs()  # IEEE 754-2019, 6.3: an exact zero sum is -0 when rounding down
    while sign(down) > 0:
        down = _neighbour(down, dtype, up=False)
    while sign(up) < 0:
        up = _neighbour(up, dtype, up=True)
    ways = {RoundingMode.RM: down, RoundingMode.RP: up}
    found = ways.get(mode, up if bool(torch.signbit(near)) else down)
    return torch.copysign(found, near)[0]  # What rounds to 0 keeps its sign.


def _cancels(fn: str, xs: list[float]) -> bool:
    """Tells whether a sum is exactly zero without each of its terms being +0."""
    if _exact(fn, [Fraction(x) for x in xs]) != 0:
        return False
    signs = [math.copysign(1.0, x) for x in xs]
    first = signs[0] * signs[1] if fn == "fma" else signs[0]
    last = -signs[-1] if fn == "sub" else signs[-1]
    return (first, last) != (1.0, 1.0)


def _exact(fn: str, xs: list[Fraction]) -> Fraction:
    if fn == "fma":
        return xs[0] * xs[1] + xs[2]
    a, b = xs
    if fn == "add":
        return a + b
    if fn == "sub":
        return a - b
    return a * b if fn == "mul" else a / b


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Returns a*b + c rounded once.

    Done in float64, where the product of two narrower floats is exact. For float16 and bfloat16
    the result is exact too. For float32 the sum is rounded there first, so one result in about
    2**29 can differ from a true fma in its last bit. For float64 the product is rounded too.
    """
    if a.dtype == torch.float64:
        return torch.addcmul(c, a, b)
    if a.dtype == torch.float32:
        return torch.addcmul(c.double(), a.double(), b.double()).float()
    product, term = a.double() * b.double(), c.double()
    total = product + term
    # What the sum lost (Knuth's TwoSum); it decides where the sum is a tie of the narrower format.
    part = total - product
    lost = (product - (total - part)) + (term - part)
    inexact_even = (lost != 0) & ((total.contiguous().view(torch.int64) & 1) == 0)
    inexact_even &= torch.isfinite(total)
    if bool(inexact_even.any()):
        towards = torch.where(lost > 0, torch.inf, -torch.inf).double()
        total = torch.where(inexact_even, torch.nextafter(total, towards), total)
    return _round_to_odd(total).to(a.dtype)
