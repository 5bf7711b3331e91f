"""Emulated barriers at which threads meet: named ones of a CTA, and that of the cluster."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.machine import Machine

#: Named barriers are kept by CTA times this, plus their number.
NAMED = 64


@dataclass
class Named:
    """A phase of a named barrier (``bar.sync``): who has reached it, and what they knew."""

    threads: int | None
    vector: NDArray[np.int64]
    pc: int
    arrived: int = 0
    serial: int = 0
    warps: set[int] = field(default_factory=set)
    waited: set[int] = field(default_factory=set)
    waiting: list[Fragment] = field(default_factory=list)


@dataclass
class ClusterBarrier:
    """``barrier.cluster``: one per cluster."""

    vector: NDArray[np.int64]
    relaxed: NDArray[np.int64]
    done: NDArray[np.int64]
    done_relaxed: NDArray[np.int64]
    arrived: int = 0
    phase: int = 0
    of_warp: dict[int, int] = field(default_factory=dict)


class Meetings:
    """The named barriers of a cluster's CTAs, and its own."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        machine.clocks.keepers.append(self._grow)
        self.start()

    def _grow(self) -> None:
        fit = self.machine.clocks.fit
        for n in self.named.values():
            n.vector = fit(n.vector)
        c = self.cluster
        c.vector, c.relaxed = fit(c.vector), fit(c.relaxed)
        c.done, c.done_relaxed = fit(c.done), fit(c.done_relaxed)

    def start(self) -> None:
        """A new cluster: nobody has arrived anywhere."""
        v = self.machine.clocks.vector
        self.named: dict[int, Named] = {}
        #: The last phase of each that is over.
        self.over: dict[int, Named] = {}
        self.cluster = ClusterBarrier(v(), v(), v(), v())
        #: Predicates of bar.red so far, by barrier.
        self.votes: dict[int, list[tuple[Any, Any]]] = {}

    def enter(
        self, fragment: Fragment, number: int, cta: int, threads: int | None, wait: bool, pc: int
    ) -> Named | None:
        """Warps reach a named barrier; returns it once it is complete."""
        m, key = self.machine, cta * NAMED + number
        barrier = self.named.setdefault(key, Named(threads, m.clocks.vector(), pc))
        over = self.over.get(key)
        if m.checks and over is not None and not over.waited.issuperset(fragment.warps):
            self._behind(over, fragment, number, pc)
        if m.trace is not None:
            barrier.serial = barrier.serial or 1 + m.trace.serial()
            own = "named", barrier.serial
            m.trace.add(m.number, fragment.warps, "arrive", pc, own)
            m.trace.add(m.number, fragment.warps if wait else (), "wait", pc, own)
        if barrier.threads != threads and barrier.warps:
            m.reporter.add(
                "barrier-mismatch",
                pc,
                f"named barrier {number} is entered with {threads or 'all'} threads and with "
                f"{barrier.threads or 'all'}",
                who=m.who(fragment.s),
            )
        # A warp that arrived and now waits counts twice, as threads are counted: it may mean to.
        if not wait and not barrier.warps.isdisjoint(fragment.warps):
            m.reporter.add(
                "barrier-mismatch",
                pc,
                f"a warp arrives twice at named barrier {number} before it is complete",
                who=m.who(fragment.s),
                missing="the right number of threads, or a second barrier",
            )
        barrier.threads, barrier.pc = threads, pc
        m.progress += 1
        barrier.warps |= set(fragment.warps)
        barrier.arrived += 32 * len(fragment.warps)
        m.clocks.publish(fragment.warps, barrier.vector)
        m.clocks.tick(fragment.warps)
        if wait:
            barrier.waiting.append(fragment)
            barrier.waited.update(fragment.warps)
        return self.complete_named(key)

    def complete_named(self, key: int) -> Named | None:
        """Let everyone go if enough threads have arrived."""
        m, barrier = self.machine, self.named[key]
        if barrier.threads is None:
            cta = key // NAMED
            alive = np.unique(m.warp[(m.cta == cta) & m.alive])
            if not barrier.warps.issuperset(alive.tolist()):
                return None
        elif barrier.arrived < barrier.threads:
            return None
        for fragment in barrier.waiting:
            m.scheduler.free(fragment)
            m.clocks.join(fragment.warps, barrier.vector)
            m.clocks.lanes.close(sum(1 << w for w in fragment.warps))
            for w in fragment.warps:
                m.clocks.lagging.meet(w, None)
        self.over[key] = self.named.pop(key)
        return barrier

    def _behind(self, over: Named, fragment: Fragment, number: int, pc: int) -> None:
        """Report warps that may enter while the phase before still waits for others.

        They would be counted in place of these, and it would end too early.
        """
        m = self.machine
        others = list(over.warps)
        for w in set(fragment.warps) - over.waited:
            late = m.clocks.seen[w, others] < over.vector[others]
            late &= np.array(others) != w
            if late.any():
                first = others[int(np.argmax(late))]
                m.reporter.add(
                    "barrier-mismatch",
                    pc,
                    f"{m.warp_name(w)} enters named barrier {number}, and nothing says that "
                    f"{m.warp_name(first)} has come to the phase before: it may be counted there",
                    over.pc,
                    m.warp_name(w),
                    m.warp_name(first),
                    "a barrier of another number, or one that orders the two uses",
                )
                return

    def threads_left(self) -> None:
        """Threads have exited: barriers that counted on all of them may be complete."""
        for key in list(self.named):
            if self.named[key].threads is None:
                self.complete_named(key)
        self.complete_cluster()

    def arrive_cluster(self, fragment: Fragment, relaxed: bool) -> None:
        """``barrier.cluster.arrive``."""
        m, barrier = self.machine, self.cluster
        m.clocks.publish(fragment.warps, barrier.relaxed if relaxed else barrier.vector)
        m.clocks.tick(fragment.warps)
        for w in fragment.warps:
            barrier.of_warp[w] = barrier.phase
        if m.trace is not None:
            own = "cluster", m.number, barrier.phase
            m.trace.add(m.number, fragment.warps, "arrive", fragment.pc, own)
        barrier.arrived += fragment.n
        m.progress += 1
        self.complete_cluster()

    def complete_cluster(self) -> None:
        """End the phase of the cluster's barrier if every live thread has arrived."""
        barrier = self.cluster
        if barrier.arrived and barrier.arrived >= int(self.machine.alive.sum()):
            barrier.arrived = 0
            barrier.phase += 1
            np.maximum(barrier.done, barrier.vector, out=barrier.done)
            np.maximum(barrier.done_relaxed, barrier.relaxed, out=barrier.done_relaxed)
            self.machine.scheduler.wake("cluster")

    def wait_cluster(self, fragment: Fragment) -> bool:
        """``barrier.cluster.wait``; whether the phase is over."""
        barrier, clocks = self.cluster, self.machine.clocks
        if any(barrier.of_warp.get(w, -1) >= barrier.phase for w in fragment.warps):
            return False
        clocks.join(fragment.warps, barrier.done)
        if (trace := self.machine.trace) is not None:
            for w in fragment.warps:
                own = "cluster", self.machine.number, barrier.of_warp.get(w, -1)
                trace.add(self.machine.number, [w], "wait", fragment.pc, own)
        for w in fragment.warps:
            both = np.maximum(barrier.done_relaxed, barrier.done)
            np.maximum(clocks.barriers_seen[w], both, out=clocks.barriers_seen[w])
        return True
