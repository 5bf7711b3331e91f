"""``wgmma``: products by a warpgroup from shared memory, and who may touch their registers."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import WGMMA
from mla_var3.emulator.formats import F16
from mla_var3.emulator.program import SHARED_START, Segment
from mla_var3.emulator.units.layouts import Descriptor, Wgmma, element_bytes, half_pairs, values

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

GROUP = 128


@dataclass
class Pending:
    """What one warp has in flight."""

    clock: int = 0
    joined: NDArray[np.int64] | None = None
    #: Committed groups: the clock of their last product, and what its warps had seen together.
    groups: deque[tuple[int, NDArray[np.int64] | None]] = field(default_factory=deque)
    #: Registers in flight: clock of the group (None: not committed), accumulators, inputs, pc.
    registers: list[tuple[int | None, frozenset[int], frozenset[int], int]] = field(
        default_factory=list
    )
    #: Registers written since the last wgmma.fence, and where.
    dirty: dict[int, int] = field(default_factory=dict)


class WarpgroupProducts:
    """The wgmma unit of a cluster."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tiles: dict[
            tuple[int, int, int, int, bool], tuple[NDArray[np.int64], NDArray[np.int64], Any]
        ] = {}
        used = (i for i in machine.program.constants.values() if isinstance(i, Wgmma))
        rows = {
            int(r) for w in used for part in (w.rows, w.a_rows) if part is not None for r in part
        }
        #: Registers that any wgmma uses: only writes to those are watched.
        self.used = frozenset(rows)
        self.start()

    def start(self) -> None:
        """A new cluster: nothing is in flight."""
        self.warps = [Pending() for _ in range(self.machine.clocks.warps)]
        self.in_flight = 0

    # Registers --------------------------------------------------------------------------------
    def watch(self, warps: list[int], segment: Segment) -> None:
        """Before a segment runs: does it touch registers in flight, or write inputs unfenced?"""
        written = segment.writes.keys() & self.used
        touched = (segment.reads.keys() & self.used) | written
        if not touched:
            return
        for w in warps:
            mine = self.warps[w]
            for _, accumulators, inputs, pc in mine.registers:
                if not (accumulators.isdisjoint(touched) and inputs.isdisjoint(written)):
                    late = (accumulators & touched) | (inputs & written)
                    self._pending(w, next(iter(late)), segment, pc)
                    break
            for r in written:
                mine.dirty[r] = segment.writes[r]

    def _pending(self, warp: int, register: int, segment: Segment, pc: int) -> None:
        m = self.machine
        at = segment.reads.get(register, segment.writes.get(register, segment.start))
        m.reporter.add(
            "pending-accumulator",
            at,
            f"{m.warp_name(warp)} touches a register of a wgmma that may still run",
            pc,
            m.warp_name(warp),
            missing="wgmma.wait_group before the register is touched",
        )

    def fence(self, _: int, s: Any) -> None:
        """``wgmma.fence``."""
        for w in self.machine.warps_of(s):
            self.warps[w].dirty.clear()

    def commit(self, _: int, s: Any) -> None:
        """``wgmma.commit_group``."""
        for w in self.machine.warps_of(s):
            mine = self.warps[w]
            mine.groups.append((mine.clock, mine.joined))
            mine.registers = [
                (mine.clock if c is None else c, a, i, p) for c, a, i, p in mine.registers
            ]

    def wait(self, most: int, s: Any) -> None:
        """``wgmma.wait_group``."""
        clocks = self.machine.clocks
        for w in self.machine.warps_of(s):
            mine = self.warps[w]
            while len(mine.groups) > most:
                clock, joined = mine.groups.popleft()
                clocks.finish(w, WGMMA * clocks.warps + w, clock)
                if joined is not None:
                    clocks.join([w], joined)
                mine.registers = [r for r in mine.registers if r[0] is None or r[0] > clock]
        self.in_flight = sum(len(p.registers) for p in self.warps)
        self.machine.note("wgmma wait", s, 0)

    # Products ---------------------------------------------------------------------------------
    def run(self, w: Wgmma, a: Any, b: Any, keep: Any, s: Any, pc: int) -> None:
        """``wgmma.mma_async`` of each warpgroup in ``s``."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        a = None if a is None else np.broadcast_to(a, n)
        b, keep = np.broadcast_to(b, n), np.broadcast_to(keep, n)
        for low in range(0, n, GROUP):
            first = int(ids[low])
            if (
                len(ids[low : low + GROUP]) != GROUP
                or m.own[first] % GROUP
                or int(ids[low + GROUP - 1]) - first != GROUP - 1
            ):
                raise m.reporter.stop(pc, "a wgmma is met by a part of a warpgroup")
            word = None if a is None else int(a[low])
            self._one(w, word, int(b[low]), bool(keep[low]), first, pc)
        m.note("wgmma", s, pc)

    def _one(self, w: Wgmma, a: int | None, b: int, keep: bool, first: int, pc: int) -> None:
        m, size = self.machine, element_bytes(w.a)
        lanes = slice(first, first + GROUP)
        base = int(m.cta_offset[first])
        right, read_b, _ = self._tile(b, w.n, w.k, size, w.b_transposed, base, pc)
        y = values(right, w.b)
        x, reads = self._left(w, a, lanes, size, base, pc)
        product = x @ (y.T if not w.b_transposed else y)
        if w.sign < 0:
            product = -product
        self._store(w, product, keep, lanes)
        m.counts.flops(pc, 2 * 64 * w.n * w.k)
        if m.checks:
            self._checked(w, int(m.warp[first]), read_b, reads, pc)

    def _left(
        self, w: Wgmma, word: int | None, lanes: slice, size: int, base: int, pc: int
    ) -> tuple[NDArray[Any], Any]:
        """A as [64, k], and which granules each warp's quarter of it is."""
        if w.a_rows is None:
            codes, _, quarters = self._tile(word or 0, 64, w.k, size, w.a_transposed, base, pc)
            x = values(codes, w.a)
            return (x.T if w.a_transposed else x), quarters
        words = np.ascontiguousarray(self.machine.r[w.a_rows, lanes].reshape(2, 2, 4, 8, 4))
        x = values(words.view(f"u{size}"), w.a)
        return x.transpose(2, 1, 3, 0, 4).reshape(64, w.k), None

    def _tile(
        self, word: int, rows: int, depth: int, size: int, transposed: bool, base: int, pc: int
    ) -> tuple[NDArray[Any], NDArray[np.int64], Any]:
        """Codes of a tile ([rows, depth], or [depth, rows] if transposed) and its granules."""
        m = self.machine
        key = (word, rows, depth, size, transposed)
        found = self.tiles.get(key)
        if found is None:
            found = self.tiles[key] = self._place(word, rows, depth, size, transposed, pc)
        chunks, granules, quarters = found
        shift = base // 16
        codes = m.shared.views[16][chunks + shift] if shift else m.shared.views[16][chunks]
        offset = base >> m.shared.shift
        return (
            codes.view(f"u{size}"),
            granules + offset if offset else granules,
            [q + offset for q in quarters] if quarters is not None else None,
        )

    def _place(
        self, word: int, rows: int, depth: int, size: int, transposed: bool, pc: int
    ) -> tuple[Any, Any, Any]:
        m, descriptor = self.machine, Descriptor.of(word)
        chunks = descriptor.chunks(rows, depth, size, transposed)
        self._legal(descriptor, chunks, pc)
        chunks = np.clip(chunks, 0, m.shared.size - 16)
        step = m.shared.granule
        wide = np.arange(0, 16, step)

        def granules(part: NDArray[np.int64]) -> NDArray[np.int64]:
            return np.unique((part[..., None] + wide) >> m.shared.shift)

        quarters = None
        if rows == 64 and not transposed:
            quarters = [granules(part) for part in np.split(chunks, 4)]
        elif rows == 64:
            quarters = [granules(chunks)] * 4
        return chunks // 16, granules(chunks), quarters

    def _legal(self, d: Descriptor, chunks: NDArray[np.int64], pc: int) -> None:
        m = self.machine
        low, high = int(chunks.min()), int(chunks.max()) + 16
        if low < SHARED_START or high > m.shared.end:
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a matrix descriptor reaches shared {low:#x} to {high:#x}, and shared memory "
                "spans "
                f"{SHARED_START:#x} to {m.shared.end:#x}",
                missing="the right start, leading and stride offsets in the descriptor",
            )
        repeat = 128 << d.swizzle
        if d.swizzle and d.offset == 0 and d.start % repeat >= 16 << d.swizzle:
            m.reporter.add(
                "descriptor",
                pc,
                f"a matrix descriptor with the {16 << d.swizzle}-byte swizzle starts at shared "
                f"{d.start:#x}, off its "
                f"{repeat}-byte pattern",
                missing=f"a tile aligned to {repeat} bytes, or the base offset",
            )

    def _store(self, w: Wgmma, product: NDArray[Any], keep: bool, lanes: slice) -> None:
        """Add [64, n] to the accumulator's rows."""
        m = self.machine
        # Row 16 warp + 8 half + group, column 8 block + 2 quad + pair.
        grid = product.reshape(4, 2, 8, w.n // 8, 4, 2)
        first = int(w.rows[0])
        contiguous = int(w.rows[-1]) - first == len(w.rows) - 1 and bool(
            (np.diff(w.rows) == 1).all()
        )
        rows = slice(first, first + len(w.rows)) if contiguous else w.rows
        if w.d == "f16":
            total: Any = grid.transpose(3, 1, 0, 2, 4, 5).reshape(w.n // 4, GROUP, 2)
            if keep:
                total = total + np.ascontiguousarray(m.r[rows, lanes]).view(F16).reshape(
                    w.n // 4, GROUP, 2
                )
            m.r[rows, lanes] = half_pairs(total.astype(F16).view(np.uint16))
            return
        total = grid.transpose(3, 1, 5, 0, 2, 4).reshape(w.n // 2, GROUP)
        if w.d == "s32":
            m.rs[rows, lanes] = self._integers(w, total, keep, rows, lanes)
        elif keep and contiguous:
            m.rf[rows, lanes] += total
        else:
            m.rf[rows, lanes] = m.rf[rows, lanes] + total if keep else total

    def _integers(
        self, w: Wgmma, total: NDArray[Any], keep: bool, rows: Any, lanes: slice
    ) -> NDArray[np.int32]:
        """Sums of integers, which wrap unless they saturate."""
        wide = total.astype(np.int64)
        if keep:
            wide = wide + self.machine.rs[rows, lanes]
        if w.saturate:
            wide = np.clip(wide, -(2**31), 2**31 - 1)
        return wide.astype(np.int32)

    def _checked(
        self, w: Wgmma, w0: int, read_b: NDArray[np.int64], quarters: Any, pc: int
    ) -> None:
        """Order of what was read, and what is in flight from now on."""
        m, clocks = self.machine, self.machine.clocks
        warps = range(w0, w0 + 4)
        accumulators = frozenset(w.rows.tolist())
        inputs = frozenset(w.a_rows.tolist()) if w.a_rows is not None else frozenset[int]()
        self._unfenced(w0, accumulators | inputs, pc)
        stamps = [clocks.issue(WGMMA, v) for v in warps]
        joined = None
        if m.model.wgmma_rendezvous:
            joined = clocks.seen[w0 : w0 + 4].max(0)
            for actor, clock in stamps:
                joined[actor] = clock
        for v, (_, clock) in zip(warps, stamps, strict=True):
            mine = self.warps[v]
            mine.clock, mine.joined = clock, joined
            mine.registers.append((None, accumulators, inputs, pc))
            self.in_flight += 1
        self._reads(w0, stamps, read_b, quarters, pc)

    def _reads(
        self,
        w0: int,
        stamps: list[tuple[int, int]],
        read_b: NDArray[np.int64],
        quarters: Any,
        pc: int,
    ) -> None:
        m, clocks = self.machine, self.machine.clocks
        memory = m.shared
        seen = clocks.seen[w0 : w0 + 4]
        # Most often all four warps have seen the same: one full check then stands for all.
        alike = bool((seen == seen[0])[:, memory.writer[read_b]].all()) if len(read_b) else True
        for i in range(1 if alike else 4):
            m.shadow.may_read(read_b, w0 + i, WGMMA, pc)
        m.shadow.mark_read(read_b, stamps[0][0], [clock for _, clock in stamps], pc)
        if quarters is not None:
            for i, (_, clock) in enumerate(stamps):
                m.shadow.unit_read(quarters[i], w0 + i, WGMMA, clock, pc)

    def _unfenced(self, warp: int, registers: frozenset[int], pc: int) -> None:
        m = self.machine
        for v in range(warp, warp + 4):
            late = registers & self.warps[v].dirty.keys()
            if late:
                m.reporter.add(
                    "missing-wgmma-fence",
                    pc,
                    f"a wgmma of {m.warp_name(v)} uses a register written since the last "
                    "wgmma.fence",
                    self.warps[v].dirty[next(iter(late))],
                    m.warp_name(v),
                    missing="wgmma.fence after the write and before the wgmma",
                )
                for r in late:
                    del self.warps[v].dirty[r]
