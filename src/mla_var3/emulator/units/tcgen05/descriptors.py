"""Decodes ``tcgen05`` opcodes, instruction descriptors and shared-memory operand descriptors."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.units.layouts import pieces, swizzled

#: Layout codes of an operand's descriptor to swizzles of 16 << swizzle bytes.
SWIZZLES = {0: 0, 2: 3, 4: 2, 6: 1}
#: Operand formats by their codes, per kind.
FORMATS = {
    "f16": {0: "f16", 1: "bf16"},
    "tf32": {2: "tf32"},
    "i8": {0: "u8", 1: "s8"},
    "f8f6f4": {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"},
    "mxf4": {1: "e2m1"},
}
FORMATS |= {"mxf8f6f4": FORMATS["f8f6f4"], "mxf4nvf4": FORMATS["mxf4"]}
#: Elements along k of one product; 32 where it is not said.
DEPTHS = {"f16": 16, "tf32": 8, "mxf4": 64, "mxf4nvf4": 64}
ACCUMULATORS = {0: "f16", 1: "f32", 2: "s32"}
#: Rows that one CTA's product has, and a pair's.
ROWS = {False: (64, 128), True: (128, 256)}
#: Rows and columns of one that keeps B in place (".ws").
STATIONARY = (32, 64, 128), (64, 128, 256)


class NotEmulated(ValueError):
    """A descriptor asks for what is not emulated, or for what there is not."""


@dataclass(frozen=True)
class Kind:
    """What the opcode of a ``tcgen05.mma`` says.

    Attributes:
        name: Its kind, such as ``f16``.
        pair: Whether two CTAs work together.
        block: Elements per scale factor; 0 where there are none.
        stationary: Whether it keeps B in place (``.ws``).
    """

    name: str
    pair: bool
    block: int = 0
    stationary: bool = False

    def folds(self, rows: int) -> int:
        """In how many parts the columns of an accumulator lie, in lanes one above the other.

        Data path layouts B, E and G of the PTX ISA; the others have one part.
        """
        return 128 // rows if self.stationary or (self.pair and rows == 64) else 1


@dataclass(frozen=True)
class Product:
    """An instruction descriptor, read ("tcgen05-instruction-descriptor" in the PTX ISA).

    ``packed`` operands have two elements of 4 bits to a byte. ``a_scale`` and ``b_scale`` are the
    bytes of a word at which scale factors begin.
    """

    m: int
    n: int
    k: int
    a: str
    b: str
    d: str
    a_transposed: bool
    b_transposed: bool
    negative: bool
    saturates: bool
    scale: str
    a_scale: int
    b_scale: int

    @property
    def packed(self) -> bool:
        return self.k == 64

    @classmethod
    @lru_cache(maxsize=256)
    def of(cls, word: int, kind: Kind) -> Product:
        """Read the 32-bit word.

        Raises:
            NotEmulated: It names what the kind does not have.
        """
        if word >> 2 & 1:
            raise NotEmulated("a sparse tcgen05.mma is not emulated")
        scaled = kind.block > 0
        m, n = _sizes(word, kind)
        return cls(
            m,
            n,
            DEPTHS.get(kind.name, 32),
            _format(kind, word >> 7 & 7),
            _format(kind, word >> 10 & 7),
            "f32" if scaled else ACCUMULATORS.get(word >> 4 & 3, "f32"),
            bool(word >> 15 & 1),
            bool(word >> 16 & 1),
            bool((word >> 13 ^ word >> 14) & 1),
            kind.name == "i8" and bool(word >> 3 & 1),
            "ue8m0" if word >> 23 & 1 else "ue4m3",
            word >> 29 & 3,
            word >> 4 & 3,
        )


def _format(kind: Kind, code: int) -> str:
    formats = FORMATS[kind.name]
    if code not in formats:
        raise NotEmulated(f"kind::{kind.name} has no operand format {code}")
    return formats[code]


def _sizes(word: int, kind: Kind) -> tuple[int, int]:
    """Rows and columns of a product."""
    m, n = (word >> 24 & 31) << 4, (word >> 17 & 63) << 3
    if kind.stationary:
        there_is = m in STATIONARY[0] and n in STATIONARY[1]
    else:
        there_is = m in ROWS[kind.pair] and 8 <= n <= 256
    if not there_is:
        name = f"tcgen05.mma{'.ws' * kind.stationary}"
        raise NotEmulated(f"there is no {name} of {m} x {n} by {1 + kind.pair} CTAs")
    return m, n


@dataclass(frozen=True)
class Matrix:
    """An operand's descriptor in bytes ("tcgen05-shared-memory-descriptor" in the PTX ISA)."""

    start: int
    leading: int
    stride: int
    swizzle: int

    @classmethod
    @lru_cache(maxsize=1024)
    def of(cls, word: int) -> Matrix:
        """Read the 64-bit word.

        Raises:
            NotEmulated: It has a layout or a mode that is not emulated.
        """
        code = word >> 61 & 7
        if code not in SWIZZLES or word >> 52 & 1:
            raise NotEmulated(
                f"a matrix descriptor {word:#x} of layout {code} or with an absolute leading "
                "offset is not emulated"
            )
        return cls(
            (word & 0x3FFF) << 4,
            (word >> 16 & 0x3FFF) << 4,
            (word >> 32 & 0x3FFF) << 4,
            SWIZZLES[code],
        )

    def chunks(self, rows: int, depth: int, size: int, transposed: bool) -> NDArray[np.int64]:
        """Addresses of the 16-byte pieces of a tile; see ``layouts.Descriptor.chunks``."""
        at = pieces(self.leading, self.stride, self.swizzle, rows, depth, size, transposed)
        return swizzled(self.start + at, self.swizzle)

    def is_aligned(self) -> bool:
        """Whether the tile starts where the pattern of its swizzle does, but for a step along k."""
        return not self.swizzle or self.start % (128 << self.swizzle) < 16 << self.swizzle


@lru_cache(maxsize=64)
def lanes_of(rows: int, pair: bool, base: int) -> tuple[Any, slice]:
    """Lanes of tensor memory that hold the rows of a matrix, and their blocks of 16.

    Args:
        rows: Rows per CTA.
        pair: Whether the matrix is spread over two CTAs.
        base: Lane of its address.

    Raises:
        NotEmulated: No such matrix begins at that lane.
    """
    if rows == 128 and not base:
        return slice(0, 128), slice(0, 8)
    if rows == 64 and pair and not base:
        return slice(0, 64), slice(0, 8)
    if rows == 64 and not pair and base in (0, 16):
        at = np.arange(64)
        return at // 16 * 32 + at % 16 + base, slice(base // 16, 8, 2)
    raise NotEmulated(f"{rows} rows in tensor memory cannot begin at lane {base}")
