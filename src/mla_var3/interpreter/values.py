"""Holds tile values of cuTile's dtypes in torch tensors or numbers, and takes them to memory.

A tile of rank 0 with an integer or bool dtype is a Python ``int`` or ``bool`` (index arithmetic is
most of what a kernel executes, and Python integers are far cheaper than tensors). Every other tile
is a torch tensor of the dtype that ``held_dtype`` names:

* uint16 is held in int32, uint32 and uint64 in int64 (uint64 as its two's complement), because
  torch has no arithmetic for them; results are wrapped to the width.
* tfloat32 and the 8-bit and 4-bit floats are held in float32, which represents each of their
  values exactly; they are rounded when a value is converted to them.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType

from mla_var3.interpreter.minifloats import MINIFLOATS, decode_table, minifloat_bits

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
BITS = {8: torch.uint8, 16: torch.int16, 32: torch.int32, 64: torch.int64}

_MEMORY: dict[DType, torch.dtype] = {
    **{d: _HELD[d] for d in (dt.bool_, dt.int8, dt.int16, dt.int32, dt.int64, dt.uint8)},
    **{d: _HELD[d] for d in (dt.float16, dt.bfloat16, dt.float32, dt.float64, dt.tfloat32)},
    dt.uint16: torch.int16,
    dt.uint32: torch.int32,
    dt.uint64: torch.int64,
}


def held_dtype(dtype: DType) -> torch.dtype:
    """Returns the torch dtype in which tiles of ``dtype`` are held (pointers: int64)."""
    return _HELD.get(dtype, torch.int64)


def memory_dtype(dtype: DType) -> torch.dtype:
    """Returns the torch dtype by which array elements of ``dtype`` are read and written."""
    return _MEMORY.get(dtype, torch.uint8 if dtype in MINIFLOATS else torch.int64)


def same_in_memory(dtype: DType) -> bool:
    """Tells whether an element in memory is already what is held."""
    return dtype not in MINIFLOATS and memory_dtype(dtype) == held_dtype(dtype)


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


def to_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the bits of held values, as a torch integer dtype of the same width.

    They are those that the values came with: infinities and each NaN of an 8-bit format survive,
    for saturation belongs to conversion.
    """
    if dtype in MINIFLOATS:
        return minifloat_bits(x, dtype)
    bits = BITS[dtype.bitwidth]
    return x.contiguous().view(bits) if x.dtype.itemsize == bits.itemsize else x.to(bits)


def from_bits(x: torch.Tensor, dtype: DType) -> torch.Tensor:
    """Returns the held values that bits stand for; the inverse of ``to_bits``."""
    if dtype in MINIFLOATS:
        return decode_table(dtype)[x.long() & 0xFF]
    held = held_dtype(dtype)
    if held.itemsize * 8 == dtype.bitwidth:
        return x.contiguous().view(held)
    return wrap(x.to(held), dtype)
