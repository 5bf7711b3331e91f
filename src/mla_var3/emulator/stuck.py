"""What is said of a cluster of which nothing can go on, or that has no end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from mla_var3.errors import EmulatorError

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.sched import Scheduler


def endless(scheduler: Scheduler) -> EmulatorError:
    """A cluster has run longer than it may."""
    m = scheduler.machine
    pc = max(scheduler.fragments, key=lambda f: f.n).pc if scheduler.fragments else 0
    pc = min(pc, len(scheduler.program.kernel.instructions) - 1)
    return m.reporter.stop(
        pc,
        f"CTA {m.index} has run {m.steps} segments without an end (a loop that nothing stops?)",
    )


def waits_for_words(scheduler: Scheduler, why: str) -> None:
    """Report that what this cluster asks for in global memory will never come."""
    m = scheduler.machine
    scheduler.stuck = True
    for f in scheduler.fragments:
        if f.asked >= 0:
            m.reporter.add(
                "deadlock",
                f.asked,
                f"{m.who(f.s)} ({f.n} threads) asks for a word of global memory that nobody "
                f"changes any more: {why}",
                who=m.who(f.s),
                missing="a write to the word by a CTA that runs",
            )


def deadlock(scheduler: Scheduler) -> None:
    """Report, of each fragment, what it waits for."""
    m = scheduler.machine
    scheduler.stuck = True
    for f in scheduler.fragments:
        pc = f.pc - 1 if f.wait == "named" else f.pc
        pc = min(pc, len(scheduler.program.kernel.instructions) - 1)
        m.reporter.add(
            "deadlock",
            pc,
            f"{m.who(f.s)} ({f.n} threads) can never go on: {_reason(scheduler, f, pc)}",
            who=m.who(f.s),
            missing="an arrival, bytes or threads that the barrier still expects",
        )


def _reason(scheduler: Scheduler, f: Fragment, pc: int) -> str:
    m, i = scheduler.machine, scheduler.program.kernel.instructions[pc]
    if f.wait == "mbarrier":
        at = int(
            np.ravel(
                m.shared.physical(
                    np.ravel(scheduler.address(i.args[1], f))[:1], m.cta_offset[f.ids[:1]]
                )
            )[0]
        )
        barrier = m.sync.mbarriers.get(at)
        wanted = int(np.ravel(scheduler.value(i.args[2], f))[0])
        state = barrier.state() if barrier else "not initialized"
        if barrier and barrier.pending == 0 and barrier.tx:
            m.reporter.add(
                "barrier-bytes",
                pc,
                f"the mbarrier at shared {at % m.shared.size:#x} expects {barrier.tx} "
                "bytes that "
                "nothing brings",
                barrier.pc,
                missing="expect_tx with the bytes of the copies",
            )
        return f"mbarrier at shared {at % m.shared.size:#x}, parity {wanted & 1} wanted; {state}"
    if f.wait == "named":
        for key, named in m.meetings.named.items():
            if f in named.waiting:
                return (
                    f"named barrier {key % 64}, {named.arrived} of "
                    f"{named.threads or 'all'} threads there"
                )
    if f.wait in m.units:
        return m.units[f.wait].waits(f, pc)
    if f.wait == "cluster":
        return (
            f"the cluster barrier, {m.meetings.cluster.arrived} of {int(m.alive.sum())} "
            "threads there"
        )
    return "the rest of its warp is elsewhere"
