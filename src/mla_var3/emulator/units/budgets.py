"""Emulated ``setmaxnreg`` unit: reports register requests that are invalid or exceed the CTA's.

``Budgets`` keeps each warp's last request and checks the sums when a cluster ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.emulator.units.base import Unit, UnitText

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: Warps that execute a ``setmaxnreg`` together.
GROUP = 4
LANES = 32
#: Registers of a multiprocessor, from which those of a CTA are taken when it begins: as many for
#: each thread, in steps of 8, with room for whole warpgroups.
FILE, STEP, MOST = 65536, 8, 256


class BudgetsText(UnitText):
    """A warp executes ``setmaxnreg`` as one."""

    together: ClassVar[frozenset[str]] = frozenset({"setmaxnreg"})


class Budgets(Unit):
    """What each warp of a cluster asked for last, and where."""

    name = "budgets"
    text = BudgetsText

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.warps, self.ctas, self.reporter = machine.warps_per_cta, machine.ctas, machine.reporter

    def start(self) -> None:
        """A new cluster: nobody has asked for anything."""
        self.asked: dict[int, tuple[int, int]] = {}
        self.times: dict[int, list[tuple[int, int]]] = {}

    def ask(self, count: int, s: Any, pc: int) -> None:
        """``setmaxnreg``: the warps of ``s`` ask for so many registers per thread."""
        if count % 8 or not 24 <= count <= 256:
            self.reporter.add(
                "register-budget",
                pc,
                f"setmaxnreg with {count} registers",
                missing="a multiple of 8 from 24 to 256",
            )
        for warp in self.machine.warps_of(s):
            self.asked[warp] = (count, pc)
            self.times.setdefault(warp, []).append((count, pc))

    def finish(self) -> None:
        """The cluster has ended: every warp has asked for what it wants."""
        for cta in range(self.ctas) if self.asked else ():
            mine = range(cta * self.warps, (cta + 1) * self.warps)
            for group in self._groups(mine):
                self._together(group)
            self._fits(mine)

    def _groups(self, warps: range) -> Iterator[range]:
        for first in warps[::GROUP]:
            yield range(first, min(first + GROUP, warps.stop))

    def _together(self, group: range) -> None:
        """All warps of a warpgroup execute the same."""
        by_warp = self.machine.model.budgets_by_warp
        asked = [self.times.get(warp, []) for warp in group]
        told = [[None if by_warp else each for each in mine] for mine in asked]
        most = max(range(len(told)), key=lambda i: len(told[i]))
        alone = sum(each != told[most] for each in told)
        if alone:
            self.reporter.add(
                "register-budget",
                asked[most][0][1],
                f"{len(group) - alone} of the {len(group)} warps of a warpgroup execute setmaxnreg",
                missing="the same setmaxnreg in every warp of the warpgroup",
            )

    def _fits(self, warps: range) -> None:
        """What a CTA's warps ask for was given to it: else an increase waits for ever."""
        asked = [self.asked[warp] for warp in warps if warp in self.asked]
        total = LANES * sum(count for count, _ in asked)
        room = LANES * GROUP * -(-len(warps) // GROUP)
        each = min(FILE // room // STEP * STEP, MOST)
        pool = LANES * len(warps) * each
        if total > pool:
            self.reporter.add(
                "register-budget",
                max(asked)[1],
                f"the warps of a CTA ask for {total} registers, and a CTA of {len(warps)} warps "
                f"begins with {pool} at most ({each} for each thread)",
                missing="smaller counts, or larger decreases before",
            )
