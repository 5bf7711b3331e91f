"""Emulated bulk copy unit: runs TMA copies by tensor maps, and copies of contiguous bytes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import functions as fn
from mla_var3.emulator.atomics import combine
from mla_var3.emulator.clocks import Event
from mla_var3.emulator.regions import Region
from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.boxes import Boxes
from mla_var3.emulator.units.groups import Stores
from mla_var3.emulator.units.maps import Maps
from mla_var3.emulator.units.tensormap import TensorMap

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine


class Bulk(Unit):
    """The bulk copy unit of a cluster: done at issue, asynchronous in order only."""

    name = "bulk"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.maps, self.boxes, self.stores = Maps(machine), Boxes(machine), Stores(machine)

    def start(self) -> None:
        """A new cluster."""
        self.maps.start()
        self.stores.start()

    def finish(self) -> None:
        """Report stores that still read the shared memory of a CTA that has ended."""
        self.stores.finish()

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
            t = self.maps.at(int(words[i]), pc)
            box = tuple(int(np.int32(x[i])) for x in coordinates)
            pairs = self._targets(int(place[i]), int(bars[i]), masks, i, pair)
            self._load(t, t.counted(box), pairs, int(ids[i]), pc)
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
        thread: int,
        pc: int,
    ) -> None:
        m = self.machine
        warp = int(m.warp[thread])
        data = self._fetch(t, box, m.sync.event(pairs[0][1], warp), pc)
        if data is None:
            return
        for to, bar in pairs:
            if self.boxes.placed(t, to, pc):
                event = m.sync.event(bar, warp)
                self._write_box(t, to, data, event, int(m.lane[thread]), pc)
                m.sync.complete(bar, t.count, event, pc)
        m.counts.tma(pc, t.count * len(pairs), t.count, "read")

    def _write_box(
        self, t: TensorMap, at: int, data: NDArray[np.uint8], event: Event, lane: int, pc: int
    ) -> None:
        m = self.machine
        chunks, granules = self.boxes.place(t, at)
        if t.count % 16:  # A box of a few elements is not swizzled.
            m.shared.bytes[at : at + t.count] = data
        else:
            m.shared.views[16][chunks] = data.view(np.complex128)
        if m.checks:
            m.shared.swizzles[chunks] = t.swizzle + 1 if t.count % 16 == 0 else 0
            m.shadow.unit_write(granules, event, pc, lane)
            m.sync.overwritten(np.array([at]), t.count, pc, slice(0, 1))

    def _fetch(
        self, t: TensorMap, box: tuple[int, ...], event: Event, pc: int
    ) -> NDArray[np.uint8] | None:
        """The bytes of a box, zeros where it leaves the tensor."""
        found = self.boxes.window(t, box, pc)
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
        self.boxes.touched(region, at, view, event, pc, False)
        return data.reshape(-1).view(np.uint8)

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
            t = self.maps.at(int(words[i]), pc)
            box = t.counted(tuple(int(np.int32(x[i])) for x in coordinates))
            self._store(t, box, int(place[i]), operation, int(ids[i]), pc)
        m.note("TMA store", s, pc)

    def _store(
        self, t: TensorMap, box: tuple[int, ...], place: int, operation: str, thread: int, pc: int
    ) -> None:
        m = self.machine
        found = self.boxes.window(t, box, pc)
        if found is None or not self.boxes.placed(t, place, pc):
            return
        region, view, clip, at = found
        read, stored = self.stores.event(thread, pc)
        self.stores.traced("store", int(m.warp[thread]), pc, t.count)
        data = self._read_box(t, place, read, int(m.lane[thread]), pc).reshape(t.shape[::-1])
        inside = data[tuple(slice(a, b) for a, b in clip[::-1])]
        self.boxes.touched(region, at, view, stored, pc, True, bool(operation))
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

    def _read_box(self, t: TensorMap, place: int, event: Event, lane: int, pc: int) -> NDArray[Any]:
        m = self.machine
        chunks, granules = self.boxes.place(t, place)
        if m.checks:
            m.shadow.unit_read(granules, event, pc, lane)
        if t.count % 16:
            raw = m.shared.bytes[place : place + t.count]
        else:
            raw = m.shared.views[16][chunks].view(np.uint8)
        return raw.view(f"u{t.element}")

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
        self.boxes.touched(region, at, region.data[at : at + count], event, pc, writing, atomic)
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
                    m.shadow.unit_write(self._span(place, n), event, pc, int(m.lane[s][i]))
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
            read, stored = self.stores.event(int(m.ids[s][i]), pc)
            self.stores.traced("store", int(m.warp[m.ids[s][i]]), pc, n)
            found = self._global(address, n, stored, pc, True, bool(operation))
            if m.checks:
                m.shadow.unit_read(self._span(place, n), read, pc, int(m.lane[s][i]))
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
                lane = int(m.lane[s][i])
                m.shadow.unit_read(self._span(place, size), event, pc, lane)
                m.shadow.unit_write(self._span(target, size), event, pc, lane)
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
        n = len(m.ids[s])
        width = int("".join(c for c in kind if c.isdigit())) // 8
        size = width * len(values)
        at, _ = m.memory.shared_at(np.broadcast_to(to, n), size, s, pc, "write")
        bars = m.shared.physical(np.broadcast_to(barrier, n), m.cta_offset[s])
        words, view = [np.broadcast_to(value, n) for value in values], m.shared.views[width]
        for lanes, warp, bar in self._together(at, bars, m.warp[m.ids[s]], size):
            event = m.sync.event(bar, warp)
            if m.checks and operation == "exch":
                m.shadow.unit_write(m.shared.granules(at[lanes], size).ravel(), event, pc)
            for j, word in enumerate(words):
                place = at[lanes] // width + j
                view[place] = combine(operation, kind, view[place], word[lanes])
            m.sync.complete(bar, size * len(place), event, pc)

    def _together(
        self, at: NDArray[np.int64], bars: NDArray[np.int64], warp: NDArray[np.int64], size: int
    ) -> Iterator[tuple[slice, int, int]]:
        """Lanes whose stores give the same when taken at once, with their warp and barrier.

        Those one after the other of one warp, one barrier and one CTA, none of which touches what
        another does, or is the last of a phase that others follow.
        """
        cta = at // self.machine.shared.size
        cuts = [x[1:] != x[:-1] for x in (warp, bars, cta)]
        edges = [0, *(np.flatnonzero(np.any(cuts, 0)) + 1).tolist(), len(at)]
        for low, high in itertools.pairwise(edges):
            barrier, n = self.machine.sync.mbarriers.get(int(bars[low])), high - low
            alone = barrier is None or (0 < barrier.tx < n * size and not barrier.tx % size)
            step = max(size, self.machine.shared.granule)
            alone = alone or bool((np.diff(np.sort(at[low:high])) < step).any())
            for first in range(low, high) if alone else (low,):
                last = first + 1 if alone else high
                yield slice(first, last), int(warp[low]), int(bars[low])
