"""Memory of an interpreted launch: holds array arguments and views of them, counts their traffic.

Each argument tensor is an ``ArrayArg`` inside a ``Region`` (a range of memory, which arguments that
overlap share). ``hazards`` reports accesses of different blocks that nothing orders.
"""

from __future__ import annotations

import ctypes
import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from mla_var3.interpreter.footprint import Footprint, Scattered, Strided
from mla_var3.interpreter.hazards import Hazards
from mla_var3.interpreter.launch_report import ArrayTraffic, DiagnosticLog, LineTraffic, SourceLine
from mla_var3.interpreter.signature import span_bytes

# No element is larger, and malloc aligns to it.
_ALIGNMENT = 16

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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


def _regions(tensors: list[torch.Tensor]) -> list[Region]:
    """Returns the region of each tensor; tensors whose ranges of memory overlap have the same."""
    spans = [(t.data_ptr(), t.data_ptr() + span_bytes(t)) for t in tensors]
    groups: list[tuple[int, list[int]]] = []  # end, members
    for i in sorted(range(len(tensors)), key=lambda i: spans[i]):
        start, end = spans[i]
        if groups and start < groups[-1][0]:
            groups[-1] = (max(end, groups[-1][0]), [*groups[-1][1], i])
        else:
            groups.append((end, [i]))
    found: dict[int, Region] = {}
    for end, members in groups:
        # Rounded down, so that elements of every size are at whole offsets from it.
        address = spans[members[0]][0] // _ALIGNMENT * _ALIGNMENT
        unit = math.gcd(*(tensors[i].element_size() for i in members))
        region = Region(address, end - address, unit)
        found.update(dict.fromkeys(members, region))
    return [found[i] for i in range(len(tensors))]


