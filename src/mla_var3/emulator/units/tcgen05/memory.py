"""Emulated tensor memory of sm_100: allocates columns, runs ``tcgen05.ld`` and ``st`` by warps.

Each CTA has 128 lanes of 512 columns of 32 bits. A warp reaches the quarter of the lanes that its
number modulo 4 names.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import TENSOR_LOAD, TENSOR_STORE
from mla_var3.emulator.formats import F32
from mla_var3.emulator.units.base import THREAD, WARP, Unit, UnitText
from mla_var3.emulator.units.pending import Operation
from mla_var3.emulator.units.products import vector
from mla_var3.emulator.units.tcgen05.shadow import (
    BLOCK,
    BLOCKS,
    COLUMNS,
    LANES,
    ROOM,
    Place,
    TensorShadow,
)
from mla_var3.gpuless.ptx import Instruction

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.machine import Machine

#: Columns that the smallest allocation has.
FEWEST = 32
#: Words hold this before anything is written: a NaN as float32.
POISON = 0x7FBADBAD
QUARTER = 32


class Held(NamedTuple):
    """An allocation: its columns, and the instruction that made it."""

    columns: int
    pc: int


class Window(NamedTuple):
    """What a load or store touches: lane and column of each register of each thread [n, 32]."""

    lanes: NDArray[np.int64]
    columns: NDArray[np.int64]
    places: list[Place]


class TensorText(UnitText):
    """What ``tcgen05`` takes from a text: registers that loads fill."""

    blocking: ClassVar[tuple[str, ...]] = ("tcgen05.alloc",)

    @classmethod
    def lanes(cls, i: Instruction) -> int:
        return WARP if i.parts[0] == "tcgen05" and "sync" in i.parts else THREAD

    def closes(self, i: Instruction) -> bool:
        return i.op.startswith("tcgen05.ld")

    def registers(self) -> list[str]:
        loads = (i for i in self.kernel.instructions if i.op.startswith("tcgen05.ld"))
        return [name for i in loads for name in vector(i.args[0])]

    def moved(self) -> list[str]:
        return self.registers()


class TensorMemory(Unit):
    """The tensor memory of each CTA of a cluster."""

    name = "tensor_memory"
    text = TensorText

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        instructions = machine.program.kernel.instructions
        self.used = any(i.parts[0] == "tcgen05" for i in instructions)
        if not self.used:
            return
        n = machine.ctas
        self.words = np.full((n, LANES, ROOM), POISON, np.uint32)
        self.floats = self.words.view(F32)
        #: Whether each column is allocated.
        self.owned = np.zeros((n, ROOM), bool)
        self.shadow = TensorShadow(n, machine.clocks, machine.reporter, machine.model)
        self.loading = Operation("a tcgen05.ld", "pending-load", "", self._used)

    def start(self) -> None:
        """A new cluster: nothing is allocated, nothing is written."""
        if not self.used:
            return
        self.words[:] = POISON
        self.owned[:] = False
        self.allocations: dict[tuple[int, int], Held] = {}
        self.relinquished: set[int] = set()
        #: First columns that the other CTA of a pair has allocated for this one, until it asks.
        self.promised: dict[int, deque[int]] = {}
        self.shadow.start()

    # Allocation -------------------------------------------------------------------------------
    def block(self, f: Fragment, i: Instruction) -> bool:
        """``tcgen05.alloc``, which waits until there are so many columns."""
        m = self.machine
        if not f.full:
            f.wait = "converge"
            return False
        at, counts = m.scheduler.address(i.args[0], f), m.scheduler.value(i.args[1], f)
        pair = "cta_group::2" in i.parts
        done = np.zeros(f.n, bool)
        for lanes, here, n in self._warps(f.s, counts):
            to = int(at) if np.ndim(at) == 0 else int(at[here.start])
            done[here] = self._alloc(lanes, to, n, pair, i.pc)
        if done.all():
            f.pc += 1
            return True
        parts = [(f.ids[~done], f.pc)] + [(f.ids[done], f.pc + 1)] * bool(done.any())
        m.scheduler.split(f, parts)[0].wait = self.name
        return False

    def waits(self, f: Fragment, pc: int) -> str:
        """What a fragment in ``tcgen05.alloc`` waits for."""
        free = COLUMNS - int(np.count_nonzero(self.owned[self.machine.cta[f.ids[0]]]))
        return f"tcgen05.alloc, with {free} of {COLUMNS} columns of tensor memory free"

    def _alloc(self, lanes: slice, to: int, n: int, pair: bool, pc: int) -> bool:
        """Allocate for a warp, and for its peer where CTAs work in pairs; whether it was possible.

        Both CTAs of a pair ask: who comes first allocates for both.
        """
        m, cta = self.machine, int(self.machine.cta[lanes.start])
        self._may_allocate(lanes, cta, n, pc)
        waiting = self.promised.get(cta) if pair else None
        first: int | None
        if waiting:
            first = waiting.popleft()
        else:
            both = [cta, cta ^ 1] if pair and m.ctas > 1 else [cta]
            first = self._free(both, n)
            if first is None:
                return False
            for each in both:
                self.owned[each, first : first + n] = True
                self.allocations[each, first] = Held(n, pc)
            if len(both) > 1:
                self.promised.setdefault(cta ^ 1, deque()).append(first)
        lane = slice(lanes.start, lanes.start + 1)
        m.met(lanes)
        m.memory.store("shared", np.array([to], np.uint32), 4, [np.uint32(first)], lane, pc, "")
        m.met(lanes)
        m.progress += 1
        return True

    def _free(self, ctas: list[int], n: int) -> int | None:
        """The first of so many free columns in all of these CTAs."""
        free = ~np.any(self.owned[ctas], axis=0)
        starts = range(0, COLUMNS - n + 1, FEWEST)
        return next((c for c in starts if free[c : c + n].all()), None)

    def _may_allocate(self, lanes: slice, cta: int, n: int, pc: int) -> None:
        m = self.machine
        if not FEWEST <= n <= COLUMNS or n & (n - 1):
            raise m.reporter.stop(
                pc, f"tcgen05.alloc of {n} columns; a power of two from 32 to 512 is allowed"
            )
        if cta in self.relinquished:
            m.reporter.add(
                "tensor-memory-allocation",
                pc,
                "tcgen05.alloc after the CTA has given up its right to allocate",
                who=m.who(lanes),
                missing="tcgen05.relinquish_alloc_permit behind the last alloc",
            )

    def dealloc(self, address: Any, count: Any, s: Any, pc: int) -> None:
        """``tcgen05.dealloc``."""
        m = self.machine
        addresses = np.broadcast_to(address, len(m.ids[s]))
        for lanes, here, n in self._warps(s, count):
            cta, first = int(m.cta[lanes.start]), int(addresses[here.start]) & 0xFFFF
            held = self.allocations.get((cta, first))
            if held is None or held.columns != n:
                self._not_held(cta, first, n, m.who(lanes), pc)
                continue
            place = Place(cta, slice(0, BLOCKS), slice(first, first + n))
            if m.checks:
                self.shadow.end(place, int(m.warp[lanes.start]), pc)
            del self.allocations[cta, first]
            self.owned[cta, first : first + n] = False
            m.progress += 1
        m.scheduler.wake(self.name)

    def _not_held(self, cta: int, first: int, n: int, who: str, pc: int) -> None:
        held = [f"{h.columns} at {at}" for (c, at), h in self.allocations.items() if c == cta]
        self.machine.reporter.add(
            "tensor-memory-allocation",
            pc,
            f"tcgen05.dealloc of {n} columns at {first}, and allocated are "
            f"{' and '.join(held) or 'none'}",
            who=who,
            missing="the address and the size of the alloc",
        )

    def relinquish(self, s: Any) -> None:
        """``tcgen05.relinquish_alloc_permit``."""
        self.relinquished |= set(np.unique(self.machine.cta[s]).tolist())

    def finish(self) -> None:
        """Report what was not given back."""
        if not self.used:
            return
        m = self.machine
        for (cta, first), held in self.allocations.items():
            m.reporter.add(
                "tensor-memory-left",
                held.pc,
                f"CTA {cta} of the cluster ends with {held.columns} columns of tensor memory at "
                f"{first} allocated",
                len(m.program.kernel.instructions) - 1,
                missing="tcgen05.dealloc before the end, by one warp",
            )

    def _warps(self, s: Any, count: Any) -> Iterator[tuple[slice, slice, int]]:
        """Per warp of ``s``: its threads in the cluster and in ``s``, and a count."""
        m = self.machine
        ids = m.ids[s]
        n = len(ids)
        counts = np.broadcast_to(count, n)
        cuts = (np.flatnonzero(np.diff(m.warp[ids])) + 1).tolist()
        for low, high in zip([0, *cuts], [*cuts, n], strict=True):
            lanes = slice(int(ids[low]), int(ids[high - 1]) + 1)
            yield lanes, slice(low, high), int(counts[low])

    # Loads and stores -------------------------------------------------------------------------
    def load(
        self, rows: NDArray[np.int64], shape: str, pack: bool, far: int, at: Any, s: Any, pc: int
    ) -> None:
        """``tcgen05.ld``: registers of whole warps."""
        m, count = self.machine, len(rows) * (1 + pack)
        for lanes, _, address in self._warps(s, at):
            window = self._window(shape, count, far, address, lanes, pc, "ld")
            words = self.words[int(m.cta[lanes.start]), window.lanes, window.columns]
            if pack:
                words = (words[0::2] & 0xFFFF) | (words[1::2] << 16)
            m.r[rows, lanes] = words
            warp = int(m.warp[lanes.start])
            event = self.shadow.issue(TENSOR_LOAD, warp)
            if m.checks:
                for place in window.places:
                    self.shadow.read(place, event, pc)
                m.pending.hold(warp, self.loading, event.number, rows.tolist(), (), pc)

    def store(
        self, values: list[Any], shape: str, unpack: bool, far: int, at: Any, s: Any, pc: int
    ) -> None:
        """``tcgen05.st``."""
        m = self.machine
        n = len(m.ids[s])
        every = np.stack([np.broadcast_to(v, n) for v in values]).astype(np.uint32, copy=False)
        for lanes, here, address in self._warps(s, at):
            words = every[:, here]
            if unpack:
                words = np.stack([words & 0xFFFF, words >> 16], 1).reshape(-1, words.shape[1])
            window = self._window(shape, len(words), far, address, lanes, pc, "st")
            self.words[int(m.cta[lanes.start]), window.lanes, window.columns] = words
            event = self.shadow.issue(TENSOR_STORE, int(m.warp[lanes.start]))
            if m.checks:
                for place in window.places:
                    self.shadow.write(place, event, pc)

    def _window(
        self, shape: str, count: int, far: int, at: int, lanes: slice, pc: int, what: str
    ) -> Window:
        m, cta = self.machine, int(self.machine.cta[lanes.start])
        base, first = at >> 16 & 0x7FFF, at & 0xFFFF
        rows, columns, wide = pattern(shape, count, far)
        high = QUARTER if shape == "32x32b" else BLOCK
        own = QUARTER * (int(m.warp[lanes.start]) % m.warps_per_cta % 4)
        if not own <= base <= own + QUARTER - high or base % BLOCK:
            if (base | own) != own or not m.model.lanes_by_warp:
                self._foreign(base, own, lanes, pc, what)
            base = own
        starts = [first, first + far] if far else [first]
        parts = [slice(c, c + wide) for c in starts]
        if parts[-1].stop > ROOM:
            raise m.reporter.stop(
                pc, f"tcgen05.{what} reaches column {parts[-1].stop} of {COLUMNS}"
            )
        blocks = slice(base // BLOCK, (base + high) // BLOCK)
        places = [Place(cta, blocks, part) for part in parts]
        self.allocated(places, pc, what)
        return Window(base + rows, first + columns, places)

    def _foreign(self, base: int, own: int, lanes: slice, pc: int, what: str) -> None:
        who = self.machine.warp_name(int(self.machine.warp[lanes.start]))
        self.machine.reporter.add(
            "tensor-memory-lanes",
            pc,
            f"tcgen05.{what} by {who} at lane {base}, and a warp of this number reaches lanes "
            f"{own} to {own + QUARTER - 1} only",
            who=who,
            missing="the lane of the warp's quarter (32 times its number modulo 4) in the address",
        )

    def allocated(self, places: list[Place], pc: int, what: str) -> None:
        """Report columns that are not allocated."""
        for cta, _, columns in places:
            if not self.owned[cta, columns].all():
                self.machine.reporter.add(
                    "out-of-bounds",
                    pc,
                    f"tcgen05.{what} touches columns {columns.start} to {columns.stop - 1} of the "
                    f"tensor memory of CTA {cta} of the cluster, and not all are allocated",
                    missing="tcgen05.alloc of so many columns before, and no dealloc yet",
                )

    # Order ------------------------------------------------------------------------------------
    def wait(self, loads: bool, s: Any) -> None:
        """``tcgen05.wait::ld`` and ``wait::st``."""
        m, unit = self.machine, TENSOR_LOAD if loads else TENSOR_STORE
        for w in m.warps_of(s):
            chain, number = self.shadow.last(unit, w)
            self.shadow.finish(w, chain, number)
            if loads:
                m.pending.release(w, self.loading, number)

    def _used(self, warp: int, number: int) -> None:
        """A warp uses a register of a load: the hardware has waited for it."""
        m = self.machine
        m.pending.release(warp, self.loading, number)
        if m.model.loads_done_when_used:
            self.shadow.finish(warp, self.shadow.last(TENSOR_LOAD, warp)[0], number)

    def fence(self, after: bool, s: Any) -> None:
        """``tcgen05.fence``."""
        for w in self.machine.warps_of(s):
            (self.shadow.after if after else self.shadow.before)(w)


def memory_of(machine: Machine) -> TensorMemory:
    """The tensor memory of a machine."""
    return cast("TensorMemory", machine.units[TensorMemory.name])


@lru_cache(maxsize=64)
def pattern(shape: str, count: int, far: int) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Lane and column of register ``i`` of thread ``t`` [count, 32], and columns in a row.

    As the atoms of CUTLASS's ``copy_traits_sm100.hpp`` have them, repeated along the columns.
    """
    i, t = np.arange(count)[:, None], np.arange(32)[None, :]
    match shape:
        case "32x32b":
            lanes, columns, wide = t, i, count
        case "16x32bx2":
            lanes, columns, wide = t % 16, i + t // 16 * far, count
        case "16x64b":
            lanes, columns, wide = t % 2 * 8 + t // 4, t // 2 % 2 + 2 * i, 2 * count
        case "16x128b":
            lanes, columns, wide = t // 4 + i % 2 * 8, t % 4 + i // 2 * 4, 2 * count
        case _:
            columns, wide = t % 4 * 2 + i % 2 + i // 4 * 8, 2 * count
            lanes = t // 4 + i % 4 // 2 * 8
    lanes, columns = np.broadcast_arrays(lanes, columns)
    return lanes, columns, wide
