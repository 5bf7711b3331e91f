"""Emulated ``wgmma`` unit: runs warpgroup matrix products and reports early use of operands."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import WGMMA
from mla_var3.emulator.formats import F16
from mla_var3.emulator.granules import ranges
from mla_var3.emulator.units.base import WARPGROUP as GROUP
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.layouts import Descriptor, Wgmma, element_bytes, half_pairs, values
from mla_var3.emulator.units.pending import Operation
from mla_var3.emulator.units.products import ProductText
from mla_var3.emulator.windows import SHARED_START

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

PRODUCT = Operation(
    "a wgmma", "pending-accumulator", "wgmma.wait_group before the register is touched"
)
#: Products m n k up to which OpenBLAS takes one thread.
BLAS_ALONE = 1 << 18


@dataclass
class Pending:
    """What one warp has in flight."""

    clock: int = 0
    joined: NDArray[np.int64] | None = None
    #: Committed groups: the clock of their last product, and what its warps had seen together.
    groups: deque[tuple[int, NDArray[np.int64] | None]] = field(default_factory=deque)
    #: Whether there was a wgmma.fence, without which no first wgmma may start.
    fenced: bool = False


#: One product: what it is, A's descriptor (None: registers), B's, whether the sum goes on.
Product = tuple[Wgmma, Any, Any, Any]


@dataclass(frozen=True)
class Tile:
    """Where an operand lies: its 16-byte pieces, its granules, and those of each warp's quarter."""

    chunks: NDArray[np.int64]
    granules: list[Any]
    quarters: list[list[Any]]


