"""Race detector of emulated tensor memory: keeps the last accesses, reports unordered ones.

A granule is a block of 16 lanes in one column, the smallest piece that any ``tcgen05.ld``, ``st``
or ``mma`` touches.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import (
    NUMBER,
    PC_MASK,
    TENSOR,
    TENSOR_LOAD,
    TENSOR_STORE,
    Clocks,
    Event,
    Vector,
    detail,
    stamp,
)

if TYPE_CHECKING:
    from mla_var3.emulator.diagnostics import Reporter
    from mla_var3.emulator.options import Model

LANES, COLUMNS, BLOCK = 128, 512, 16
#: Columns that are kept: those behind the last are never allocated, so that whoever touches them is
#: reported and goes on.
ROOM = 2 * COLUMNS
BLOCKS = LANES // BLOCK
#: A number above that of every event.
ALWAYS = np.iinfo(np.int64).max
AFTER_WRITE = {
    TENSOR: "tcgen05.commit to an mbarrier, and a wait on it",
    TENSOR_STORE: "tcgen05.wait::st by the storing warp, and then a barrier",
}
AFTER_READ = {
    TENSOR: "tcgen05.commit to an mbarrier, and a wait on it",
    TENSOR_LOAD: "tcgen05.wait::ld by the loading warp, and then a barrier",
}
AFTER_SYNC = "tcgen05.fence::after_thread_sync behind the wait"
BEFORE_SYNC = "tcgen05.fence::before_thread_sync between the wait and the barrier"


class Place(NamedTuple):
    """Part of a CTA's tensor memory: blocks of lanes, and columns."""

    cta: int
    blocks: slice
    columns: slice

    def granules(self) -> Any:
        """As an index of the shadow: a slice where all lanes are meant."""
        return _granules(
            self.cta,
            *self.blocks.indices(BLOCKS),
            self.columns.start,
            self.columns.stop,
        )


@lru_cache(maxsize=4096)
def _granules(cta: int, first: int, last: int, step: int, low: int, high: int) -> Any:
    base = cta * ROOM
    if (first, last, step) == (0, BLOCKS, 1):
        return slice((base + low) * BLOCKS, (base + high) * BLOCKS)
    columns = np.arange(base + low, base + high)[:, None] * BLOCKS
    return (columns + np.arange(first, last, step)).reshape(-1)


@dataclass
class Reads:
    """The last read of each granule by one chain: its stamp, and the form of the product."""

    stamps: NDArray[np.int64]
    forms: NDArray[np.int64]


