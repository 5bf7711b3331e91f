"""Array arguments of an interpreted launch, and pointers into and views of them.

Each argument tensor is an ``ArrayArg`` inside a ``Region`` (a range of memory, which arguments that
overlap share).
"""

from __future__ import annotations

import ctypes
import functools
import math
from dataclasses import dataclass
from typing import Any

import torch

from mla_var3.interpreter.footprint import Footprint, Scattered, Strided


class Region:
    """A range of memory that arguments share, with its shadow state.

    It is found by address, not by torch storage: two storages can lie in the same memory, as
    tensors made from slices of one numpy array do.

    Args:
        address: Address of its first byte.
        size: Bytes.
        unit: Bytes of a shadow's entry.
    """

    def __init__(self, address: int, size: int, unit: int) -> None:
        # as_strided counts its offsets from the start of a storage, so the region has its own.
        self.bytes = torch.empty(0, dtype=torch.uint8)
        if size:
            memory = (ctypes.c_ubyte * size).from_address(address)
            self.bytes = torch.frombuffer(memory, dtype=torch.uint8)
        self.address = address
        self.unit = unit
        self.size = size // unit
        self.written = False  # whether this kernel may write here; decided before it starts
        self.version = 0
        self.read_shadow: torch.Tensor | None = None
        self.write_shadow: torch.Tensor | None = None
        self.writer: torch.Tensor | None = None
        self.reader: torch.Tensor | None = None
        self.atomic: torch.Tensor | None = None
        self.undefined: torch.Tensor | None = None
        self.writers: set[int] = set()
        self.readers: set[int] = set()
        self.updaters: set[int] = set()
        self.seen: set[tuple[Any, ...]] = set()
        self._typed: dict[torch.dtype, torch.Tensor] = {}

    def typed(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns the region's memory as a flat tensor of a dtype."""
        flat = self._typed.get(dtype)
        if flat is None:
            count = self.bytes.numel() // dtype.itemsize * dtype.itemsize
            flat = self._typed[dtype] = self.bytes[:count].view(dtype)
        return flat

    def shadow(self, dtype: torch.dtype) -> torch.Tensor:
        """Returns a new, empty shadow: one entry per element."""
        return torch.zeros(self.size, dtype=dtype)


@dataclass(eq=False)
class ArrayArg:
    """One tensor argument.

    Attributes:
        name: Parameter name, with ``[i]`` for an item of a tuple or list.
        region: The region it lies in.
        start: Offset of its first element from the region's start, in elements.
        span: Elements from its first to its last one in memory, both counted.
        shape: Its shape.
        strides: Its strides, in elements.
        itemsize: Bytes per element.
    """

    name: str
    region: Region
    start: int
    span: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    def index_of(self, offset: int) -> str:
        """Returns the index of a region offset in this array, for messages."""
        rest = offset - self.start
        index = [0] * len(self.shape)
        order = sorted(range(len(self.shape)), key=lambda d: -self.strides[d])
        for d in order:
            if self.strides[d] and self.shape[d] > 1:
                index[d], rest = divmod(rest, self.strides[d])
        return f"{self.name}[{', '.join(map(str, index))}]"

    @functools.cached_property
    def overlaps(self) -> bool:
        """Whether two of its indices name one place in memory."""
        reach = 0
        for n, stride in self._axes():
            if stride == 0:
                return True
            if stride <= reach:  # maybe; strides that interleave without a collision are rare
                offsets = Strided(0, self.shape, self.strides).offsets()
                return bool(offsets.unique().numel() < offsets.numel())
            reach += (n - 1) * stride
        return False

    @functools.cached_property
    def gappy(self) -> bool:
        """Whether there are places from its first to its last element that it has not."""
        if self.overlaps:
            return not bool(self._present.all())
        return self.span > math.prod(self.shape)

    @functools.cached_property
    def _present(self) -> torch.Tensor:
        """Which places from its first to its last element it has."""
        mask = torch.zeros(self.span, dtype=torch.bool)
        shape = [1 if s == 0 else n for n, s in zip(self.shape, self.strides, strict=True)]
        Strided(0, shape, self.strides).put(mask, True)
        return mask

    def _axes(self) -> list[tuple[int, int]]:
        """Returns size and stride of each axis that has several indices, smallest stride first."""
        axes = zip(self.shape, self.strides, strict=True)
        return sorted(((n, s) for n, s in axes if n > 1), key=lambda axis: axis[1])

    def distinct(self) -> Footprint:
        """Returns the footprint of the array's distinct elements."""
        shape = [1 if s == 0 else n for n, s in zip(self.shape, self.strides, strict=True)]
        at = Strided(self.start, shape, self.strides)
        return Scattered(at.offsets().unique()) if self.overlaps else at

    def has(self, offsets: torch.Tensor, itemsize: int) -> torch.Tensor:
        """Tells which offsets from the region's start, in units of ``itemsize``, lie in it."""
        low, high = limits(self, itemsize)
        inside = (offsets >= low) & (offsets < high)
        if not self.gappy:
            return inside
        place = offsets * itemsize // self.itemsize - self.start
        return inside & self._present[place.clamp(0, self.span - 1)]


@dataclass(frozen=True, eq=False)
class Pointer:
    """A pointer tile.

    Attributes:
        array: The argument it points into, which it may leave.
        offset: Elements of ``itemsize`` bytes from the region's start: an int, or int64 tensor.
        itemsize: Bytes of the element pointed to.
    """

    array: ArrayArg
    offset: Any
    itemsize: int

    def __repr__(self) -> str:
        return f"<pointer into {self.array.name}>"

    def address(self) -> int:
        """Returns the address of a scalar pointer."""
        return self.array.region.address + int(self.offset) * self.itemsize


class View:
    """An array as a kernel sees it: base pointer, sizes and strides."""

    __slots__ = ("array", "flat", "inside", "offset", "shape", "strides")

    def __init__(
        self,
        base: Pointer,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: torch.dtype,
    ) -> None:
        self.array = base.array
        self.flat = base.array.region.typed(dtype)
        self.offset = int(base.offset)
        self.shape = shape
        self.strides = strides
        self.inside = self._fits()

    def __repr__(self) -> str:
        return f"<array {self.array.name}, shape {self.shape}, strides {self.strides}>"

    def _fits(self) -> bool:
        if math.prod(self.shape) == 0:
            return True
        if self.array.gappy:
            return self._covers()
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        low, high = limits(self.array, self.flat.element_size())
        return low <= self.offset and last < high

    def _covers(self) -> bool:
        """Tells whether this is a part of an array with gaps, axis by axis."""
        array, rest = self.array, self.offset - self.array.start
        if self.strides != array.strides or self.flat.element_size() != array.itemsize or rest < 0:
            return False
        order = sorted(range(len(self.shape)), key=lambda d: -self.strides[d])
        for axis in order:
            first, rest = divmod(rest, self.strides[axis]) if self.strides[axis] else (0, rest)
            if first + self.shape[axis] > array.shape[axis]:
                return False
        return rest == 0


def limits(array: ArrayArg, itemsize: int) -> tuple[int, int]:
    """Returns the first and the past-the-end region offset of an array, in its elements."""
    low, high = array.start * array.itemsize, (array.start + array.span) * array.itemsize
    return low // itemsize, high // itemsize
