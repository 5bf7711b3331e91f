"""Where the boxes of bulk copies lie, in shared and in global memory, and who touched that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import Event
from mla_var3.emulator.regions import Region
from mla_var3.emulator.touched import Access
from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.tensormap import TensorMap

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

TENSOR_ALIGN = 128
#: Alignment of a swizzled box in shared memory: where its pattern starts.
PATTERN = {0: 128, 1: 256, 2: 512, 3: 1024}


class Boxes:
    """What is worked out once per form of a box, and the checks of a box's place."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.places: dict[tuple[int, int, int], tuple[NDArray[np.int64], Any]] = {}
        #: Elements and granules of boxes in global memory, from where a box begins.
        self.shapes: dict[Any, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}

    def placed(self, t: TensorMap, to: int, pc: int) -> bool:
        """Whether a box may lie at a shared address."""
        m = self.machine
        low = to % m.shared.size
        if low % TENSOR_ALIGN:
            m.reporter.add(
                "misaligned",
                pc,
                f"a {t} at shared {low:#x}",
                missing=f"{TENSOR_ALIGN}-byte alignment",
            )
            return False
        if m.shared.outside(np.array([to]), t.count)[0]:
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a {t} of {t.count} bytes at shared {low:#x}, and shared memory spans 0x400 "
                f"to {m.shared.end:#x}",
                missing="more dynamic shared memory in the launch",
            )
            return False
        return True

    def place(self, t: TensorMap, at: int) -> tuple[NDArray[np.int64], Any]:
        """Pieces and granules of a box at a physical address."""
        key = (at, t.count, t.swizzle)
        if (found := self.places.get(key)) is None:
            m = self.machine
            count = -(-t.count // 16) * 16
            chunks = tensormap.tile_chunks(at, count, t.swizzle)
            if at % PATTERN[t.swizzle] == 0 or not t.swizzle:
                first = at >> m.shared.shift
                granules: Any = slice(first, first + (t.count >> m.shared.shift))
            else:
                wide = np.arange(0, 16, m.shared.granule)
                granules = np.unique((chunks[:, None] * 16 + wide) >> m.shared.shift)
            found = self.places[key] = (chunks, granules)
        return found

    def window(
        self, t: TensorMap, box: tuple[int, ...], pc: int
    ) -> tuple[Region, NDArray[Any], list[tuple[int, int]], int] | None:
        """Allocation and strided view of the part of a box that is inside the tensor."""
        m = self.machine
        clip = t.clipped(box)
        start, span, shape, strides = t.window(box, clip)
        empty = any(last <= first for first, last in clip)
        region = m.memory_map.find(t.base)
        if not empty and (region is None or t.is_ragged):
            # Such a map begins where its tensor does not: its boxes say which tensor that is.
            start &= (1 << 64) - 1
            region = m.memory_map.find(start)
        if not empty and (region is None or start < region.base or start + span > region.end):
            near = region.label if region else "no allocation"
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a {t} at {list(box)} reaches outside of {near}",
                missing="sizes and strides of the tensor that the map was made for",
            )
            return None
        if region is None:
            return None
        at = 0 if empty else start - region.low
        view = region.views[t.element][at // t.element :]
        return region, np.lib.stride_tricks.as_strided(view, shape, strides), clip, at

    def touched(
        self,
        region: Region,
        at: int,
        view: NDArray[Any],
        event: Event,
        pc: int,
        writing: bool,
        atomic: bool = False,
    ) -> None:
        """Note an access to a view of an allocation that begins at byte ``at``."""
        m = self.machine
        m.memory_map.changes += writing
        if not m.checks or not view.size:
            return
        shift = m.memory_map.shift
        first = at >> shift
        key = at - (first << shift), view.shape, view.strides
        if (found := self.shapes.get(key)) is None:
            found = self.shapes[key] = self._box(key[0], view)
        granules = found[1] + first
        if region.known is not None:
            starts = found[0] + (first << shift)
            if writing:
                region.known[starts[:, None] + np.arange(view.itemsize)] = True
            else:
                who = m.clocks.name(event.unit, event.warp)
                m.memory_map.known(region, starts, view.itemsize, pc, who)
        m.memory_map.touch(
            region,
            granules,
            Access(m.words, m.words.cluster, event.warp, *event[:3], pc, writing, atomic),
        )

    def _box(self, at: int, view: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Starts of a view's elements, and the granules that lie in it whole."""
        starts = np.int64(at)
        for n, stride in zip(view.shape, view.strides, strict=True):
            starts = np.add.outer(starts, np.arange(n) * stride)
        flat = np.sort(starts.reshape(-1))
        shift, size = self.machine.memory_map.shift, view.itemsize
        if size >= 1 << shift:
            wide = np.arange(size >> shift)
            return flat, ((flat >> shift)[:, None] + wide).reshape(-1)
        granules, elements = np.unique(flat >> shift, return_counts=True)
        return flat, granules[elements * size >= 1 << shift]
