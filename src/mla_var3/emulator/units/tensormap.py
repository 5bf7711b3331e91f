"""Decodes and encodes TMA tensor maps (128 bytes, sm_90 and later) and locates the boxes they cut.

The layout is not documented; it was read from the host code that the CuTe DSL generates and
confirmed by running its examples.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.units.layouts import swizzled
from mla_var3.errors import EmulatorError

#: Bytes per element by the hardware's code of the type.
ELEMENT = {0: 1, 1: 2, 2: 4, 3: 4, 4: 8, 5: 8, 6: 2, 7: 4, 8: 4, 9: 8, 10: 2}
NAMES = {
    0: "u8",
    1: "u16",
    2: "u32",
    3: "s32",
    4: "u64",
    5: "s64",
    6: "f16",
    7: "f32",
    8: "f32",
    9: "f64",
    10: "bf16",
}
CODES = {
    "u8": 0,
    "u16": 1,
    "u32": 2,
    "s32": 3,
    "u64": 4,
    "s64": 5,
    "f16": 6,
    "f32": 7,
    "f64": 9,
    "bf16": 10,
}
BYTES = 128
#: Code of packed 4-bit elements, as seen in the DSL's block-scaled product for sm_120.
FOUR_BITS = 11


#: Extent from which on a dimension is none of a tensor's.
RAGGED = 1 << 30


@dataclass(frozen=True)
class TensorMap:
    """A tensor in global memory and the box that one copy moves; innermost dimension first.

    Attributes:
        base: Address of the tensor.
        kind: Code of the element type.
        dims: Elements per dimension.
        strides: Bytes from one index to the next, per dimension.
        box: Elements of a box per dimension.
        steps: Element strides; 1 takes every element.
        swizzle: 0, 1, 2, 3 is none, 32, 64, 128 bytes.
        interleave: Not 0 for interleaved layouts, which are not emulated.
        nan_fill: Elements out of bounds are NaN, not zero.
        halves: Elements have 4 bits, two to a byte: all but coordinates counts bytes.
    """

    base: int
    kind: int
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    swizzle: int = 0
    interleave: int = 0
    nan_fill: bool = False
    halves: bool = False

    @classmethod
    def decode(cls, raw: bytes) -> TensorMap:
        """Read the 128 bytes.

        Raises:
            EmulatorError: They name no element type.
        """
        q = struct.unpack("<16Q", raw)
        flags = q[1] & 0xFFFFFFFF
        rank, kind = ((flags >> 4) & 7) + 1, (flags >> 7) & 15
        halves = kind == FOUR_BITS
        kind = CODES["u8"] if halves else kind
        if kind not in ELEMENT or rank > 5:
            raise EmulatorError(f"a tensor map with element type {kind} and rank {rank} is none")
        low = [q[1] >> 32, q[2] & 0xFFFFFFFF, q[2] >> 32, q[3] & 0xFFFFFFFF]
        high = [(q[3] >> (32 + 4 * i)) & 15 for i in range(4)]
        strides = [ELEMENT[kind], *(((low[i] + (high[i] << 32)) << 4) for i in range(4))]
        dims = [q[4] & 0xFFFFFFFF, q[4] >> 32, q[5] & 0xFFFFFFFF, q[5] >> 32, q[6] & 0xFFFFFFFF]
        boxes = [(q[6] >> 56) & 255, *((q[7] >> (8 * i)) & 255 for i in range(4))]
        steps = [(((q[6] >> 32) >> (3 * i)) & 7) + 1 for i in range(5)]
        if halves:
            dims[0], boxes[0] = dims[0] // 2, boxes[0] // 2
        return cls(
            q[0],
            kind,
            tuple(d + 1 for d in dims[:rank]),
            tuple(strides[:rank]),
            tuple(b + 1 for b in boxes[:rank]),
            tuple(steps[:rank]),
            (flags >> 13) & 3,
            (flags >> 11) & 3,
            bool((flags >> 16) & 1),
            halves,
        )

    def encode(self) -> bytes:
        """The 128 bytes."""
        rank = len(self.dims)
        pad = (0,) * (5 - rank)
        strides = [*(s >> 4 for s in self.strides[1:]), *pad][:4]
        dims = [*(d - 1 for d in self._in_elements(self.dims)), *pad]
        boxes = [*(b - 1 for b in self._in_elements(self.box)), *pad]
        q = [0] * 16
        q[0] = self.base
        kind = FOUR_BITS if self.halves else self.kind
        flags = (rank - 1) << 4 | kind << 7 | self.interleave << 11 | self.swizzle << 13
        flags |= int(self.nan_fill) << 16
        low, high = [s & 0xFFFFFFFF for s in strides], [s >> 32 for s in strides]
        q[1] = flags | low[0] << 32
        q[2] = low[1] | low[2] << 32
        q[3] = low[3] | sum(h << (32 + 4 * i) for i, h in enumerate(high))
        q[4], q[5] = dims[0] | dims[1] << 32, dims[2] | dims[3] << 32
        q[6] = (
            dims[4]
            | sum((s - 1) << (32 + 3 * i) for i, s in enumerate(self.steps))
            | boxes[0] << 56
        )
        q[7] = sum(b << (8 * i) for i, b in enumerate(boxes[1:]))
        return struct.pack("<16Q", *q)

    def _in_elements(self, extents: tuple[int, ...]) -> tuple[int, ...]:
        return (2 * extents[0], *extents[1:]) if self.halves else extents

    def counted(self, box: tuple[int, ...]) -> tuple[int, ...]:
        """Coordinates of a box in what the map counts."""
        return (box[0] // 2, *box[1:]) if self.halves else box

    @property
    def element(self) -> int:
        """Bytes per element."""
        return ELEMENT[self.kind]

    @cached_property
    def is_ragged(self) -> bool:
        """Whether its extents are no tensor's: rows are placed by coordinates that wrap around.

        Kernels for sequences of different lengths make such maps, whose one dimension is clipped
        where a sequence ends, and whose others take the base there.
        """
        return max(self.dims) >= RAGGED

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """Elements that a copy moves per dimension."""
        return tuple(-(-b // s) for b, s in zip(self.box, self.steps, strict=True))

    @cached_property
    def count(self) -> int:
        """Bytes of a box in shared memory."""
        return int(np.prod(self.shape)) * self.element

    def __str__(self) -> str:
        return f"{NAMES[self.kind]} tensor map of {list(self.dims)}, box {list(self.box)}"

    def clipped(self, at: tuple[int, ...]) -> list[tuple[int, int]]:
        """Per dimension the elements of the box at ``at`` that are inside: first, one past last."""
        out = []
        for c, n, d, step in zip(at, self.shape, self.dims, self.steps, strict=True):
            first = max(0, -(c // step))
            last = min(n, max(0, -(-(d - c) // step)))
            out.append((min(first, n), max(last, min(first, n))))
        return out

    def window(
        self, at: tuple[int, ...], clip: list[tuple[int, int]]
    ) -> tuple[int, int, tuple[int, ...], tuple[int, ...]]:
        """Lowest address, bytes spanned, shape and strides of the inside part, outermost first."""
        start = self.base + sum(
            (c + f * e) * s
            for c, (f, _), s, e in zip(at, clip, self.strides, self.steps, strict=True)
        )
        shape = tuple(last - first for first, last in clip)
        strides = tuple(s * e for s, e in zip(self.strides, self.steps, strict=True))
        span = sum((n - 1) * s for n, s in zip(shape, strides, strict=True)) + self.element
        return start, span, shape[::-1], strides[::-1]


def tile_chunks(start: int, count: int, swizzle: int) -> NDArray[np.int64]:
    """Where each 16-byte piece of a box goes, in pieces."""
    return swizzled(start + np.arange(0, count, 16), swizzle) // 16


def tiled(
    base: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    kind: str,
    swizzle: int = 0,
) -> TensorMap:
    """A map of a strided tensor, innermost first, as a host would encode it.

    Args:
        base: Address, a multiple of 16.
        dims: Elements per dimension.
        strides: Bytes per dimension; the innermost is the element's size.
        box: Elements of a box.
        kind: Element type, such as ``f16``.
        swizzle: 0, 1, 2, 3 is none, 32, 64, 128 bytes.
    """
    return TensorMap(base, CODES[kind], dims, strides, box, (1,) * len(dims), swizzle)


#: Codes of the driver's CUtensorMapDataType, as the hardware's.
DRIVER_CODES = {code: code for code in range(8)} | {8: 9, 9: 10, 10: 8}
#: The driver's code of 4-bit elements that lie as densely in shared memory: 16 in 8 bytes.
PACKED_FOUR_BITS = 13


def encoded(
    kind: int,
    base: int,
    dims: tuple[int, ...],
    strides: tuple[int, ...],
    box: tuple[int, ...],
    steps: tuple[int, ...],
    modes: tuple[int, int, int],
) -> bytes:
    """What ``cuTensorMapEncodeTiled`` writes; its arguments, innermost dimension first.

    Args:
        kind: CUtensorMapDataType.
        base: Address of the tensor.
        dims: Elements per dimension.
        strides: Bytes per dimension but the innermost.
        box: Elements of a box.
        steps: Element strides.
        modes: Interleave, swizzle, and fill out of bounds, as the driver counts them.

    Raises:
        EmulatorError: The driver would refuse them, or they are not emulated.
    """
    interleave, swizzle, fill = modes
    if halves := kind == PACKED_FOUR_BITS:
        kind, dims, box = CODES["u8"], _bytes(dims), _bytes(box)
    if kind not in DRIVER_CODES or interleave or swizzle > 3:
        raise EmulatorError(
            f"a tensor map of data type {kind}, interleave {interleave} and swizzle {swizzle} "
            "is not emulated"
        )
    if base % 16 or any(s % 16 for s in strides) or not all(0 < b <= 256 for b in box):
        raise EmulatorError(
            f"cuTensorMapEncodeTiled refuses base {base:#x}, strides {list(strides)} and box "
            f"{list(box)}: base and strides are multiples of 16, and a box holds 1 to 256"
        )
    code = DRIVER_CODES[kind]
    every = (ELEMENT[code], *strides)
    made = TensorMap(base, code, dims, every, box, steps, swizzle, 0, bool(fill), halves)
    return made.encode()


def _bytes(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Extents in bytes, of 4-bit elements."""
    return (extents[0] // 2, *extents[1:])


def replaced(raw: bytes, field: str, ordinal: int, value: int) -> bytes:
    """``tensormap.replace``: the 128 bytes with one field changed.

    A field of a dimension beyond the map's rank may be written too: it is not looked at.

    Raises:
        EmulatorError: The field is not known.
    """
    q = list(struct.unpack("<16Q", raw))

    def put(word: int, first: int, width: int, code: int) -> None:
        mask = (1 << width) - 1
        q[word] = q[word] & ~(mask << first) | (code & mask) << first

    match field:
        case "global_address":
            q[0] = value
        case "global_dim":
            put(4 + ordinal // 2, 32 * (ordinal % 2), 32, value - 1)
        case "global_stride":
            put(1 + (ordinal + 1) // 2, 32 * ((ordinal + 1) % 2), 32, value >> 4)
            put(3, 32 + 4 * ordinal, 4, value >> 36)
        case "box_dim":
            put(*((6, 56) if ordinal == 0 else (7, 8 * (ordinal - 1))), 8, value - 1)
        case "element_stride":
            put(6, 32 + 3 * ordinal, 3, value - 1)
        case "swizzle_mode":
            put(1, 13, 2, value)
        case "rank":
            put(1, 4, 3, value)
        case "elemtype" if value in ELEMENT:
            put(1, 7, 4, value)
        case "interleave_layout":
            put(1, 11, 2, value)
        case "fill_mode":
            put(1, 16, 1, value)
        case _:
            raise EmulatorError(f"tensormap.replace of {field} by {value} is not emulated")
    return struct.pack("<16Q", *q)