class TensorShadow:
    """Checks of accesses to the tensor memory of a cluster.

    Args:
        ctas: CTAs of the cluster.
        clocks: What its warps know.
        reporter: Takes what is found.
        model: What hardware is assumed to do.
    """

    def __init__(self, ctas: int, clocks: Clocks, reporter: Reporter, model: Model) -> None:
        self.clocks, self.reporter, self.model = clocks, reporter, model
        self.count = ctas * ROOM * BLOCKS
        self.writer = np.zeros(self.count, np.int32)
        self.written = np.zeros(self.count, np.int64)
        self.forms = np.zeros(self.count, np.int64)
        self.known = np.zeros(self.count, bool)
        self.reads: dict[int, Reads] = {}
        self.fenced = clocks.seen.copy()
        clocks.keepers.append(self._grow)
        self.start()

    def _grow(self) -> None:
        self.fenced = np.pad(self.fenced, ((0, 0), (0, self.clocks.room - self.fenced.shape[1])))

    def start(self) -> None:
        """A new cluster: nothing is written."""
        self.known[:] = False
        #: What each warp knew at its last fence::after_thread_sync, and of its own operations.
        self.fenced = self.clocks.seen.copy()
        #: Operations that warps have waited for, and no fence::before_thread_sync tells others of.
        self.untold: list[dict[int, int]] = [{} for _ in range(self.clocks.warps)]
        #: Per chain of products, in order, the number of its warp at each issue.
        self.issues: dict[int, list[int]] = {}

    # Events -----------------------------------------------------------------------------------
    def issue(self, unit: int, warp: int) -> Event:
        """The next operation of a unit for a warp: products and copies, loads, or stores."""
        clocks = self.clocks
        chain = clocks.chain(("tcgen05", unit, warp), unit)
        number = int(clocks.issued[chain]) + 1
        clocks.issued[chain] = number
        if unit == TENSOR:
            self.issues.setdefault(chain, []).append(int(clocks.seen[warp, warp]))
        return Event(chain, number, warp, unit)

    def last(self, unit: int, warp: int) -> tuple[int, int]:
        """Chain of a warp's operations of a unit, and the number of the last."""
        chain = self.clocks.chain(("tcgen05", unit, warp), unit)
        return chain, int(self.clocks.issued[chain])

    def finish(self, warp: int, chain: int, number: int) -> None:
        """A warp has waited for operations of its own."""
        self.fenced[warp, chain] = max(int(self.fenced[warp, chain]), number)
        if self.model.tensor_thread_sync:
            self.clocks.finish(warp, chain, number)
        else:
            self.untold[warp][chain] = number

    def before(self, warp: int) -> None:
        """``tcgen05.fence::before_thread_sync``: what was waited for may be passed on."""
        for chain, number in self.untold[warp].items():
            self.clocks.finish(warp, chain, number)
        self.untold[warp].clear()

    def after(self, warp: int) -> None:
        """``tcgen05.fence::after_thread_sync``: what others have passed on counts from now on."""
        np.maximum(self.fenced[warp], self.clocks.seen[warp], out=self.fenced[warp])

    def _over(self, event: Event) -> Vector:
        """Numbers of each chain up to which operations are over, or run before this one."""
        known = self.clocks.seen if self.model.tensor_thread_sync else self.fenced
        over = known[event.warp]
        if event.unit != TENSOR or not self.model.tensor_in_order:
            return over
        over = over.copy()
        over[event.chain] = ALWAYS
        if len(self.issues) > 1:
            self._begun(event.warp, known[event.warp], over)
        return over

    def _begun(self, warp: int, known: Vector, over: Vector) -> None:
        """Products of other warps that this one knows to have been issued run before its own."""
        for chain, at in self.issues.items():
            who = self._warp_of(chain)
            if who != warp:
                first = int(self.clocks.issued[chain]) - len(at)
                over[chain] = max(int(over[chain]), first + bisect_right(at, int(known[who])))

    def _warp_of(self, chain: int) -> int:
        return next(int(k[2]) for k, c in self.clocks.chains.items() if c == chain)  # type: ignore[index]

    # Accesses ---------------------------------------------------------------------------------
    def read(self, at: Place, event: Event, pc: int, form: int = 0) -> None:
        """An operation reads; ``form`` tells products apart that run in order under PTX alone."""
        g = at.granules()
        self._after_write(at, g, self._over(event), event, pc, "read", form)
        known = self.known[g]
        if np.count_nonzero(known) < known.size:
            self._unwritten(at, ~known, event, pc)
        mine = self.reads.get(event.chain)
        if mine is None:
            mine = Reads(np.zeros(self.count, np.int64), np.zeros(self.count, np.int64))
            self.reads[event.chain] = mine
        mine.stamps[g] = stamp(event.number, event.warp, pc)
        mine.forms[g] = form

    def write(self, at: Place, event: Event, pc: int, form: int = 0) -> None:
        """An operation writes."""
        g = at.granules()
        over = self._over(event)
        self._after_write(at, g, over, event, pc, "written", form)
        self._after_reads(at, g, over, event, pc, "written", form)
        self.writer[g], self.forms[g], self.known[g] = event.chain, form, True
        self.written[g] = stamp(event.number, event.warp, pc)

    def end(self, at: Place, warp: int, pc: int) -> None:
        """An allocation ends: nothing may touch it any more."""
        g, event = at.granules(), Event(warp, 0, warp, 0)
        over = self._over(event)
        self._after_write(at, g, over, event, pc, "deallocated", 0)
        self._after_reads(at, g, over, event, pc, "deallocated", 0)
        self.known[g] = False

    def scales(self, at: Place, event: Event, pc: int) -> None:
        """A product takes scale factors, which no product writes."""
        g = at.granules()
        bad = self.known[g] & (self.forms[g] != 0)
        if not np.count_nonzero(bad):
            return
        i = int(np.argmax(bad))
        stamped = int(self.written[g][i])
        who = self._who(event)
        self.reporter.add(
            "descriptor",
            pc,
            f"{_words(at, i)} is read for scale factors by {who}, and a product has written it",
            stamped & PC_MASK,
            who,
            self.clocks.who(int(self.writer[g][i]), stamped),
            "columns of their own for accumulators and scale factors",
        )

    # Order ------------------------------------------------------------------------------------
    def _after_write(
        self, at: Place, g: Any, over: Vector, event: Event, pc: int, what: str, form: int
    ) -> None:
        writer = self.writer[g]
        late = ((self.written[g] >> NUMBER) > over[writer]) & self.known[g]
        if np.count_nonzero(late):
            late &= ~self._piped(event, writer == event.chain, self.forms[g], form)
        if np.count_nonzero(late):
            self._race_write(at, g, int(np.argmax(late)), event, pc, what)

    def _after_reads(
        self, at: Place, g: Any, over: Vector, event: Event, pc: int, what: str, form: int
    ) -> None:
        for chain, reads in self.reads.items():
            late = (reads.stamps[g] >> NUMBER) > over[chain]
            if np.count_nonzero(late) and chain == event.chain:
                late &= ~self._piped(event, np.True_, reads.forms[g], form)
            if np.count_nonzero(late):
                i = int(np.argmax(late))
                self._race_read(at, chain, int(reads.stamps[g][i]), i, event, pc, what)

    def _piped(self, event: Event, own: Any, before: NDArray[np.int64], form: int) -> Any:
        """What PTX alone lets run in order: products of one form, and copies before products."""
        if event.unit != TENSOR:
            return np.False_
        return own & ((before == form) | ((before == 0) & (form != 0)))

    # Words ------------------------------------------------------------------------------------
    def _race_write(self, at: Place, g: Any, i: int, event: Event, pc: int, what: str) -> None:
        stamped, chain = int(self.written[g][i]), int(self.writer[g][i])
        before, after = self.clocks.who(chain, stamped), self._who(event)
        missing = self._fence(chain, stamped, event) or AFTER_WRITE[self.clocks.units[chain]]
        self.reporter.add(
            "race",
            pc,
            f"{_words(at, i)} is written by {before} and {what} by {after}, and nothing orders "
            "the two",
            stamped & PC_MASK,
            after,
            before,
            missing,
        )

    def _race_read(
        self, at: Place, chain: int, stamped: int, i: int, event: Event, pc: int, what: str
    ) -> None:
        before, after = self.clocks.who(chain, stamped), self._who(event)
        missing = self._fence(chain, stamped, event) or AFTER_READ[self.clocks.units[chain]]
        self.reporter.add(
            "race",
            pc,
            f"{_words(at, i)} is still read by {before} when {after} has it {what}",
            stamped & PC_MASK,
            after,
            before,
            missing,
        )

    def _fence(self, chain: int, stamped: int, event: Event) -> str | None:
        """The fence that is missing where the rest is there."""
        number = stamped >> NUMBER
        if number <= self.clocks.seen[event.warp, chain]:
            return AFTER_SYNC
        if number <= self.untold[detail(stamped)].get(chain, 0):
            return BEFORE_SYNC
        return None

    def _unwritten(self, at: Place, mask: NDArray[np.bool_], event: Event, pc: int) -> None:
        self.reporter.add(
            "uninitialized-read",
            pc,
            f"{_words(at, int(np.argmax(mask)))} is read and nothing has written it",
            who=self._who(event),
            missing="a write, or a product that does not accumulate",
        )

    def _who(self, event: Event) -> str:
        return self.clocks.name(event.unit, event.warp)


def _words(at: Place, i: int) -> str:
    """The ``i``-th granule of a place."""
    blocks = range(*at.blocks.indices(BLOCKS))
    column, block = divmod(i, len(blocks))
    lane = blocks[block] * BLOCK
    return f"tensor memory lanes {lane} to {lane + 15}, column {at.columns.start + column}"
