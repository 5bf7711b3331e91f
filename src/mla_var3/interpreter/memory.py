"""Array memory during a launch: views of arguments, shadow state, hazards and traffic.

Each argument tensor is an ``ArrayArg`` inside a ``Region`` (a range of memory, which arguments that
overlap share). A region's *shadows* hold one entry an element: whether it was read or written, and
by which block. Blocks run one after another here, in any order on a GPU, so an element that one
block writes and another touches is reported unless a release and an acquire order the two.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mla_var3.interpreter.report import ArrayTraffic, DiagnosticLog, LineTraffic, SourceLine
from mla_var3.interpreter.signature import span_bytes

# No element is larger, and malloc aligns to it.
_ALIGNMENT = 16

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Strided:
    """Elements at ``offset + sum(i * stride)``, as the elements of a tile lie in memory."""

    __slots__ = ("offset", "shape", "strides")

    def __init__(self, offset: int, shape: Sequence[int], strides: Sequence[int]) -> None:
        self.offset, self.shape, self.strides = offset, tuple(shape), tuple(strides)

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns these elements of a flat tensor, as a view."""
        return flat.as_strided(self.shape, self.strides, self.offset)

    def put(self, flat: torch.Tensor, value: Any) -> None:
        """Sets these elements of a flat tensor to a tensor or a number."""
        view = flat.as_strided(self.shape, self.strides, self.offset)
        if isinstance(value, torch.Tensor):
            view.copy_(value)
        else:
            view.fill_(value)

    def scaled(self, factor: int) -> Strided:
        """Returns the footprint in units ``factor`` times smaller."""
        return Strided(
            self.offset * factor,
            (*self.shape, factor),
            (*(s * factor for s in self.strides), 1),
        )

    def offsets(self) -> torch.Tensor:
        """Returns the flat offset of each element."""
        out = torch.tensor(self.offset)
        for axis, (n, stride) in enumerate(zip(self.shape, self.strides, strict=True)):
            steps = torch.arange(n) * stride
            out = out + steps.reshape([-1] + [1] * (len(self.shape) - axis - 1))
        return out


class Scattered:
    """Elements at a one-dimensional tensor of offsets, as a gather or scatter touches them."""

    __slots__ = ("index",)

    def __init__(self, index: torch.Tensor) -> None:
        self.index = index

    def of(self, flat: torch.Tensor) -> torch.Tensor:
        """Returns a copy of these elements of a flat tensor."""
        return flat[self.index]

    def put(self, flat: torch.Tensor, value: Any) -> None:
        """Sets these elements of a flat tensor to a tensor or a number."""
        flat[self.index] = value

    def scaled(self, factor: int) -> Scattered:
        """Returns the footprint in units ``factor`` times smaller."""
        return Scattered((self.index[:, None] * factor + torch.arange(factor)).flatten())

    def offsets(self) -> torch.Tensor:
        """Returns the flat offset of each element."""
        return self.index


Footprint = Strided | Scattered


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
        """Returns a new, empty shadow: one entry an element."""
        return torch.zeros(self.size, dtype=dtype)