def multiplied(x: NDArray[Any], y: NDArray[Any]) -> NDArray[Any]:
    """``x @ y`` in steps that BLAS does in one thread: its threads cost more than they bring."""
    step = max(8, BLAS_ALONE // (len(x) * y.shape[1]))
    out = x[:, :step] @ y[:step]
    for k in range(step, len(y), step):
        out += x[:, k : k + step] @ y[k : k + step]
    return out


def _at(value: Any, i: int) -> int:
    """The value of the ``i``-th thread, or of all."""
    return int(value[i]) if np.ndim(value) else int(value)


def _sums(chain: list[Product], low: int) -> list[tuple[list[Product], bool]]:
    """The chain of the warpgroup at ``low``, cut where a product starts its sum anew."""
    out: list[tuple[list[Product], bool]] = []
    for item in chain:
        if (keep := bool(_at(item[3], low))) and out:
            out[-1][0].append(item)
        else:
            out.append(([item], keep))
    return out


class WarpgroupProducts(Unit):
    """The wgmma unit of a cluster."""

    name = "wgmma"
    text = ProductText

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.tiles: dict[tuple[tuple[int, ...], int, int, int, bool, int], Tile] = {}
        self.queued: list[Product] = []
        self.converted: dict[tuple[tuple[int, ...], int], NDArray[Any]] = {}
        machine.clocks.keepers.append(self._grow)
        self.start()

    def _grow(self) -> None:
        fit = self.machine.clocks.fit
        for p in self.warps:
            p.joined = None if p.joined is None else fit(p.joined)
            p.groups = deque((c, None if j is None else fit(j)) for c, j in p.groups)

    def start(self) -> None:
        """A new cluster: nothing is in flight."""
        self.warps = [Pending() for _ in range(self.machine.clocks.warps)]

    # Groups -----------------------------------------------------------------------------------
    def fence(self, _: int, s: Any, pc: int) -> None:
        """``wgmma.fence``."""
        self.machine.met(s)
        for w in self.machine.warps_of(s):
            self.machine.pending.written[w].clear()
            self.warps[w].fenced = True

    def commit(self, _: int, s: Any, pc: int) -> None:
        """``wgmma.commit_group``."""
        m = self.machine
        if m.trace is not None:
            m.trace.add(m.number, m.warps_of(s), "commit", pc)
        for w in self.machine.warps_of(s):
            mine = self.warps[w]
            mine.groups.append((mine.clock, mine.joined))

    def wait(self, most: int, s: Any, pc: int) -> None:
        """``wgmma.wait_group``."""
        m, clocks = self.machine, self.machine.clocks
        m.met(s)
        if m.trace is not None:
            m.trace.add(m.number, m.warps_of(s), "settle", pc, amount=most)
        for w in self.machine.warps_of(s):
            mine = self.warps[w]
            while len(mine.groups) > most:
                clock, joined = mine.groups.popleft()
                clocks.finish(w, WGMMA * clocks.warps + w, clock)
                if joined is not None:
                    clocks.join([w], joined)
                self.machine.pending.release(w, PRODUCT, clock)
        m.note("wgmma wait", s, pc)

    # Products ---------------------------------------------------------------------------------
    def queue(self, w: Wgmma, a: Any, b: Any, keep: Any) -> None:
        """A product of a chain that is not its last: ``run`` does all of them at once."""
        self.queued.append((w, a, b, keep))

    def run(self, w: Wgmma, a: Any, b: Any, keep: Any, s: Any, pc: int) -> None:
        """``wgmma.mma_async`` of each warpgroup in ``s``, and what is queued before it."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        chain, self.queued = [*self.queued, (w, a, b, keep)], []
        self.converted.clear()
        for low in range(0, n, GROUP):
            first = int(ids[low])
            if (
                len(ids[low : low + GROUP]) != GROUP
                or m.own[first] % GROUP
                or int(ids[low + GROUP - 1]) - first != GROUP - 1
            ):
                raise m.reporter.stop(pc, "a wgmma is met by a part of a warpgroup")
            for part, kept in _sums(chain, low):
                self._sum(part, kept, low, first, pc)
        m.note("wgmma", s, pc)

    def _sum(self, chain: list[Product], keep: bool, low: int, first: int, pc: int) -> None:
        """Products of one accumulator by one warpgroup, as one product along k."""
        m, w = self.machine, chain[0][0]
        lanes, base = slice(first, first + GROUP), int(m.cta_offset[first])
        words = tuple(_at(b, low) for _, _, b, _ in chain)
        right = self._tile(words, w.n, w.k, element_bytes(w.b), w.b_transposed, base, pc)
        x, left = self._left(chain, low, lanes, base, pc)
        product = multiplied(x, self._right(right, w, words, base))
        self._store(w, -product if w.negative else product, keep, lanes)
        m.counts.flops(pc, 2 * 64 * w.n * w.k * len(chain))
        if m.trace is not None:
            terms = w.n * w.k * len(chain) * element_bytes(w.b) // 2
            m.trace.product(m.number, int(m.warp[first]), terms, pc)
        if m.checks:
            self._checked(chain, int(m.warp[first]), right, left, pc)

    def _left(
        self, chain: list[Product], low: int, lanes: slice, base: int, pc: int
    ) -> tuple[NDArray[Any], Tile | None]:
        """A as [64, k], and where it lies unless in registers."""
        w, size = chain[0][0], element_bytes(chain[0][0].a)
        if w.a_rows is None:
            words = tuple(_at(a, low) for _, a, _, _ in chain)
            tile = self._tile(words, 64, w.k, size, w.a_transposed, base, pc)
            x = values(self._codes(tile, size, base), w.a)
            return (x.T if w.a_transposed else x), tile
        rows = np.concatenate([item[0].a_rows for item in chain if item[0].a_rows is not None])
        words_ = np.ascontiguousarray(self.machine.r[rows, lanes])
        # Register 2 block + half of step, lane 4 row + quad of a warp.
        x = values(words_.reshape(-1, 2, 2, 4, 8, 4).view(f"u{size}"), w.a)
        return x.transpose(3, 2, 4, 0, 1, 5).reshape(64, -1), None

    def _right(self, tile: Tile, w: Wgmma, words: tuple[int, ...], base: int) -> NDArray[Any]:
        """B as [k, n]; two warpgroups that read the same convert it once."""
        found = self.converted.get((words, base))
        if found is None:
            y = values(self._codes(tile, element_bytes(w.b), base), w.b)
            found = self.converted[words, base] = y if w.b_transposed else y.T
        return found

    def _codes(self, tile: Tile, size: int, base: int) -> NDArray[Any]:
        """Codes of a tile: [rows, depth], or [depth, rows] if transposed."""
        pieces = tile.chunks + base // 16 if base else tile.chunks
        return self.machine.shared.views[16][pieces].view(f"u{size}")

    def _tile(
        self,
        words: tuple[int, ...],
        rows: int,
        depth: int,
        size: int,
        transposed: bool,
        base: int,
        pc: int,
    ) -> Tile:
        """Where the tiles behind descriptors lie, put together along k."""
        key = (words, rows, depth, size, transposed, base)
        found = self.tiles.get(key)
        if found is None:
            parts = [self._place(word, rows, depth, size, transposed, pc) for word in words]
            chunks = np.concatenate(parts, axis=0 if transposed else 1)
            chunks = chunks // 16
            found = self.tiles[key] = Tile(chunks, *self._granules(chunks, transposed, base))
        return found

    def _granules(
        self, chunks: NDArray[np.int64], transposed: bool, base: int
    ) -> tuple[list[Any], list[list[Any]]]:
        """Granules of a tile, and of the quarter of each warp where it is an A of 64 rows."""
        shared = self.machine.shared

        def granules(part: NDArray[np.int64]) -> list[Any]:
            touched = np.zeros(shared.size // 16, bool)
            touched[part] = True
            return ranges(np.flatnonzero(touched) + base // 16, 16 // shared.granule)

        whole = granules(chunks)
        if transposed or len(chunks) != 64:
            return whole, [whole] * 4
        return whole, [granules(part) for part in np.split(chunks, 4)]

    def _place(
        self, word: int, rows: int, depth: int, size: int, transposed: bool, pc: int
    ) -> NDArray[np.int64]:
        m, descriptor = self.machine, Descriptor.of(word)
        chunks = descriptor.chunks(rows, depth, size, transposed)
        if self._inside(descriptor, chunks, pc):
            return chunks
        return np.clip(chunks, 0, m.shared.size - 16)

    def _inside(self, d: Descriptor, chunks: NDArray[np.int64], pc: int) -> bool:
        """Check a descriptor; whether its tile is in shared memory."""
        m = self.machine
        low, high = int(chunks.min()), int(chunks.max()) + 16
        inside = low >= SHARED_START and high <= m.shared.end
        if not inside:
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a matrix descriptor reaches shared {low:#x} to {high:#x}, and shared memory "
                "spans "
                f"{SHARED_START:#x} to {m.shared.end:#x}",
                missing="the right start, leading and stride offsets in the descriptor",
            )
        repeat = 128 << d.swizzle
        off = d.swizzle and d.offset == 0 and d.start % repeat >= 16 << d.swizzle
        if off and not m.model.swizzle_by_address:
            m.reporter.add(
                "descriptor",
                pc,
                f"a matrix descriptor with the {16 << d.swizzle}-byte swizzle starts at shared "
                f"{d.start:#x}, off its "
                f"{repeat}-byte pattern",
                missing=f"a tile aligned to {repeat} bytes, or the base offset",
            )
        return inside

    def _store(self, w: Wgmma, product: NDArray[Any], keep: bool, lanes: slice) -> None:
        """Add [64, n] to the accumulator's rows."""
        m = self.machine
        # Row 16 warp + 8 half + group, column 8 block + 2 quad + pair.
        grid = product.reshape(4, 2, 8, w.n // 8, 4, 2)
        rows = w.span
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
        elif keep and isinstance(rows, slice):
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
        self, chain: list[Product], w0: int, right: Tile, left: Tile | None, pc: int
    ) -> None:
        """Order of what was read, and what is in flight from now on."""
        m, clocks = self.machine, self.machine.clocks
        warps = range(w0, w0 + 4)
        accumulators = chain[0][0].outputs
        inputs = frozenset[int]().union(*(w.inputs for w, _, _, _ in chain))
        self._unfenced(w0, accumulators | inputs, pc)
        events = [clocks.issue(WGMMA, v) for v in warps]
        joined = None
        if m.model.wgmma_rendezvous:
            joined = clocks.seen[w0 : w0 + 4].max(0)
            for e in events:
                joined[e.chain] = e.number
        for v, e in zip(warps, events, strict=True):
            mine = self.warps[v]
            mine.clock, mine.joined = e.number, joined
            m.pending.hold(v, PRODUCT, e.number, accumulators, inputs, pc)
        for g in right.granules:
            self._ordered(g, warps, pc)
            m.shadow.mark_read(g, events, pc)
        if left is None:
            return
        clear = all(m.shadow.clear(g, warps) for g in left.granules)
        for part, v, e in zip(left.quarters, warps, events, strict=True):
            for g in part:
                if not clear:
                    self._ordered(g, range(v, v + 1), pc)
                m.shadow.mark_read(g, [e], pc)

    def _ordered(self, g: Any, warps: range, pc: int) -> None:
        """Check a read of granules for warps."""
        shadow = self.machine.shadow
        if not shadow.clear(g, warps):
            for v in warps:
                shadow.may_read(g, v, WGMMA, pc)

    def _unfenced(self, warp: int, registers: frozenset[int], pc: int) -> None:
        m = self.machine
        for v in range(warp, warp + 4):
            if not self.warps[v].fenced:
                self.warps[v].fenced = True
                m.reporter.add(
                    "missing-wgmma-fence",
                    pc,
                    f"the first wgmma of {m.warp_name(v)} comes before any wgmma.fence",
                    who=m.warp_name(v),
                    missing="wgmma.fence before the first wgmma",
                )
            written = m.pending.written[v]
            late = registers & written.keys()
            if late:
                m.reporter.add(
                    "missing-wgmma-fence",
                    pc,
                    f"a wgmma of {m.warp_name(v)} uses a register written since the last "
                    "wgmma.fence",
                    written[next(iter(late))],
                    m.warp_name(v),
                    missing="wgmma.fence after the write and before the wgmma",
                )
                for r in late:
                    del written[r]
