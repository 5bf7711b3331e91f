"""Arguments of a Triton launch as its kernel's parameters: tuples and tensor descriptors too."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any

from mla_var3.emulator.units.tensormap import encoded
from mla_var3.errors import EmulatorError

#: How a scalar of a signature is passed; bf16 and smaller floats come as their codes.
SCALARS = {
    "i1": "b", "i8": "b", "u8": "B", "i16": "h", "u16": "H", "i32": "i", "u32": "I",
    "i64": "q", "u64": "Q", "fp16": "e", "fp32": "f", "f32": "f", "fp64": "d", "f64": "d",
}  # fmt: skip
#: Codes of elements as the compiler states them, where the driver counts them otherwise.
_DRIVER_CODES = {8: 10, 9: 8, 10: 9}


def packed(kind: str, value: Any) -> bytes:
    """A launch argument as the kernel's parameter.

    Raises:
        EmulatorError: Its type is not emulated.
    """
    if isinstance(value, bytes):
        return value
    if kind.startswith("*"):
        address = value.data_ptr() if hasattr(value, "data_ptr") else int(value or 0)
        return struct.pack("<Q", address)
    if kind not in SCALARS:
        raise EmulatorError(f"a Triton argument of type {kind} is not emulated")
    return struct.pack(f"<{SCALARS[kind]}", value)


def parameters(
    kinds: Sequence[Any], values: Sequence[Any], maps: Sequence[Any] | None = None
) -> Iterator[tuple[str, Any]]:
    """Types and values of a kernel's parameters, without its constants.

    Args:
        kinds: Types of the signature; a tuple's are a tuple.
        values: What the launch passes.
        maps: What the compiler says of each tensor descriptor; None where it uses no tensor map.
    """
    told = iter(maps or ())
    for kind, value in zip(kinds, values, strict=True):
        if isinstance(kind, tuple):
            yield from parameters(kind, value)
        elif str(kind).startswith("tensordesc"):
            yield from _descriptor(str(kind), value, next(told, None))
        elif kind != "constexpr":
            yield str(kind), value


def _descriptor(kind: str, given: Any, told: Any) -> Iterator[tuple[str, Any]]:
    """A descriptor made by the host: its map, or where it lies, then extents and strides."""
    if told is None:
        yield f"*{kind.removeprefix('tensordesc<').partition('[')[0]}", given.base
        yield from (("i64", n) for n in (*given.shape, *given.strides))
        yield "i1", given.padding == "nan"
        shape = given.shape
    else:
        shape = [*given.shape]
        if told["fp4_padded"]:
            shape[-1] *= 2
        yield "nvTmaDesc", _map(given, shape, told)
    yield from (("i32", n) for n in shape)
    yield from (("i64", n) for n in given.strides)


def _map(given: Any, shape: Sequence[int], told: Any) -> bytes:
    """The tensor map of a descriptor; Triton names the innermost axis last."""
    size, kind = told["elem_size"], told["elem_type"]
    box = tuple(reversed(told["block_size"]))
    return encoded(
        _DRIVER_CODES.get(kind, kind),
        given.base.data_ptr(),
        tuple(reversed(shape)),
        tuple(size * n for n in reversed(given.strides[:-1])),
        box,
        (1,) * len(box),
        (0, told["swizzle"], int(given.padding == "nan")),
    )


def tensors(values: Sequence[Any]) -> Iterator[Any]:
    """The tensors among a launch's arguments, those of tuples and descriptors too."""
    for value in values:
        if isinstance(value, tuple | list):
            yield from tensors(value)
        elif hasattr(value, "untyped_storage"):
            yield value
        elif hasattr(getattr(value, "base", None), "untyped_storage"):
            yield value.base
