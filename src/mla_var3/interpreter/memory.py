"""Memory of an interpreted launch: its array arguments, what was accessed, and the traffic.

``hazards`` reports accesses of different blocks that nothing orders.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import torch

from mla_var3.interpreter.arrays import ArrayArg, Region
from mla_var3.interpreter.footprint import Footprint, Strided
from mla_var3.interpreter.hazards import Hazards
from mla_var3.interpreter.launch_report import ArrayTraffic, DiagnosticLog, LineTraffic, SourceLine
from mla_var3.interpreter.signature import span_bytes

# No element is larger, and malloc aligns to it.
_ALIGNMENT = 16

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


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
