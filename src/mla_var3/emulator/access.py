"""Emulated memory accesses of threads: runs loads, stores and atomics in every PTX state space.

``Memory`` is called by lowered code; it moves the bytes and has each access checked for races.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import formats
from mla_var3.emulator import functions as fn
from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.formats import F16, F32, F64, U16, U64
from mla_var3.emulator.lower.base import LOCAL_WINDOW, PARAM_WINDOW, SHARED_WINDOW
from mla_var3.emulator.regions import Access

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

WINDOW_SHIFT = U64(48)
SPACE_OF_WINDOW = {
    SHARED_WINDOW >> 48: "shared",
    PARAM_WINDOW >> 48: "parameter",
    LOCAL_WINDOW >> 48: "local",
}
LOW_BITS = U64((1 << 48) - 1)
ACQUIRES = ("acquire", "acq_rel")
RELEASES = ("release", "acq_rel")


class Parameters:
    """The block of kernel parameters, constant for a launch."""

    def __init__(self, block: bytes) -> None:
        padded = np.zeros(-(-len(block) // 16) * 16 + 16, np.uint8)
        padded[: len(block)] = np.frombuffer(block, np.uint8)
        self.bytes = padded
        self.views = {w: padded.view(f"u{w}") for w in (1, 2, 4, 8)}

    def read(self, at: int, width: int, count: int) -> list[Any]:
        """``count`` scalars of ``width`` bytes from byte ``at`` on."""
        if at % width == 0:
            return list(self.views[width][at // width : at // width + count])
        raw = self.bytes[at : at + width * count].copy()
        return list(raw.view(f"u{width}"))


class Memory:
    """What lowered code calls to read and write memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.local = np.full((machine.threads, machine.program.local_bytes), 0xA5, np.uint8)
        self.local_known = np.zeros(self.local.shape, bool)

    def start(self) -> None:
        """A new cluster: local memory holds nothing."""
        self.local_known[:] = False

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
            return self._load_parameter(address, width, count, s, pc)
        return self._load_local(address, width, count, s, pc)

    def _store(
        self, space: str, address: Any, width: int, values: list[Any], s: Any, pc: int, order: str
    ) -> None:
        if space == "shared":
            self._store_shared(address, width, values, s, pc)
        elif space == "global":
            self._store_global(address, width, values, s, pc, order)
        elif space == "local":
            self._store_local(address, width, values, s, pc)
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
        if m.checks:
            g, w, lane = m.shared.granules(at, size), m.warp[s], m.lane[s]
            if good is not None:
                g, w, lane = g[good], w[good], lane[good]
            m.shadow.thread_write(g, w, lane, pc)
            m.sync.overwritten(at, size, pc, s)
        view, index = m.shared.views[width], at // width
        for i, value in enumerate(values):
            if good is None:
                view[index + i] = value
            else:
                view[index[good] + i] = np.broadcast_to(value, index.shape)[good]

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
        groups = self.global_at(address, size, s, pc, "read")
        if order in ACQUIRES or order == "relaxed":
            m.words.acquire(address, m.warp[s], order in ACQUIRES or m.model.relaxed_publishes)
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
        for region, at, part in self.global_at(address, size, s, pc, "write"):
            own = [v[part] if part is not None and np.ndim(v) else v for v in values]
            places = [at // width + i for i in range(len(own))]
            view, equal = region.views[width], False
            if m.model.equal_stores and region.shadow is not None:
                equal = np.all([view[p] == v for p, v in zip(places, own, strict=True)], axis=0)
            self.note(region, at, size, pc, True, s, order != "weak", part, equal=equal)
            m.memory_map.changes += 1
            for place, value in zip(places, own, strict=True):
                view[place] = value
        if order != "weak":
            m.words.release(address, m.warp[s], order in RELEASES or m.model.relaxed_publishes)
            if m.trace is not None:
                m.trace.write_words(m.number, address, m.warp[s], pc)

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

    # Local and parameters ---------------------------------------------------------------------
    def _local_at(self, address: Any, size: int, s: Any, pc: int, what: str) -> Any:
        m = self.machine
        at = (address.astype(U64) & LOW_BITS).astype(np.int64)
        outside = at + size > self.local.shape[1]
        if outside.any():
            i = int(np.argmax(outside))
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"local {what} of {size} bytes at byte {int(at[i])} of a frame of "
                f"{self.local.shape[1]}",
                who=m.thread(s, i),
                missing="an index inside of the array",
            )
            at = np.where(outside, 0, at)
        m.counts.local(pc, size, len(at), what)
        return at, m.ids[s]

    def _load_local(self, address: Any, width: int, count: int, s: Any, pc: int) -> list[Any]:
        if not self.local.shape[1]:
            raise self.machine.reporter.stop(pc, "local memory is read and there is none")
        at, thread = self._local_at(address, width * count, s, pc, "read")
        if self.machine.checks:
            index = (thread[:, None], at[:, None] + np.arange(width * count))
            fresh = ~self.local_known[index].all(1)
            if fresh.any():
                i = int(np.argmax(fresh))
                self.machine.reporter.add(
                    "uninitialized-read",
                    pc,
                    f"local byte {int(at[i])} is read and nothing has written it",
                    who=self.machine.thread(s, i),
                    missing="a write before",
                )
        raw = self.local[thread[:, None], at[:, None] + np.arange(width * count)]
        codes = np.ascontiguousarray(raw).view(f"u{width}")
        return [codes[:, i] for i in range(count)]

    def _store_local(self, address: Any, width: int, values: list[Any], s: Any, pc: int) -> None:
        size = width * len(values)
        at, thread = self._local_at(address, size, s, pc, "write")
        index = (thread[:, None], at[:, None] + np.arange(size))
        codes = np.stack([np.broadcast_to(v, len(at)).astype(f"u{width}") for v in values], 1)
        self.local[index] = np.ascontiguousarray(codes).view(np.uint8)
        self.local_known[index] = True

    def _load_parameter(self, address: Any, width: int, count: int, s: Any, pc: int) -> list[Any]:
        m = self.machine
        at = (address.astype(U64) & LOW_BITS).astype(np.int64)
        if (at + width * count > len(m.parameters.bytes)).any():
            raise m.reporter.stop(pc, "kernel parameters are read past their end")
        codes = np.ascontiguousarray(m.parameters.bytes[at[:, None] + np.arange(width * count)])
        return [codes.view(f"u{width}")[:, i] for i in range(count)]

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
        out = [np.zeros(len(address), _code(kind)) for _ in range(count)]
        spaces = self._spaces(address, s) if space == "generic" else [(space, slice(None), s)]
        for name, part, lanes in spaces:
            subset = [np.broadcast_to(v, len(address))[part] for v in values]
            old = self._atomic(
                name, operation, kind, address[part], subset, count, lanes, pc, order
            )
            for target, value in zip(out, old, strict=True):
                target[part] = value
        return out

    def _atomic(
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
        m, width = self.machine, np.dtype(_code(kind)).itemsize
        size = width * count
        if space == "shared":
            at, good = self.shared_at(address, size, s, pc, "atomic")
            if m.checks:
                m.shadow_atomic(m.shared.granules(at, size), s, pc)
            keep = slice(None) if good is None else good
            return _modify(m.shared.views[width], at // width, operation, kind, values, count, keep)
        if space != "global":
            raise m.reporter.stop(pc, f"an atomic on {space} memory is not emulated")
        out = [np.zeros(len(address), _code(kind)) for _ in range(count)]
        signal = kind[0] in "usb" or operation in ("exch", "cas")
        if signal:
            learns = order in ACQUIRES or m.model.relaxed_publishes
            m.words.acquire(address, m.warp[s], learns)
            if m.trace is not None:
                m.trace.read_words(m.number, address, m.warp[s], pc)
        for region, at, part in self.global_at(address, size, s, pc, "atomic"):
            chosen = slice(None) if part is None else part
            self.note(region, at, size, pc, True, s, True, part)
            subset = [v[chosen] for v in values]
            view, index = region.views[width], at // width
            with m.lock:
                old = _modify(view, index, operation, kind, subset, count, slice(None))
                changed = any((view[index + j] != old[j]).any() for j in range(count))
            m.memory_map.changes += changed
            if not changed:
                m.scheduler.asks(pc)
            for target, value in zip(out, old, strict=True):
                target[chosen] = value
        if signal:
            whole = order in RELEASES or m.model.relaxed_publishes
            m.words.release(address, m.warp[s], whole, not (learns and whole))
            if m.trace is not None:
                m.trace.write_words(m.number, address, m.warp[s], pc)
        m.progress += 1
        return out


def _code(kind: str) -> str:
    """Unsigned numpy type of the codes of an atomic's operand."""
    return {"f16x2": "u4", "bf16x2": "u4", "f16": "u2", "bf16": "u2"}.get(
        kind, f"u{int(kind[1:]) // 8 if kind[1:].isdigit() else 4}"
    )


def _modify(
    view: Any, index: Any, operation: str, kind: str, values: list[Any], count: int, keep: Any
) -> list[Any]:
    """Apply the operation thread after thread; values of ``cas`` are compare and new."""
    olds = [np.zeros(len(index), view.dtype) for _ in range(count)]
    lanes = np.arange(len(index))[keep]
    for j in range(count):
        extra = values[count:] if operation == "cas" else []
        chosen = index[lanes] + j
        if len(np.unique(chosen)) == len(chosen):
            old = view[chosen]
            view[chosen] = combine(
                operation, kind, old, values[j][lanes], *(e[lanes] for e in extra)
            )
            olds[j][lanes] = old
            continue
        for i in lanes:
            at = slice(int(index[i]) + j, int(index[i]) + j + 1)
            old = view[at].copy()
            view[at] = combine(
                operation, kind, old, values[j][i : i + 1], *(e[i : i + 1] for e in extra)
            )
            olds[j][i] = old[0]
    return olds


def combine(operation: str, kind: str, old: Any, value: Any, new: Any = None) -> Any:
    """What an atomic stores, as codes."""
    old = np.ascontiguousarray(old)
    value = np.ascontiguousarray(value).astype(old.dtype)
    match operation:
        case "exch":
            return value
        case "cas":
            return np.where(old == value, new, old)
        case "and":
            return old & value
        case "or":
            return old | value
        case "xor":
            return old ^ value
        case "inc":
            return np.where(old >= value, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return np.where((old == 0) | (old > value), value, old - old.dtype.type(1))
    a, b = _numbers(old, kind), _numbers(value, kind)
    result = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation](a, b)
    return _codes(result, kind)


def _numbers(codes: Any, kind: str) -> Any:
    match kind:
        case "f32":
            return codes.view(F32)
        case "f64":
            return codes.view(F64)
        case "f16":
            return codes.view(F16)
        case "bf16":
            return formats.from_bf16(codes)
    return codes.view(f"i{codes.itemsize}") if kind[0] == "s" else codes


def _codes(numbers: Any, kind: str) -> Any:
    match kind:
        case "bf16":
            return formats.to_bf16(numbers)
        case "f16":
            return numbers.view(U16)
    return numbers.view(f"u{numbers.itemsize}")