class Memory:
    """The memory of one launch.

    Args:
        log: Where findings go.
        track: Whether shadows are kept. Bytes by line are counted either way.
    """

    def __init__(self, log: DiagnosticLog, track: bool) -> None:
        self.log = log
        self.track = track
        self.arrays: list[ArrayArg] = []
        self.regions: list[Region] = []
        self.lines: dict[SourceLine, LineTraffic] = {}
        self.version = 0  # changes whenever memory does
        self.looks = 0  # reads of memory that the kernel may write
        self._stores: dict[str, SourceLine] = {}
        self._expected: dict[str, SourceLine] = {}
        self._loaded: set[str] = set()
        self.hazards = Hazards(log)

    # -------------------------------------------------------------------------- arguments

    def add_arrays(self, named: Iterable[tuple[str, torch.Tensor]]) -> list[ArrayArg]:
        """Registers every tensor argument of the launch, in order."""
        tensors = list(named)
        regions = _regions([tensor for _, tensor in tensors])
        self.regions = list({id(r): r for r in regions}.values())
        for (name, tensor), region in zip(tensors, regions, strict=True):
            size = tensor.element_size()
            start = (tensor.data_ptr() - region.address) // size if tensor.numel() else 0
            self.arrays.append(
                ArrayArg(
                    name,
                    region,
                    start,
                    span_bytes(tensor) // size,
                    tuple(tensor.shape),
                    tuple(tensor.stride()),
                    size,
                )
            )
        return self.arrays

    def mark_undefined(self, tensor: torch.Tensor, poison: float, int_poison: int) -> None:
        """Fills a tensor with poison and remembers that nothing has written its elements."""
        size = tensor.element_size()
        if tensor.is_floating_point():
            tensor.fill_(poison)
        elif tensor.numel():
            held = _INTEGERS[size]
            tensor.view(held).fill_(torch.tensor(int_poison).to(held))
        for region in self.regions:
            first = tensor.data_ptr() - region.address
            if not 0 <= first <= region.bytes.numel() - span_bytes(tensor):
                continue
            if region.undefined is None:
                region.undefined = region.shadow(torch.bool)
            factor = size // region.unit
            at = Strided(first // size, tensor.shape, tensor.stride())
            (at.scaled(factor) if factor > 1 else at).put(region.undefined, True)

    def expect_store(self, array: ArrayArg, where: SourceLine) -> None:
        """Notes that a line of the kernel can store to an array, whether or not it runs."""
        self._expected[array.name] = where

    def traffic(self, where: SourceLine) -> LineTraffic:
        """Returns the counters of a source line."""
        found = self.lines.get(where)
        if found is None:
            found = self.lines[where] = LineTraffic()
        return found

    # --------------------------------------------------------------------------- accesses

    def note_load(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> torch.Tensor | None:
        """Records a read; see ``Hazards.load``."""
        self._loaded.add(array.name)
        return self.hazards.load(array, at, itemsize, where, strong)

    def note_update(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> torch.Tensor | None:
        """Records an atomic update; see ``Hazards.update``."""
        self._loaded.add(array.name)
        self._stores[array.name] = where
        return self.hazards.update(array, at, itemsize, where, strong)

    def note_store(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> None:
        """Records a write; see ``Hazards.store``."""
        self._stores[array.name] = where
        self.hazards.store(array, at, itemsize, where, strong)

    # ------------------------------------------------------------------------------ the end

    def array_traffic(self) -> dict[str, ArrayTraffic]:
        """Returns what each array saw, by name."""
        return {
            a.name: ArrayTraffic(
                a.name,
                math.prod(a.shape) * a.itemsize,
                self._unique(a, a.region.read_shadow),
                self._unique(a, a.region.write_shadow),
            )
            for a in self.arrays
        }

    def _at(self, array: ArrayArg) -> Footprint:
        """Returns the footprint of an array in the shadows of its region."""
        factor = array.itemsize // array.region.unit
        at = array.distinct()
        return at.scaled(factor) if factor > 1 else at

    def _of_array(self, array: ArrayArg, shadow: torch.Tensor) -> torch.Tensor:
        return self._at(array).of(shadow)

    def _unique(self, array: ArrayArg, shadow: torch.Tensor | None) -> int:
        if shadow is None or array.span == 0:
            return 0
        return _count(self._of_array(array, shadow)) * array.region.unit

    def finish(self) -> None:
        """Reports what only the whole launch shows: gaps in outputs, overlapping arguments."""
        for array in self.arrays:
            where = self._stores.get(array.name, self._expected.get(array.name))
            if where is None or array.span == 0:
                continue
            shadow = array.region.write_shadow
            if shadow is None:
                shadow = array.region.shadow(torch.bool)
            written = self._of_array(array, shadow)
            missing = written.numel() - _count(written)
            if missing:
                at = array.distinct().offsets().flatten()
                factor = array.itemsize // array.region.unit
                first = int((~written.flatten()).nonzero()[0]) // factor
                self.log.add(
                    "never-written",
                    where,
                    f"{missing // factor} of {at.numel()} elements of {array.name!r} are never "
                    f"written; the first is {array.index_of(int(at[first]))}",
                    "warning",
                    about=array.name,
                )
        self._report_overlaps()

    def _report_overlaps(self) -> None:
        for array in self.arrays:
            where = self._stores.get(array.name)
            if where is None:
                continue
            if array.overlaps:
                self.log.add(
                    "overlapping-arguments",
                    where,
                    f"{array.name!r} is written, and some of its own elements share memory",
                    "warning",
                    about=array.name,
                )
            for other in self.arrays:
                used = other.name in self._loaded or other.name in self._stores
                if other is array or other.region is not array.region or not used:
                    continue
                mine = array.region.shadow(torch.bool)
                self._at(array).put(mine, True)
                if bool(self._of_array(other, mine).any()):
                    self.log.add(
                        "overlapping-arguments",
                        where,
                        f"{array.name!r} is written and shares memory with {other.name!r}; "
                        "cuTile compiles a launch as if no two arguments did",
                        "warning",
                        about=f"{array.name}/{other.name}",
                    )


def _count(mask: torch.Tensor) -> int:
    """Returns how many entries of a mask hold; torch's own sum takes 30 times as long."""
    return int(np.count_nonzero(mask.numpy()))
