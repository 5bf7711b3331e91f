"""Locates matrix operands: parses shapes, decodes shared-memory descriptors, applies swizzles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import formats
from mla_var3.emulator.formats import F16, F32, U16, U32

#: Swizzle of a tensor map (0, 1, 2, 3 is none, 32, 64, 128 bytes): the address bits that it flips.
SWIZZLE = {0: 0, 1: 0x10, 2: 0x30, 3: 0x70}
#: The same of a wgmma descriptor, whose codes run the other way.
DESCRIPTOR_SWIZZLE = {0: 0, 1: 3, 2: 2, 3: 1}
#: Above this, and below its inverse, an operand times a scale factor may leave float32.
FAR = F32(2.0**40)


@dataclass(frozen=True)
class Shape:
    """An ``mma.sync``: sizes, and types of D, A and B."""

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    saturate: bool = False


@dataclass(frozen=True, eq=False)
class Wgmma:
    """A ``wgmma.mma_async``: sizes, types, rows of the accumulator and of A, majors.

    ``negative`` products are subtracted. ``saturate`` clamps integer sums (``.satfinite``).
    """

    n: int
    k: int
    d: str
    a: str
    b: str
    rows: NDArray[np.int64]
    a_rows: NDArray[np.int64] | None
    negative: bool
    a_transposed: bool
    b_transposed: bool
    saturate: bool = False

    @cached_property
    def outputs(self) -> frozenset[int]:
        """Rows of the accumulator."""
        return frozenset(self.rows.tolist())

    @cached_property
    def inputs(self) -> frozenset[int]:
        """Rows of A, where it is in registers."""
        return frozenset() if self.a_rows is None else frozenset(self.a_rows.tolist())

    @cached_property
    def span(self) -> Any:
        """The accumulator's rows as an index: a slice where they follow each other."""
        first, n = int(self.rows[0]), len(self.rows)
        return slice(first, first + n) if (np.diff(self.rows) == 1).all() else self.rows


def element_bytes(kind: str) -> int:
    """Bytes per element of an operand type."""
    return {"f16": 2, "bf16": 2, "tf32": 4, "f64": 8}.get(kind, 1)


def scaled(x: NDArray[Any], factors: NDArray[Any]) -> NDArray[Any]:
    """Operands times their scale factors, in float64 where float32 might not hold them.

    Large factors of A and small ones of B give sums that float32 holds.
    """
    far = (factors > FAR) | (factors < 1 / FAR)
    return x * (factors.astype(np.float64) if far.any() else factors)


def values(codes: NDArray[Any], kind: str) -> NDArray[Any]:
    """Codes (unsigned integers of the element's width) to values as floats."""
    match kind:
        case "f16":
            return codes.view(F16).astype(F32)
        case "bf16":
            return formats.from_bf16(codes)
        case "tf32":
            return (codes & U32(0xFFFFE000)).view(F32)
        case "s8":
            return codes.view(np.int8).astype(np.float64)
        case "u8":
            return codes.astype(np.float64)
    return formats.decode(codes, kind)


def swizzled(address: NDArray[np.int64], mode: int) -> NDArray[np.int64]:
    """Shared byte addresses after the swizzle of a tensor map."""
    return address ^ ((address >> 3) & SWIZZLE[mode]) if mode else address


@dataclass(frozen=True)
class Descriptor:
    """A shared-memory matrix descriptor of wgmma, in bytes (PTX ISA, "matrix-descriptor")."""

    start: int
    leading: int
    stride: int
    offset: int
    swizzle: int

    @classmethod
    def of(cls, word: int) -> Descriptor:
        """Read the 64-bit word."""
        return cls(
            (word & 0x3FFF) << 4,
            ((word >> 16) & 0x3FFF) << 4,
            ((word >> 32) & 0x3FFF) << 4,
            (word >> 49) & 7,
            DESCRIPTOR_SWIZZLE[(word >> 62) & 3],
        )

    def word(self) -> int:
        """The 64-bit word."""
        code = {v: k for k, v in DESCRIPTOR_SWIZZLE.items()}[self.swizzle]
        return (
            self.start >> 4
            | self.leading >> 4 << 16
            | self.stride >> 4 << 32
            | self.offset << 49
            | code << 62
        )

    def chunks(self, rows: int, depth: int, size: int, transposed: bool) -> NDArray[np.int64]:
        """Addresses of the 16-byte pieces of a tile.

        Returns:
            [rows, depth / n] where rows are contiguous along k (n elements per piece), or
            [depth, rows / n] where they are contiguous along m or n.
        """
        at = pieces(self.leading, self.stride, self.swizzle, rows, depth, size, transposed)
        return swizzled(self.start + at, self.swizzle)


@lru_cache(maxsize=256)
def pieces(
    leading: int, stride: int, swizzle: int, rows: int, depth: int, size: int, transposed: bool
) -> NDArray[np.int64]:
    """Where the pieces of a tile are from its start, before the swizzle."""
    n, width = 16 // size, 16 << swizzle
    if not transposed:
        i, k = np.arange(rows)[:, None], np.arange(0, depth * size, 16)[None, :]
        inner = k if swizzle else (k // 16) * leading
        return (i // 8) * stride + (i % 8) * width + inner
    k, i = np.arange(depth)[:, None], np.arange(0, rows, n)[None, :]
    if not swizzle:
        return (i // n) * stride + (k % 8) * 16 + (k // 8) * leading
    tile = width // size
    return (i % tile) * size + (i // tile) * leading + (k % 8) * width + (k // 8) * stride


def half_pairs(codes: NDArray[Any]) -> NDArray[np.uint32]:
    """Two codes of 16 bits to a word, along the last axis."""
    return np.ascontiguousarray(codes, U16).view(U32)[..., 0]