@dataclass
class ArrayArg:
    """One tensor argument.

    Attributes:
        name: Parameter name, with ``[i]`` for an item of a tuple or list.
        region: The region it lies in.
        start: Offset of its first element from the region's start, in elements.
        span: Elements from its first to its last one in memory, both counted.
        shape: Its shape.
        strides: Its strides, in elements.
        itemsize: Bytes an element.
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

    def distinct(self) -> Strided:
        """Returns the footprint of the array's distinct elements."""
        shape = [1 if s == 0 else n for n, s in zip(self.shape, self.strides, strict=True)]
        return Strided(self.start, shape, self.strides)


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
        last = self.offset + sum((n - 1) * s for n, s in zip(self.shape, self.strides, strict=True))
        low, high = limits(self.array, self.flat.element_size())
        return low <= self.offset and last < high


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
        self._stores: dict[str, SourceLine] = {}
        self._expected: dict[str, SourceLine] = {}
        self._loaded: set[str] = set()
        self._released: dict[tuple[int, int], set[int]] = {}
        # State of the block that runs now.
        self.block = 0
        self.block_name = ""
        self.synced: set[int] = set()
        self._names: dict[int, str] = {}

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
            pattern = int_poison.to_bytes(8, "little", signed=int_poison < 0)[:size]
            value = int.from_bytes(pattern, "little", signed=size > 1)
            tensor.view(_INTEGERS[size]).fill_(value)
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

    def start_block(self, block: int, name: str) -> None:
        """Makes block number ``block`` (counted from 1) the one that accesses memory."""
        self.block, self.block_name = block, name
        self._names[block] = name
        self.synced = set()

    def traffic(self, where: SourceLine) -> LineTraffic:
        """Returns the counters of a source line."""
        found = self.lines.get(where)
        if found is None:
            found = self.lines[where] = LineTraffic()
        return found

    # ---------------------------------------------------------------------------- hazards

    def note_load(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> torch.Tensor | None:
        """Records a read.

        Args:
            array: The array read.
            at: The elements, in units of ``itemsize`` bytes.
            itemsize: Bytes an element.
            where: Source line.
            strong: Whether the access is ordered memory access (relaxed or acquire).

        Returns:
            For each element whether nothing ever wrote it, if any is such; else None.
        """
        region = array.region
        self._loaded.add(array.name)
        factor = itemsize // region.unit
        if not region.written:
            if isinstance(at, Strided):
                key = (at.offset, at.shape, at.strides, itemsize)
                if key in region.seen:
                    return self._undefined(region, at, factor)
                region.seen.add(key)
            if region.read_shadow is None:
                region.read_shadow = region.shadow(torch.bool)
            (at.scaled(factor) if factor > 1 else at).put(region.read_shadow, True)
            return self._undefined(region, at, factor)
        unscaled = at
        if factor > 1:
            at = at.scaled(factor)
        if region.read_shadow is None:
            region.read_shadow = region.shadow(torch.bool)
        at.put(region.read_shadow, True)
        self._check(region, "writer", region.writers, at, array, where, "reads", "wrote")
        if not strong:
            self._check(region, "atomic", region.updaters, at, array, where, "reads", "updated")
            self._mark_reader(region, at)
        return self._undefined(region, unscaled, factor)

    def note_update(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine
    ) -> torch.Tensor | None:
        """Records an atomic update; returns what ``note_load`` does."""
        region = array.region
        factor = itemsize // region.unit
        self._loaded.add(array.name)
        if region.read_shadow is None:
            region.read_shadow = region.shadow(torch.bool)
        (at.scaled(factor) if factor > 1 else at).put(region.read_shadow, True)
        unwritten = self._undefined(region, at, factor)
        self.note_store(array, at, itemsize, where, True)
        return unwritten

    def note_store(
        self, array: ArrayArg, at: Footprint, itemsize: int, where: SourceLine, strong: bool
    ) -> None:
        """Records a write; ``strong`` means an atomic update or an ordered store."""
        region = array.region
        factor = itemsize // region.unit
        if factor > 1:
            at = at.scaled(factor)
        self._stores[array.name] = where
        if region.write_shadow is None:
            region.write_shadow = region.shadow(torch.bool)
        at.put(region.write_shadow, True)
        if region.undefined is not None:
            at.put(region.undefined, False)
        self._check(region, "writer", region.writers, at, array, where, "writes", "wrote")
        self._check(region, "reader", region.readers, at, array, where, "writes", "reads")
        if strong:
            self._mark(region, "atomic", region.updaters, at)
        else:
            self._check(region, "atomic", region.updaters, at, array, where, "writes", "updated")
            if region.writer is None:
                region.writer = region.shadow(torch.int32)
            at.put(region.writer, self.block)
            region.writers.add(self.block)

    def _undefined(self, region: Region, at: Footprint, factor: int) -> torch.Tensor | None:
        if region.undefined is None:
            return None
        found = (at.scaled(factor) if factor > 1 else at).of(region.undefined)
        if factor > 1:
            found = found.reshape(*found.shape[:-1], -1, factor).any(-1)
            found = found.reshape(at.shape) if isinstance(at, Strided) else found.flatten()
        return found.clone() if bool(found.any()) else None

    def _mark_reader(self, region: Region, at: Footprint) -> None:
        self._mark(region, "reader", region.readers, at)

    def _mark(self, region: Region, shadow: str, blocks: set[int], at: Footprint) -> None:
        """Enters this block for elements; -1 where several blocks are entered."""
        entries = getattr(region, shadow)
        if entries is None:
            entries = region.shadow(torch.int32)
            setattr(region, shadow, entries)
        if blocks <= {self.block}:
            at.put(entries, self.block)
        else:
            old = at.of(entries)
            at.put(entries, torch.where((old == 0) | (old == self.block), self.block, -1).int())
        blocks.add(self.block)

    def _check(
        self,
        region: Region,
        shadow: str,
        blocks: set[int],
        at: Footprint,
        array: ArrayArg,
        where: SourceLine,
        does: str,
        did: str,
    ) -> None:
        """Reports elements that another block has entered in a shadow, unless ordered before."""
        if not blocks or blocks <= {self.block}:
            return
        others = blocks - {self.block}
        if others <= self.synced:
            return
        entries = at.of(getattr(region, shadow))
        bad = (entries != 0) & (entries != self.block)
        if self.synced:
            bad &= entries != -1
            bad &= ~torch.isin(entries, torch.tensor(sorted(self.synced), dtype=torch.int32))
        if not bool(bad.any()):
            return
        kind = "write-conflict" if (does, did) == ("writes", "wrote") else "read-write-hazard"
        if self.log.seen(kind, where, array.name):
            return
        first = int(bad.flatten().nonzero()[0])
        block = int(entries.flatten()[first])
        offset = int(at.offsets().flatten()[first]) * region.unit // array.itemsize
        other = self._names.get(block, "another block")
        self.log.add(
            kind,
            where,
            f"block {self.block_name} {does} {array.index_of(offset)}, which {other} {did} "
            "with nothing ordering the two; on a GPU they run in any order",
            about=array.name,
        )

    def release(self, addresses: list[tuple[int, int]]) -> None:
        """Publishes this block's accesses at synchronisation elements."""
        for address in addresses:
            known = self._released.setdefault(address, set())
            known.add(self.block)
            known |= self.synced

    def acquire(self, addresses: list[tuple[int, int]]) -> None:
        """Orders this block after every block that released one of the elements."""
        for address in addresses:
            self.synced |= self._released.get(address, set())

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

    def _of_array(self, array: ArrayArg, shadow: torch.Tensor) -> torch.Tensor:
        factor = array.itemsize // array.region.unit
        at = array.distinct()
        return (at.scaled(factor) if factor > 1 else at).of(shadow)

    def _unique(self, array: ArrayArg, shadow: torch.Tensor | None) -> int:
        if shadow is None or array.span == 0:
            return 0
        return int(self._of_array(array, shadow).sum()) * array.region.unit

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
            missing = written.numel() - int(written.sum())
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
            for other in self.arrays:
                used = other.name in self._loaded or other.name in self._stores
                if other is array or other.region is not array.region or not used:
                    continue
                mine = array.region.shadow(torch.bool)
                self._of_array(array, mine).fill_(True)
                if bool(self._of_array(other, mine).any()):
                    self.log.add(
                        "overlapping-arguments",
                        where,
                        f"{array.name!r} is written and shares memory with {other.name!r}; "
                        "cuTile compiles a launch as if no two arguments did",
                        "warning",
                        about=f"{array.name}/{other.name}",
                    )
