"""Emulated memory accesses of threads: runs loads, stores and atomics in every PTX state space.

``Memory`` is called by lowered code; it moves the bytes and has each access checked for races.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import atomics
from mla_var3.emulator import functions as fn
from mla_var3.emulator.apart import TOGETHER, by_warps
from mla_var3.emulator.atomics import ACQUIRES, RELEASES
from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.formats import U64
from mla_var3.emulator.lagging import waiting
from mla_var3.emulator.local import Local
from mla_var3.emulator.touched import Access
from mla_var3.emulator.windows import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from mla_var3.emulator.within import withhold

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

WINDOW_SHIFT = U64(48)
SPACE_OF_WINDOW = {
    SHARED_WINDOW >> 48: "shared",
    PARAM_WINDOW >> 48: "parameter",
    LOCAL_WINDOW >> 48: "local",
}


class Memory:
    """What lowered code calls to read and write memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.local = Local(machine)

    def start(self) -> None:
        """A new cluster: local memory holds nothing."""
        self.local.start()

    # Doors ------------------------------------------------------------------------------------
    def load(
        self, space: str, address: Any, width: int, count: int, s: Any, pc: int, order: str
    ) -> list[Any]:
        """Values of each thread: ``count`` arrays [threads] of unsigned codes."""
        address = fn.spread(address, len(self.machine.ids[s]))
        if space == "generic":
            return self._generic_load(address, width, count, s, pc, order)
        return self._load(space, address, width, count, s, pc, order)

    def store(
        self, space: str, address: Any, width: int, values: list[Any], s: Any, pc: int, order: str
    ) -> None:
        """Write one value or several that follow each other, for each thread."""
        address = fn.spread(address, len(self.machine.ids[s]))
        if space == "generic":
            for name, part, lanes in self._spaces(address, s):
                subset = [v if np.ndim(v) == 0 else v[part] for v in values]
                self._store(name, address[part], width, subset, lanes, pc, order)
        else:
            self._store(space, address, width, values, s, pc, order)

    def _load(
        self, space: str, address: Any, width: int, count: int, s: Any, pc: int, order: str
    ) -> list[Any]:
        if space == "shared":
            return self._load_shared(address, width, count, s, pc)
        if space == "global":
            return self._load_global(address, width, count, s, pc, order)
        if space == "parameter":
            return self.local.parameter(address, width, count, s, pc)
        return self.local.load(address, width, count, s, pc)

    def _store(
        self, space: str, address: Any, width: int, values: list[Any], s: Any, pc: int, order: str
    ) -> None:
        if space == "shared":
            self._store_shared(address, width, values, s, pc)
        elif space == "global":
            self._store_global(address, width, values, s, pc, order)
        elif space == "local":
            self.local.store(address, width, values, s, pc)
        else:
            raise self.machine.reporter.stop(pc, "a kernel parameter is written")

    def _spaces(self, address: NDArray[Any], s: Any) -> list[tuple[str, Any, Any]]:
        """Generic addresses by space: name, which of them, their threads."""
        window = address.astype(U64) >> WINDOW_SHIFT
        kinds = distinct(window)
        names = [SPACE_OF_WINDOW.get(k, "global") for k in kinds]
        if len(kinds) == 1:
            return [(names[0], slice(None), s)]
        ids = self.machine.ids[s]
        parts = [(n, window == k) for n, k in zip(names, kinds, strict=True)]
        return [(name, part, ids[part]) for name, part in parts]

    def _generic_load(
        self, address: Any, width: int, count: int, s: Any, pc: int, order: str
    ) -> list[Any]:
        spaces = self._spaces(address, s)
        if len(spaces) == 1:
            return self._load(spaces[0][0], address, width, count, s, pc, order)
        out = [np.zeros(len(address), f"u{width}") for _ in range(count)]
        for name, part, lanes in spaces:
            for target, value in zip(
                out, self._load(name, address[part], width, count, lanes, pc, order), strict=True
            ):
                target[part] = value
        return out

    # Shared -----------------------------------------------------------------------------------
    def shared_at(
        self, address: Any, size: int, s: Any, pc: int, what: str
    ) -> tuple[NDArray[np.int64], Any]:
        """Physical addresses, and which of them are allowed (None: all)."""
        m = self.machine
        shared = m.shared
        at = shared.physical(address, m.cta_offset[s])
        good = None
        outside = shared.outside(at, size)
        if outside.any():
            i = int(np.argmax(outside))
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"shared {what} of {size} bytes at {int(at[i]) % shared.size:#x}, and shared "
                "memory "
                f"spans 0x400 to {shared.end:#x}",
                who=m.thread(s, i),
                missing="a bounds check, or more dynamic shared memory in the launch",
            )
            good = ~outside
            at = np.where(outside, shared.end - size & -16, at)
        if (at & (size - 1)).any():
            i = int(np.argmax((at & (size - 1)) != 0))
            m.reporter.add(
                "misaligned",
                pc,
                f"shared {what} of {size} bytes at {int(at[i]) % shared.size:#x}",
                who=m.thread(s, i),
                missing=f"an address that is a multiple of {size}",
            )
            at = at & -size
        m.counts.shared(pc, len(at), size, what)
        if m.counts.mode == "full":
            m.counts.banks(pc, at, size, m.warp[s], m.lane[s])
        return at, good

    def _load_shared(self, address: Any, width: int, count: int, s: Any, pc: int) -> list[Any]:
        m, size = self.machine, width * count
        at, good = self.shared_at(address, size, s, pc, "read")
        if m.checks:
            g, w, lane = m.shared.granules(at, size), m.warp[s], m.lane[s]
            if good is not None:
                g, w, lane = g[good], w[good], lane[good]
            m.shadow.thread_read(g, w, lane, pc)
        view, index = m.shared.views[width], at // width
        return [view[index + i] if i else view[index] for i in range(count)]

    def _store_shared(self, address: Any, width: int, values: list[Any], s: Any, pc: int) -> None:
        m, size = self.machine, width * len(values)
        at, good = self.shared_at(address, size, s, pc, "write")
        if good is not None:
            values = [v[good] if np.ndim(v) else v for v in values]
            at, s = at[good], m.ids[s][good]
        w, lane = m.warp[s], m.lane[s]
        view, index = m.shared.views[width], at // width
        places = [index + i for i in range(len(values))]
        self.put_shared(view, places, values, at, size, w, lane, pc)
        if m.checks:
            m.sync.overwritten(at, size, pc, s)

    def put_shared(
        self,
        view: Any,
        places: list[Any],
        values: list[Any],
        at: Any,
        size: int,
        warp: Any,
        lane: Any,
        pc: int,
        as_one: bool = False,
    ) -> None:
        """Check stores of lanes [n] of ``size`` bytes at ``at`` [n], and do them.

        ``values`` [n, ...], or one for all lanes, go to the elements ``places`` [n, ...] of
        ``view``, a view of shared memory. With ``as_one`` each warp stores as a whole.
        """
        m = self.machine
        if m.checks and len(at) > 1 and at[0] == at[-1] and m.model.equal_stores:
            as_one = as_one or _is_one(at, values)
        for rows in by_warps(at, warp) if m.checks else TOGETHER:
            own = [v[rows] if np.ndim(v) else v for v in values]
            here = list(zip([p[rows] for p in places], own, strict=True))
            if m.checks:
                g = m.shared.granules(at[rows], size)
                alike = partial(_alike, view, here)
                m.shadow.thread_write(g, warp[rows], lane[rows], pc, alike, as_one)
            for place, value in here:
                view[place] = value

    # Global -----------------------------------------------------------------------------------
    def global_at(
        self, address: Any, size: int, s: Any, pc: int, what: str, aligned: int = 0
    ) -> list[tuple[Any, Any, Any]]:
        """Allocation, offsets in its bytes and which threads, for all accesses inside of one.

        Addresses are multiples of ``aligned``, of the size where it is 0.
        """
        m = self.machine
        address, aligned = address.astype(U64), aligned or size
        if (address & U64(aligned - 1)).any():
            i = int(np.argmax((address & U64(aligned - 1)) != 0))
            m.reporter.add(
                "misaligned",
                pc,
                f"global {what} of {size} bytes at {int(address[i]):#x}",
                who=m.thread(s, i),
                missing=f"an address that is a multiple of {aligned}",
            )
            address = address & ~U64(aligned - 1)
        m.counts.memory(pc, len(address), size, what)
        if m.counts.mode == "full":
            m.counts.touched(pc, address, size, m.warp[s])
        out = []
        for region, part in m.memory_map.split(address, size):
            chosen = address if part is None else address[part]
            if region is None:
                i = int(np.argmax(part)) if part is not None else 0
                m.memory_map.outside(pc, what, int(address[i]), size, m.thread(s, i))
            else:
                out.append((region, (chosen - U64(region.low)).astype(np.int64), part))
        return out

    def _load_global(
        self, address: Any, width: int, count: int, s: Any, pc: int, order: str
    ) -> list[Any]:
        m, size = self.machine, width * count
        order, reach = atomics.reach_of(order)
        groups = self.global_at(address, size, s, pc, "read")
        if order in ACQUIRES or order == "relaxed":
            at_once = order in ACQUIRES or m.model.relaxed_publishes
            with waiting(m, s):
                m.words.acquire(address, m.warp[s], at_once, reach)
            if m.trace is not None:
                m.trace.read_words(m.number, address, m.warp[s], pc)
            m.scheduler.asks(pc)
        if m.memory_map.reads.fill is not None and order == "weak":
            return self._load_filled(groups, len(address), width, count, s, pc)
        if len(groups) == 1 and groups[0][2] is None:
            region, at, _ = groups[0]
            self.note(region, at, size, pc, False, s, order != "weak")
            view, index = region.views[width], at // width
            return [view[index + i] if i else view[index] for i in range(count)]
        out = [np.zeros(len(address), f"u{width}") for _ in range(count)]
        for region, at, part in groups:
            self.note(region, at, size, pc, False, s, order != "weak", part)
            for i in range(count):
                out[i][part] = region.views[width][at // width + i]
        return out

    def _load_filled(
        self, groups: list[tuple[Any, Any, Any]], n: int, width: int, count: int, s: Any, pc: int
    ) -> list[Any]:
        """The same, but reads that raced in an earlier run give other bytes and leave no trace."""
        m, size = self.machine, width * count
        reads, shift = m.memory_map.reads, m.memory_map.shift
        out = [np.zeros(n, f"u{width}") for _ in range(count)]
        for region, at, part in groups:
            threads = np.arange(n) if part is None else np.flatnonzero(part)
            granules = (at >> shift)[:, None] + np.arange(-(-size >> shift))
            place = (m.words.cluster, pc, region.base)
            filled, plain = reads.filled(place, granules, m.warp[m.ids[s][threads]])
            if plain.any():
                self.note(region, at[plain], size, pc, False, s, False, threads[plain])
            for i in range(count):
                out[i][threads] = region.views[width][at // width + i]
                out[i][threads[filled]] = int.from_bytes([reads.fill or 0] * width, "little")
        return out

    def _store_global(
        self, address: Any, width: int, values: list[Any], s: Any, pc: int, order: str
    ) -> None:
        m, size = self.machine, width * len(values)
        order, reach = atomics.reach_of(order)
        for region, at, part in self.global_at(address, size, s, pc, "write"):
            own = [v[part] if part is not None and np.ndim(v) else v for v in values]
            who = m.ids[s] if part is None else m.ids[s][part]
            for rows in by_warps(at, m.warp[who]) if m.checks else TOGETHER:
                taken = [v[rows] if np.ndim(v) else v for v in own]
                self._put(region, at[rows], width, taken, who[rows], pc, order)
        if order != "weak":
            whole = order in RELEASES or m.model.relaxed_publishes
            m.words.release(address, m.warp[s], whole, reach=reach)
            withhold(m, s, pc)
            if m.trace is not None:
                m.trace.write_words(m.number, address, m.warp[s], pc)

    def _put(
        self, region: Any, at: Any, width: int, values: list[Any], ids: Any, pc: int, order: str
    ) -> None:
        """Check stores of threads ``ids`` [n] at offsets ``at`` [n], and do them."""
        m, size = self.machine, width * len(values)
        places = [at // width + i for i in range(len(values))]
        view, equal = region.views[width], False
        if m.model.equal_stores and region.shadow is not None:
            equal = np.all([view[p] == v for p, v in zip(places, values, strict=True)], axis=0)
        self.note(region, at, size, pc, True, ids, order != "weak", equal=equal)
        m.memory_map.changes += 1
        for place, value in zip(places, values, strict=True):
            view[place] = value

    def note(
        self,
        region: Any,
        at: Any,
        size: int,
        pc: int,
        writing: bool,
        s: Any,
        atomic: bool,
        part: Any = None,
        events: Any = None,
        equal: Any = False,
    ) -> None:
        """Checks that every access of threads to an allocation goes through.

        Args:
            region: The allocation.
            at: Offsets in it [n].
            size: Bytes of each.
            pc: The instruction.
            writing: Whether it writes.
            s: The threads.
            atomic: Whether it conflicts with none of its like.
            part: Which of the threads they are; all where it is None.
            events: Chains and numbers [n] that tell of its end, if it is asynchronous.
            equal: Which stores [n] leave what is there, or none.
        """
        m = self.machine
        if not m.checks:
            return
        if region.known is not None:
            if writing:
                region.known[at[:, None] + np.arange(size)] = True
            else:
                m.memory_map.known(region, at, size, pc, m.who(s))
        shift = m.memory_map.shift
        k = -(-size >> shift)
        g, ids = at >> shift, m.ids[s] if part is None else m.ids[s][part]
        if k > 1:
            g, ids = (g[:, None] + np.arange(k)).ravel(), ids.repeat(k)
            equal = np.repeat(equal, k) if np.ndim(equal) else equal
        warp = m.warp[ids]
        chain, number, detail = warp, m.clocks.seen[warp, warp], m.lane[ids]
        if events is not None:
            chain, number = (np.repeat(x, k) for x in events)
            detail = warp
        m.memory_map.touch(
            region,
            g,
            Access(
                m.words, m.words.cluster, warp, chain, number, detail, pc, writing, atomic, equal
            ),
        )

    # Atomics ----------------------------------------------------------------------------------
    def atomic(
        self,
        space: str,
        operation: str,
        kind: str,
        address: Any,
        values: list[Any],
        count: int,
        s: Any,
        pc: int,
        order: str,
    ) -> list[Any]:
        """Read, modify and write as one; returns what stood there before."""
        m = self.machine
        address = fn.spread(address, len(m.ids[s]))
        out = [np.zeros(len(address), atomics.code(kind)) for _ in range(count)]
        spaces = self._spaces(address, s) if space == "generic" else [(space, slice(None), s)]
        for name, part, lanes in spaces:
            subset = [np.broadcast_to(v, len(address))[part] for v in values]
            old = atomics.atomic(
                self, name, operation, kind, address[part], subset, count, lanes, pc, order
            )
            for target, value in zip(out, old, strict=True):
                target[part] = value
        return out


def _is_one(at: Any, values: list[Any]) -> bool:
    """Whether all threads store the same to one place: each then finds there what it stored."""
    same = (np.ndim(v) == 0 or not np.count_nonzero(v != v[0]) for v in values)
    return not np.count_nonzero(at != at[0]) and all(same)


def _alike(view: Any, stores: list[tuple[Any, Any]]) -> Any:
    """Which stores [n] to places of ``view`` leave what is there."""
    return np.all([(view[p] == v).reshape(len(p), -1).all(1) for p, v in stores], axis=0)
