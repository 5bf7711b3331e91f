"""Threads of a cluster that stand at one instruction together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.units.base import WARPGROUP as GROUP

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: The lanes of a warp, as a mask.
MASK_OF_ALL = (1 << 32) - 1


def lanes(machine: Machine, chosen: NDArray[np.bool_], ids: Any = slice(None)) -> int:
    """Lanes of chosen threads, as a mask."""
    return int((1 << machine.lane[ids][chosen].astype(np.int64)).sum())


class Fragment:
    """Threads at one instruction; ``s`` is a slice where they are contiguous."""

    def __init__(self, machine: Machine, pc: int, ids: NDArray[np.int64]) -> None:
        self.pc, self.ids, self.n = pc, ids, len(ids)
        self.wait: str | None = None
        self.tried = False
        #: The mbarrier that it sleeps for, where it is one.
        self.at: int | None = None
        #: Whether it asks for a word again and again, and where it asked last.
        self.asks, self.asked = False, -1
        contiguous = int(ids[-1] - ids[0]) == self.n - 1
        self.s: Any = slice(int(ids[0]), int(ids[-1]) + 1) if contiguous else ids
        #: Which threads these are: a key that no others have.
        self.those = (int(ids[0]), self.n) if contiguous else ids.tobytes()
        self.place = int(machine.place[ids[0]])
        self.warps = machine.warps_of(self.s)
        self.refresh(machine)

    def refresh(self, machine: Machine) -> None:
        """Whether these are all live lanes of their warps, and whole warpgroups."""
        self.full = self.n == sum(machine.live[w] for w in self.warps)
        self.group = False
        if self.n % GROUP == 0 and self.full:
            own = machine.own[self.ids[::GROUP]]
            last = self.ids[GROUP - 1 :: GROUP]
            self.group = bool(
                (own % GROUP == 0).all() and (last - self.ids[::GROUP] == GROUP - 1).all()
            )
