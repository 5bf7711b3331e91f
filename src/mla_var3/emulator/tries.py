"""``mbarrier.test_wait`` and ``try_wait``: what threads that ask for a phase are answered.

A ``try_wait`` may time out, so a try is answered no even when the phase is done, unless its end is
ordered before the try: code that takes its answer for granted shows. Threads hear that no once per
instruction and phase. Where no only leads back to the try, it would show nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator import functions as fn
from mla_var3.emulator.distinct import distinct
from mla_var3.emulator.lagging import waiting

if TYPE_CHECKING:
    from mla_var3.emulator.fragments import Fragment
    from mla_var3.emulator.mbarrier import MBarrier
    from mla_var3.emulator.sync import Sync


def answer(
    sync: Sync, fragment: Fragment, address: Any, wanted: Any, parity: bool, pc: int, blocking: bool
) -> NDArray[np.bool_] | None:
    """Which threads see their phase done; None if a try_wait sleeps.

    Args:
        sync: The mbarriers.
        fragment: Who asks.
        address: Shared addresses of their mbarriers, one or [threads].
        wanted: Parities or states, one or [threads].
        parity: Whether ``wanted`` are parities.
        pc: The instruction.
        blocking: Whether it is a ``try_wait``.
    """
    m, s, n = sync.machine, fragment.s, fragment.n
    offset = m.cta_offset[s]
    if isinstance(address, int) and offset[0] == offset[-1]:
        address, offset = np.array([address]), offset[:1]
    at = m.shared.physical(fn.spread(address, len(offset)), offset)
    places = distinct(at)
    done = _done(sync, fragment, at, places, wanted, parity, pc)
    count = int(np.count_nonzero(done))
    if blocking and not count and not fragment.tried:
        fragment.at = places[0] if len(places) == 1 else None
        return None
    behind = m.program.retries.get(pc)
    if behind is not None:
        first = sync.mbarriers.get(int(at[0]))
        new = count == n and not m.counts.waited[behind]
        if new and first is not None and not sync.known(fragment.warps, first.done):
            m.counts.waited[behind] = 1  # A first try would be answered no.
    elif blocking and count and not fragment.tried:
        for place in places:
            yes = done if len(places) == 1 else done & (at == place)
            if yes.any() and _refuses(sync, sync.mbarriers[place], fragment, yes, pc):
                done = done & ~yes
        count = int(np.count_nonzero(done))
    if len(places) == 1 and count == n:
        with waiting(m, s):
            sync.passed(fragment.warps, places[0], pc)
        return done
    for place in places:
        here = m.ids[s][(at == place) & done]
        if len(here):
            with waiting(m, here):
                sync.passed(distinct(m.warp[here]), place, pc)
    return done


def _done(
    sync: Sync, fragment: Fragment, at: NDArray[Any], places: list[int], wanted: Any, parity: bool,
    pc: int,
) -> NDArray[np.bool_]:  # fmt: skip
    """For which threads the phase is done [threads]; for none where there is no mbarrier."""
    done = np.zeros(fragment.n, bool)
    for place in places:
        here: Any = at == place if len(places) > 1 else slice(None)
        who = fragment.warps
        if len(places) > 1:
            who = distinct(sync.machine.warp[fragment.s][here])
        barrier = sync.at(place, pc, who)
        if barrier is None:
            continue
        want = wanted[here] if np.ndim(wanted) else wanted
        done[here] = (barrier.phase & 1) != (want & 1) if parity else barrier.phase > (want >> 32)
    return done


def _refuses(
    sync: Sync, barrier: MBarrier, fragment: Fragment, yes: NDArray[np.bool_], pc: int
) -> bool:
    """Whether those who could be answered yes hear no: one of them has not heard it yet."""
    m = sync.machine
    refused = barrier.refused.get(pc)
    if refused is not None and refused[fragment.s][yes].all():
        return False
    if sync.known(fragment.warps if yes.all() else distinct(m.warp[fragment.s][yes]), barrier.done):
        return False
    if refused is None:
        refused = barrier.refused[pc] = np.zeros(len(m.ids), bool)
    refused[fragment.ids[yes]] = True
    return True
