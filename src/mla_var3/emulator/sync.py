"""Emulated mbarriers and fences: who arrives and who waits, and the order that they make."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import functions as fn
from mla_var3.emulator.clocks import BULK, SPACES, TENSOR, Event
from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.formats import U32, U64
from mla_var3.emulator.lagging import waiting
from mla_var3.emulator.mbarrier import MBarrier
from mla_var3.emulator.within import withhold

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine


class Sync:
    """The mbarriers of one cluster, and its fences."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.clocks.keepers.append(self._grow)
        self.start()

    def _grow(self) -> None:
        fit = self.machine.clocks.fit
        for b in self.mbarriers.values():
            b.vector, b.done = fit(b.vector), fit(b.done)

    def start(self) -> None:
        """A new cluster: no barrier is initialized."""
        self.mbarriers: dict[int, MBarrier] = {}
        #: Where they lie, in order.
        self.places: NDArray[np.int64] = np.zeros(0, np.int64)
        self.init_fenced = np.zeros(self.machine.clocks.warps, np.int64)

    def at(self, physical: int, pc: int, warps: Any = ()) -> MBarrier | None:
        """The barrier at an address; reports one that is not there or not yet visible."""
        m, barrier = self.machine, self.mbarriers.get(physical)
        if barrier is None:
            m.reporter.add(
                "barrier-uninitialized",
                pc,
                f"there is no mbarrier at shared {physical % m.shared.size:#x}",
                missing="mbarrier.init before, and a barrier after it",
            )
            return None
        for w in warps:
            if w not in barrier.known_to:
                barrier.known_to.add(w)
                self._visible(barrier, physical, pc, w)
        return barrier

    def _visible(self, barrier: MBarrier, physical: int, pc: int, warp: int) -> None:
        m = self.machine
        seen = max(
            m.clocks.seen[warp, barrier.init_warp], m.clocks.barriers_seen[warp, barrier.init_warp]
        )
        if m.checks and seen < barrier.init_clock:
            m.reporter.add(
                "barrier-unordered",
                pc,
                f"the mbarrier at shared {physical % m.shared.size:#x} is used by "
                f"{m.warp_name(warp)} with "
                f"no barrier since its initialization by {m.warp_name(barrier.init_warp)}",
                barrier.pc,
                m.warp_name(warp),
                m.warp_name(barrier.init_warp),
                "a barrier of the CTA (or cluster) after mbarrier.init",
            )

    def init(self, address: Any, count: Any, s: Any, pc: int) -> None:
        """``mbarrier.init``."""
        m = self.machine
        n = len(m.ids[s])
        at = fn.spread(m.shared.physical(address, m.cta_offset[s]), n)
        counts, warps = fn.spread(count, n), m.warp[s]
        for i in sorted({int(x): i for i, x in enumerate(at.tolist())}.values()):
            self._init(int(at[i]), int(counts[i]), int(warps[i]), pc)

    def _init(self, at: int, count: int, warp: int, pc: int) -> None:
        m = self.machine
        self._placed(at, count, pc)
        old = self.mbarriers.get(at)
        if old is not None:
            m.reporter.add(
                "barrier-reinitialized",
                pc,
                f"the mbarrier at shared {at % m.shared.size:#x} ({old.state()}) is "
                "initialized again",
                old.pc,
                missing="mbarrier.inval, or no second init",
            )
        chain = m.clocks.chain(("mbarrier", at), BULK)
        v, base = m.clocks.vector, int(m.clocks.issued[chain])
        clock = int(m.clocks.seen[warp, warp])
        self.mbarriers[at] = MBarrier(
            count, count, warp, clock, v(), v(), chain, base, pc=pc, known_to={warp}
        )
        self._place()

    def _place(self) -> None:
        self.places = np.array(sorted(self.mbarriers), np.int64)

    def _placed(self, at: int, count: int, pc: int) -> None:
        m = self.machine
        low = at % m.shared.size
        if at % 8:
            m.reporter.add(
                "misaligned", pc, f"an mbarrier at shared {low:#x}", missing="8-byte alignment"
            )
        if bool(m.shared.outside(np.array([at]), 8)[0]):
            m.reporter.add("out-of-bounds", pc, f"an mbarrier at shared {low:#x}")
        if not 1 <= count < 1 << 20:
            m.reporter.add(
                "barrier-overflow",
                pc,
                f"mbarrier.init with {count} arrivals; 1 to {(1 << 20) - 1} are allowed",
            )

    def overwritten(self, at: NDArray[np.int64], size: int, pc: int, s: Any) -> None:
        """Report plain writes to the bytes of a barrier."""
        if not len(self.places):
            return
        # Of the barriers that begin before a write ends only the last can reach into it, or its
        # neighbors, which are looked at where one does: nearly no write touches any.
        last = np.searchsorted(self.places, at + size) - 1
        if not np.count_nonzero((last >= 0) & (self.places[last] + 8 > at)):
            return
        for place, barrier in self.mbarriers.items():
            hit = (at < place + 8) & (at + size > place)
            if hit.any():
                m = self.machine
                m.reporter.add(
                    "race",
                    pc,
                    f"the mbarrier at shared {place % m.shared.size:#x} is overwritten while "
                    "in use",
                    barrier.pc,
                    m.thread(s, int(np.argmax(hit))),
                    missing="mbarrier.inval before its bytes are used again",
                )

    def invalidate(self, address: Any, s: Any, pc: int) -> None:
        """``mbarrier.inval``."""
        for at in distinct(self.machine.shared.physical(address, self.machine.cta_offset[s])):
            self.at(at, pc)
            self.mbarriers.pop(at, None)
        self._place()

    def arrive(self, address: Any, count: Any, tx: Any, drop: bool, s: Any, pc: int) -> Any:
        """Arrivals and expected bytes of threads; returns the state that each saw before."""
        m = self.machine
        n = len(m.ids[s])
        at = fn.spread(m.shared.physical(address, m.cta_offset[s]), n)
        counts, bytes_ = (
            fn.spread(count, n).astype(np.int64),
            fn.spread(tx, n).astype(np.int64),
        )
        warps, state = m.warp[s], np.zeros(n, U64)
        places, every = distinct(at), distinct(warps)
        for place in places:
            alone = len(places) == 1
            here: Any = slice(None) if alone else at == place
            who = every if alone else distinct(warps[here])
            barrier = self.at(place, pc, who)
            if barrier is None:
                continue
            if m.ctas > 1 and m.checks:
                targets = np.full(len(who), place // m.shared.size)
                m.residency.threads(targets, np.array(who), pc, begun=True)
            state[here] = U64(barrier.phase << 32 | barrier.pending)
            m.clocks.publish(who, barrier.vector)
            if m.trace is not None:
                m.trace.add(m.number, who, "arrive", pc, self._phase(place, barrier))
            arrivals = int(counts[here].sum())
            barrier.tx += int(bytes_[here].sum())
            self.count_down(barrier, arrivals, place, pc)
            if drop:
                barrier.count -= arrivals
            if barrier.pending == 0:
                self.settle(barrier, place)
        m.clocks.tick(every)
        withhold(m, s, pc)
        m.note("arrive", s, pc)
        return state

    def count_down(self, barrier: MBarrier, arrivals: int, place: int, pc: int) -> None:
        """Take arrivals off a phase; several phases may end at once, which is reported."""
        m = self.machine
        while arrivals:
            taken = min(arrivals, barrier.pending)
            barrier.pending -= taken
            arrivals -= taken
            if arrivals or not taken:
                m.reporter.add(
                    "barrier-overflow",
                    pc,
                    f"the mbarrier at shared {place % m.shared.size:#x} gets more arrivals than "
                    f"the {barrier.count} of its phase ({barrier.state()})",
                    barrier.pc,
                    missing="the right count in mbarrier.init, or a wait between the phases",
                )
            if not taken:
                return
            self.settle(barrier, place)

    def settle(self, barrier: MBarrier, place: int) -> None:
        """End the phase if nothing is outstanding."""
        m = self.machine
        m.progress += 1
        if barrier.pending == 0 and barrier.tx == 0:
            barrier.phase += 1
            barrier.pending = barrier.count
            barrier.refused.clear()
            np.maximum(barrier.done, barrier.vector, out=barrier.done)
            m.scheduler.wake("mbarrier", place)

    def _phase(self, physical: int, barrier: MBarrier, back: int = 0) -> tuple[object, ...]:
        """Names the current phase of a barrier, or an earlier one, in a trace."""
        number = barrier.base + barrier.phase + 1 - back
        return "mbarrier", self.machine.number, physical, number

    def event(self, physical: int, warp: int) -> Event:
        """A copy of a warp starts, which the current phase of an mbarrier completes."""
        clocks, barrier = self.machine.clocks, self.mbarriers.get(physical)
        chain = clocks.chain(("mbarrier", physical), BULK)
        number = barrier.base + barrier.phase + 1 if barrier else int(clocks.issued[chain]) + 1
        clocks.issued[chain] = max(int(clocks.issued[chain]), number)
        return Event(chain, number, warp, BULK)

    def complete(self, physical: int, count: int, event: Event, pc: int) -> None:
        """An asynchronous copy has brought ``count`` bytes."""
        m = self.machine
        barrier = self.at(physical, pc, [event.warp])
        if barrier is None:
            return
        self._init_fence(barrier, event.warp, physical, pc)
        if m.trace is not None:
            key, cta = self._phase(physical, barrier), physical // m.shared.size
            if "cta_group::2" in m.program.kernel.instructions[pc].op:
                cta = event.warp // m.warps_per_cta  # The barrier may be the other CTA's.
            m.trace.copy(m.number, event.warp, key, count, pc, cta)
        barrier.tx -= count
        barrier.brought = barrier.phase + 1, event.warp, pc
        if m.model.copies_publish:
            m.clocks.publish([event.warp], barrier.vector)
        barrier.vector[event.chain] = max(int(barrier.vector[event.chain]), event.number)
        self.settle(barrier, physical)

    def arrived(self, physical: int, event: Event, pc: int) -> None:
        """Asynchronous operations arrive once, with all that their warp knew."""
        m = self.machine
        barrier = self.at(physical, pc, [event.warp])
        if barrier is None:
            return
        self._init_fence(barrier, event.warp, physical, pc)
        if m.checks:
            m.residency.unit(physical // m.shared.size, event, pc, own=True)
        barrier.committed = barrier.phase + 1, event, pc
        m.clocks.publish([event.warp], barrier.vector)
        if m.trace is not None:
            kind = "told" if event.unit == TENSOR else "arrive"
            m.trace.add(m.number, [event.warp], kind, pc, self._phase(physical, barrier))
        barrier.vector[event.chain] = max(int(barrier.vector[event.chain]), event.number)
        self.count_down(barrier, 1, physical, pc)

    def _init_fence(self, barrier: MBarrier, warp: int, physical: int, pc: int) -> None:
        m = self.machine
        fenced = barrier.init_clock <= self.init_fenced[barrier.init_warp]
        if not m.checks or fenced or (m.options.compiled and m.model.compiler_inits):
            return
        if (
            m.model.reader_fences
            and m.clocks.fenced_shared[warp, barrier.init_warp] >= barrier.init_clock
        ):
            return
        m.reporter.add(
            "missing-proxy-fence",
            pc,
            f"the mbarrier at shared {physical % m.shared.size:#x} is used by an asynchronous "
            "copy, and no fence follows its initialization",
            barrier.pc,
            m.warp_name(warp),
            m.warp_name(barrier.init_warp),
            "fence.mbarrier_init (or fence.proxy.async) after mbarrier.init",
        )

    def pending(self, state: Any, s: Any) -> Any:
        """``mbarrier.pending_count``."""
        return (np.asarray(state) & U64(0xFFFFFFFF)).astype(U32)

    def passed(self, warps: Any, place: int, pc: int) -> None:
        """Warps have seen the phase of an mbarrier end."""
        m, barrier = self.machine, self.mbarriers[place]
        barrier.passed = barrier.phase
        m.clocks.join(warps, barrier.done)
        if m.trace is not None:
            m.trace.add(m.number, warps, "wait", pc, self._phase(place, barrier, 1))

    def ended(self, cta: int) -> None:
        """A CTA has ended: nothing may arrive at its barriers or in its memory any more."""
        m = self.machine
        if m.checks and not m.model.exit_drains:
            self._brought(cta)
        if m.model.commits_in_order:
            return
        known = m.clocks.seen[cta * m.warps_per_cta : (cta + 1) * m.warps_per_cta].max(0)
        for place, barrier in self.mbarriers.items():
            if place // m.shared.size != cta or barrier.committed is None:
                continue
            phase, event, pc = barrier.committed
            # What nobody knows to be done is reported with all else from outside of the CTA.
            if phase > barrier.passed and event.number <= known[event.chain]:
                self._late(barrier, place, event.warp, pc)

    def _brought(self, cta: int) -> None:
        """Report copies to the shared memory of a CTA that nobody has waited for."""
        m = self.machine
        for place, barrier in self.mbarriers.items():
            if place // m.shared.size != cta or barrier.brought is None:
                continue
            phase, warp, pc = barrier.brought
            if phase > barrier.passed:
                m.reporter.add(
                    "left-pending",
                    pc,
                    f"CTA {cta} of the cluster ends, and nobody has waited for this copy of "
                    f"{m.warp_name(warp)} at the mbarrier at shared {place % m.shared.size:#x}",
                    barrier.pc,
                    m.warp_name(warp),
                    missing="a wait for each copy before the end, or none that nobody needs",
                )

    def _late(self, barrier: MBarrier, place: int, warp: int, pc: int) -> None:
        m = self.machine
        m.reporter.add(
            "cluster-exit",
            pc,
            f"tcgen05.commit of {m.warp_name(warp)} arrives at the mbarrier at shared "
            f"{place % m.shared.size:#x} of CTA {place // m.shared.size} of the cluster, and "
            "nobody has waited for that when the CTA ends",
            barrier.pc,
            m.warp_name(warp),
            missing="a wait for the last phase of the barrier before the CTA ends",
        )

    def known(self, warps: list[int], done: NDArray[np.int64]) -> bool:
        """Whether warps have seen all that a phase waited for."""
        return all((seen >= done).all() for seen in self.machine.clocks.of(warps))

    # Fences -----------------------------------------------------------------------------------
    def fence(self, op: str, s: Any) -> None:
        """``fence`` and ``membar``."""
        m = self.machine
        for w in m.warps_of(s):
            # fence.mbarrier_init, and fences of the cluster and beyond, publish barriers.
            self.init_fenced[w] = int(m.clocks.seen[w, w])
            if "proxy.async" in op:
                m.clocks.fence(w, _proxied(op))
        if not op.startswith("fence.proxy") and "cta" not in op:
            with waiting(m, s):
                m.words.fence(m.warps_of(s))


def _proxied(op: str) -> tuple[str, ...]:
    """Spaces that a proxy fence is for; all where it names none."""
    if ".global" in op:
        return ("global",)
    if ".shared::cta" in op:
        return ("shared",)
    return ("shared", "cluster") if ".shared" in op else SPACES
