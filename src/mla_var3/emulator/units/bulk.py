"""Emulated bulk copy unit: runs TMA copies by tensor maps, and copies of contiguous bytes."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import functions as fn
from mla_var3.emulator.access import combine
from mla_var3.emulator.clocks import STORE, STORED, Event
from mla_var3.emulator.lower.base import PARAM_WINDOW
from mla_var3.emulator.regions import Access, Region
from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.tensormap import TensorMap

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

TENSOR_ALIGN = 128
#: Alignment of a swizzled box in shared memory: where its pattern starts.
PATTERN = {0: 128, 1: 256, 2: 512, 3: 1024}


@dataclass
class Groups:
    """Bulk groups of one thread.

    Attributes:
        warp: The thread's warp.
        read: Chain that tells that its stores have read their source.
        stored: Chain that tells that they are complete: what they wrote is visible to the thread.
        number: Number of its last store in both.
        pc: Where that is.
        reading: Last numbers of the committed groups not known to have read, oldest first.
        storing: The same of those not known to be complete.
    """

    warp: int
    read: int
    stored: int
    number: int = 0
    pc: int = 0
    reading: deque[int] = field(default_factory=deque)
    storing: deque[int] = field(default_factory=deque)


class Bulk(Unit):
    """The bulk copy unit of a cluster: done at issue, asynchronous in order only."""

    name = "bulk"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.maps: dict[int, TensorMap] = {}
        self.places: dict[tuple[int, int, int], tuple[NDArray[np.int64], Any]] = {}
        #: Elements and granules of boxes in global memory, from where a box begins.
        self.boxes: dict[Any, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
        self.start()

    def start(self) -> None:
        """A new cluster."""
        #: Of threads that have stored something.
        self.groups: dict[int, Groups] = {}
        self.maps.clear()

    # Tensor maps ------------------------------------------------------------------------------
    def _map(self, address: int, pc: int) -> TensorMap:
        if (found := self.maps.get(address)) is not None:
            return found
        data, at = self._bytes(address, pc)
        if address % 64:
            self.machine.reporter.add(
                "misaligned", pc, f"a tensor map at {address:#x}", missing="64-byte alignment"
            )
        found = self.maps[address] = TensorMap.decode(data[at : at + tensormap.BYTES].tobytes())
        if found.interleave:
            raise self.machine.reporter.stop(pc, "an interleaved tensor map is not emulated")
        return found

    def _bytes(self, address: int, pc: int) -> tuple[NDArray[np.uint8], int]:
        """The bytes that hold an address, and where in them it is."""
        m = self.machine
        if address >> 48 == PARAM_WINDOW >> 48:
            return m.parameters.bytes, address & (1 << 48) - 1
        region = m.memory_map.find(address)
        if region is None:
            raise m.reporter.stop(
                pc, f"a tensor map at {address:#x} is outside of every allocation"
            )
        return region.data, address - region.low

    def replace(
        self, name: str, address: Any, space: str, ordinal: int, value: Any, s: Any, pc: int
    ) -> None:
        """``tensormap.replace``."""
        m = self.machine
        at = int(np.ravel(address)[0])
        if space == "shared":
            data, start = (
                m.shared.bytes,
                int(m.shared.physical(np.array([at]), m.cta_offset[s][:1])[0]),
            )
        else:
            data, start = self._bytes(at, pc)
            self.maps.pop(at, None)
        here = slice(start, start + tensormap.BYTES)
        new = tensormap.replaced(data[here].tobytes(), name, ordinal, int(np.ravel(value)[0]))
        data[here] = np.frombuffer(new, np.uint8)

    def copy_map(self, to: Any, source: Any, s: Any, pc: int) -> None:
        """``tensormap.cp_fenceproxy``: a map from shared to global memory."""
        m = self.machine
        at = int(np.ravel(to)[0])
        start = int(m.shared.physical(np.ravel(source)[:1], m.cta_offset[s][:1])[0])
        data, offset = self._bytes(at, pc)
        data[offset : offset + tensormap.BYTES] = m.shared.bytes[start : start + tensormap.BYTES]
        self.maps.pop(at, None)

    # Tensor copies ----------------------------------------------------------------------------
    def load_tensor(
        self,
        to: Any,
        descriptor: Any,
        at: list[Any],
        barrier: Any,
        mask: Any,
        pair: bool,
        s: Any,
        pc: int,
    ) -> None:
        """``cp.async.bulk.tensor`` from global to shared memory, of each thread of ``s``.

        With ``pair`` a copy may signal the other CTA of the pair in place of the one it goes to.
        """
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        offset = m.cta_offset[s]
        place = m.shared.physical(fn.spread(to, n), offset)
        bars = m.shared.physical(fn.spread(barrier, n), offset)
        words = fn.spread(descriptor, n)
        coordinates = [fn.spread(x, n) for x in at]
        masks = None if mask is None else fn.spread(mask, n)
        for i in range(n):
            t = self._map(int(words[i]), pc)
            box = tuple(int(np.int32(x[i])) for x in coordinates)
            pairs = self._targets(int(place[i]), int(bars[i]), masks, i, pair)
            self._load(t, t.counted(box), pairs, int(m.warp[ids[i]]), pc)
        m.note("TMA load", s, pc)

    def _targets(
        self, place: int, barrier: int, masks: Any, i: int, pair: bool
    ) -> list[tuple[int, int]]:
        """Where a copy goes, and the barrier that each of its ends signals."""
        if masks is None:
            return [(place, barrier)]
        size = self.machine.shared.size
        to = [k for k in range(self.machine.ctas) if int(masks[i]) >> k & 1]
        # That of a pair's CTA which the barrier's address names: the first or the second.
        side = barrier // size & 1
        told = [(k & ~1 | side) if pair else k for k in to]
        return [
            (place % size + k * size, barrier % size + b * size)
            for k, b in zip(to, told, strict=True)
        ]

    def _load(
        self,
        t: TensorMap,
        box: tuple[int, ...],
        pairs: list[tuple[int, int]],
        warp: int,
        pc: int,
    ) -> None:
        m = self.machine
        data = self._fetch(t, box, m.sync.event(pairs[0][1], warp), pc)
        if data is None:
            return
        for to, bar in pairs:
            if self._placed(t, to, pc):
                event = m.sync.event(bar, warp)
                self._write_box(t, to, data, event, pc)
                m.sync.complete(bar, t.count, event, pc)
        m.counts.tma(pc, t.count * len(pairs), t.count, "read")

    def _placed(self, t: TensorMap, to: int, pc: int) -> bool:
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

    def _place(self, t: TensorMap, at: int) -> tuple[NDArray[np.int64], Any]:
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

    def _write_box(
        self, t: TensorMap, at: int, data: NDArray[np.uint8], event: Event, pc: int
    ) -> None:
        m = self.machine
        chunks, granules = self._place(t, at)
        if t.count % 16:  # A box of a few elements is not swizzled.
            m.shared.bytes[at : at + t.count] = data
        else:
            m.shared.views[16][chunks] = data.view(np.complex128)
        if m.checks:
            m.shared.swizzles[chunks] = t.swizzle + 1 if t.count % 16 == 0 else 0
            m.shadow.unit_write(granules, event, pc)
            m.sync.overwritten(np.array([at]), t.count, pc, slice(0, 1))

    def _window(
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

    def _fetch(
        self, t: TensorMap, box: tuple[int, ...], event: Event, pc: int
    ) -> NDArray[np.uint8] | None:
        """The bytes of a box, zeros where it leaves the tensor."""
        found = self._window(t, box, pc)
        if found is None:
            return None
        region, view, clip, at = found
        if view.shape == t.shape[::-1]:
            data = np.ascontiguousarray(view)
        elif t.nan_fill:
            raise self.machine.reporter.stop(
                pc, "a NaN-filling tensor map whose box leaves its tensor is not emulated"
            )
        else:
            data = np.zeros(t.shape[::-1], view.dtype)
            data[tuple(slice(a, b) for a, b in clip[::-1])] = view
        self._touched(region, at, view, event, pc, False)
        return data.reshape(-1).view(np.uint8)

    def _touched(
        self,
        region: Region,
        at: int,
        view: NDArray[Any],
        event: Event,
        pc: int,
        writing: bool,
        atomic: bool = False,
    ) -> None:
        m = self.machine
        m.memory_map.changes += writing
        if not m.checks or not view.size:
            return
        shift = m.memory_map.shift
        first = at >> shift
        key = at - (first << shift), view.shape, view.strides
        if (found := self.boxes.get(key)) is None:
            found = self.boxes[key] = self._box(key[0], view)
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

    def store_tensor(
        self, source: Any, descriptor: Any, at: list[Any], operation: str, s: Any, pc: int
    ) -> None:
        """``cp.async.bulk.tensor`` from shared to global memory, or a reduction there."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        place = m.shared.physical(fn.spread(source, n), m.cta_offset[s])
        words = fn.spread(descriptor, n)
        coordinates = [fn.spread(x, n) for x in at]
        # The DSL lets all lanes of a warp issue the same store, and the hardware does it once.
        alike = zip(
            m.warp[ids].tolist(),
            place.tolist(),
            words.tolist(),
            *(c.tolist() for c in coordinates),
            strict=True,
        )
        first = {key: i for i, key in reversed(list(enumerate(alike)))}
        for i in range(n) if operation else sorted(first.values()):
            t = self._map(int(words[i]), pc)
            box = t.counted(tuple(int(np.int32(x[i])) for x in coordinates))
            self._store(t, box, int(place[i]), operation, int(ids[i]), pc)
        m.note("TMA store", s, pc)

    def _store(
        self, t: TensorMap, box: tuple[int, ...], place: int, operation: str, thread: int, pc: int
    ) -> None:
        m = self.machine
        found = self._window(t, box, pc)
        if found is None or not self._placed(t, place, pc):
            return
        region, view, clip, at = found
        read, stored = self._store_event(thread, pc)
        self._traced("store", int(m.warp[thread]), pc, t.count)
        data = self._read_box(t, place, read, pc).reshape(t.shape[::-1])
        inside = data[tuple(slice(a, b) for a, b in clip[::-1])]
        self._touched(region, at, view, stored, pc, True, bool(operation))
        if operation:
            with m.lock:
                old = np.ascontiguousarray(view).reshape(-1)
                new = combine(
                    operation,
                    tensormap.NAMES[t.kind],
                    old,
                    np.ascontiguousarray(inside).reshape(-1),
                )
                view[...] = new.reshape(view.shape)
        else:
            view[...] = inside
        m.counts.tma(pc, t.count, t.count, "write")

    def _read_box(self, t: TensorMap, place: int, event: Event, pc: int) -> NDArray[Any]:
        m = self.machine
        chunks, granules = self._place(t, place)
        if m.checks:
            m.shadow.unit_read(granules, event, pc)
        if t.count % 16:
            raw = m.shared.bytes[place : place + t.count]
        else:
            raw = m.shared.views[16][chunks].view(np.uint8)
        return raw.view(f"u{t.element}")

    # Groups -----------------------------------------------------------------------------------
    def _store_event(self, thread: int, pc: int) -> tuple[Event, Event]:
        """A thread starts a store: that it has read its source, and that it is complete."""
        clocks, mine = self.machine.clocks, self.groups.get(thread)
        if mine is None:
            read, stored = (clocks.chain(("bulk", u, thread), u) for u in (STORE, STORED))
            mine = self.groups[thread] = Groups(int(self.machine.warp[thread]), read, stored)
            mine.number = int(clocks.issued[mine.read])
        mine.number, mine.pc = mine.number + 1, pc
        clocks.issued[[mine.read, mine.stored]] = mine.number
        return (
            Event(mine.read, mine.number, mine.warp, STORE),
            Event(mine.stored, mine.number, mine.warp, STORED),
        )

    def _mine(self, s: Any) -> Iterator[Groups]:
        """The groups of those threads of ``s`` that have stored something."""
        if self.groups:
            chosen = set(self.machine.ids[s].tolist())
            yield from (g for thread, g in self.groups.items() if thread in chosen)

    def commit(self, s: Any, pc: int) -> None:
        """``cp.async.bulk.commit_group``."""
        for mine in self._mine(s):
            self._traced("store commit", mine.warp, pc)
            mine.reading.append(mine.number)
            mine.storing.append(mine.number)

    def wait(self, most: int, read: bool, s: Any, pc: int) -> None:
        """``cp.async.bulk.wait_group``; ``read`` waits until the sources have been read only."""
        clocks = self.machine.clocks
        for mine in self._mine(s):
            self._traced("store wait", mine.warp, pc, most)
            while len(mine.reading) > most:
                clocks.finish(mine.warp, mine.read, mine.reading.popleft())
            while len(mine.storing) > most and not read:
                clocks.finish(mine.warp, mine.stored, mine.storing.popleft())

    def _traced(self, kind: str, warp: int, pc: int, amount: int = 0) -> None:
        m = self.machine
        if m.trace is not None:
            m.trace.add(m.number, [warp], kind, pc, amount=amount)

    def finish(self) -> None:
        """Report stores that still read the shared memory of a CTA that has ended."""
        m = self.machine
        if not m.checks or m.model.exit_drains:
            return
        for mine in self.groups.values():
            if mine.number > m.clocks.seen[mine.warp, mine.read]:
                name = m.warp_name(mine.warp)
                m.reporter.add(
                    "left-pending",
                    mine.pc,
                    f"{name} ends while this bulk store may still read shared memory",
                    len(m.program.kernel.instructions) - 1,
                    who=name,
                    missing="cp.async.bulk.wait_group.read before the end",
                )

    # Bytes in a row ---------------------------------------------------------------------------
    def _plain(self, address: Any, count: Any, s: Any) -> Any:
        """Per thread: warp, CTA, address and bytes."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        return zip(
            m.warp[ids].tolist(),
            m.cta_offset[ids].tolist(),
            np.broadcast_to(address, n).tolist(),
            fn.spread(count, n).tolist(),
            strict=True,
        )

    def _legal(self, shared: int, other: int, count: int, pc: int) -> bool:
        m = self.machine
        if shared % 16 or other % 16 or count % 16:
            m.reporter.add(
                "misaligned",
                pc,
                f"a bulk copy of {count} bytes between {other:#x} and shared "
                f"{shared % m.shared.size:#x}",
                missing="16-byte alignment of both addresses and of the size",
            )
            return False
        if m.shared.outside(np.array([shared]), count)[0]:
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a bulk copy of {count} bytes at shared {shared % m.shared.size:#x}; shared "
                "memory "
                f"ends at {m.shared.end:#x}",
            )
            return False
        return True

    def _global(
        self, address: int, count: int, event: Event, pc: int, writing: bool, atomic: bool = False
    ) -> tuple[Region, int] | None:
        m = self.machine
        region = m.memory_map.find(address)
        what = "bulk write" if writing else "bulk read"
        if region is None or address + count > region.end:
            who = m.clocks.name(event.unit, event.warp)
            m.memory_map.outside(pc, what, address, count, who)
            return None
        at = address - region.low
        self._touched(region, at, region.data[at : at + count], event, pc, writing, atomic)
        m.counts.tma(pc, count, count, "write" if writing else "read")
        return region, at

    def _span(self, at: int, count: int) -> slice:
        shift = self.machine.shared.shift
        return slice(at >> shift, (at + count) >> shift)

    def copy_in(
        self, to: Any, source: Any, count: Any, barrier: Any, mask: Any, s: Any, pc: int
    ) -> None:
        """``cp.async.bulk.shared::cluster.global``."""
        m = self.machine
        places = m.shared.physical(np.broadcast_to(to, len(m.ids[s])), m.cta_offset[s])
        bars = m.shared.physical(np.broadcast_to(barrier, len(places)), m.cta_offset[s])
        size = m.shared.size
        masks = None if mask is None else np.broadcast_to(mask, len(places))
        for i, (warp, _, address, n) in enumerate(self._plain(source, count, s)):
            if not self._legal(int(places[i]), address, n, pc):
                continue
            found = self._global(address, n, m.sync.event(int(bars[i]), warp), pc, False)
            if found is None:
                continue
            region, at = found
            pairs = [(int(places[i]), int(bars[i]))]
            if masks is not None:
                ranks = [k for k in range(m.ctas) if int(masks[i]) >> k & 1]
                pairs = [
                    (pairs[0][0] % size + k * size, pairs[0][1] % size + k * size) for k in ranks
                ]
            for place, bar in pairs:
                event = m.sync.event(bar, warp)
                m.shared.bytes[place : place + n] = region.data[at : at + n]
                if m.checks:
                    m.shadow.unit_write(self._span(place, n), event, pc)
                m.sync.complete(bar, n, event, pc)

    def copy_out(self, to: Any, source: Any, count: Any, s: Any, pc: int) -> None:
        """``cp.async.bulk.global.shared::cta``."""
        self.reduce_out("", "u8", to, source, count, s, pc)

    def reduce_out(
        self, operation: str, kind: str, to: Any, source: Any, count: Any, s: Any, pc: int
    ) -> None:
        """``cp.reduce.async.bulk.global.shared::cta``."""
        m = self.machine
        places = m.shared.physical(np.broadcast_to(source, len(m.ids[s])), m.cta_offset[s])
        for i, (_, _, address, n) in enumerate(self._plain(to, count, s)):
            place = int(places[i])
            if not self._legal(place, address, n, pc):
                continue
            read, stored = self._store_event(int(m.ids[s][i]), pc)
            self._traced("store", int(m.warp[m.ids[s][i]]), pc, n)
            found = self._global(address, n, stored, pc, True, bool(operation))
            if m.checks:
                m.shadow.unit_read(self._span(place, n), read, pc)
            if found is None:
                continue
            region, at = found
            self._land(region.data[at : at + n], m.shared.bytes[place : place + n], operation, kind)

    def _land(
        self, target: NDArray[np.uint8], data: NDArray[np.uint8], operation: str, kind: str
    ) -> None:
        if not operation:
            target[:] = data
            return
        width = int("".join(c for c in kind if c.isdigit())) // 8
        with self.machine.lock:
            old = np.ascontiguousarray(target).view(f"u{width}")
            target[:] = combine(operation, kind, old, data.copy().view(f"u{width}")).view(np.uint8)

    def copy_across(
        self, to: Any, source: Any, count: Any, barrier: Any, mask: Any, s: Any, pc: int
    ) -> None:
        """``cp.async.bulk.shared::cluster.shared::cta``: to another CTA of the cluster."""
        m = self.machine
        n = len(m.ids[s])
        offset = m.cta_offset[s]
        targets = m.shared.physical(fn.spread(to, n), offset)
        bars = m.shared.physical(fn.spread(barrier, n), offset)
        for i, (warp, own, address, size) in enumerate(self._plain(source, count, s)):
            place = int(m.shared.physical(np.array([address]), np.array([own]))[0])
            target = int(targets[i])
            if not (self._legal(place, target, size, pc) and self._legal(target, place, size, pc)):
                continue
            event = m.sync.event(int(bars[i]), warp)
            if m.checks:
                m.shadow.unit_read(self._span(place, size), event, pc)
                m.shadow.unit_write(self._span(target, size), event, pc)
            m.shared.bytes[target : target + size] = m.shared.bytes[place : place + size].copy()
            m.sync.complete(int(bars[i]), size, event, pc)

    def store_async(
        self, to: Any, width: int, values: list[Any], barrier: Any, s: Any, pc: int
    ) -> None:
        """``st.async``: a store to another CTA that counts bytes on a barrier there."""
        self.reduce_async("exch", f"u{8 * width}", to, values, barrier, s, pc)

    def reduce_async(
        self, operation: str, kind: str, to: Any, values: list[Any], barrier: Any, s: Any, pc: int
    ) -> None:
        """``red.async``."""
        m = self.machine
        ids = m.ids[s]
        width = int("".join(c for c in kind if c.isdigit())) // 8
        size = width * len(values)
        at, _ = m.memory.shared_at(np.broadcast_to(to, len(ids)), size, s, pc, "write")
        bars = m.shared.physical(np.broadcast_to(barrier, len(ids)), m.cta_offset[s])
        view = m.shared.views[width]
        for i, warp in enumerate(m.warp[ids].tolist()):
            event = m.sync.event(int(bars[i]), warp)
            if m.checks and operation == "exch":
                span = self._span(int(at[i]), max(size, m.shared.granule))
                m.shadow.unit_write(span, event, pc)
            for j, value in enumerate(values):
                place = slice(int(at[i]) // width + j, int(at[i]) // width + j + 1)
                view[place] = combine(
                    operation, kind, view[place], np.broadcast_to(value, len(ids))[i : i + 1]
                )
            m.sync.complete(int(bars[i]), size, event, pc)
