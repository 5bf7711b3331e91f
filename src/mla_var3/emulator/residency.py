"""Checks that a CTA touches shared memory of another only after that one began and before it ends.

The machine has one ``Residency`` per cluster, for distributed shared memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import Clocks, Event
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.options import Model

AFTER_START = "a cluster barrier before shared memory of another CTA is touched"
BEFORE_END = (
    "a cluster barrier (or a wait for the last of these accesses) before the CTA that is accessed "
    "ends"
)


class Residency:
    """What CTAs of a cluster did to each other's shared memory, and whether each was there.

    Args:
        clocks: What the warps know.
        ctas: CTAs of the cluster.
        reporter: Told of what was not.
        model: Whether relaxed arrivals come after accesses.
    """

    def __init__(self, clocks: Clocks, ctas: int, reporter: Reporter, model: Model) -> None:
        self.clocks, self.ctas, self.reporter, self.model = clocks, ctas, reporter, model

    def start(self) -> None:
        """A new cluster: nobody has ended."""
        self.ended = [False] * self.ctas
        #: By CTA and chain the last access to its shared memory from outside: number, warp, pc.
        self.touched: list[dict[int, tuple[int, int, int]]] = [{} for _ in range(self.ctas)]

    def threads(self, cta: NDArray[np.int64], warp: Any, pc: int, begun: bool = False) -> None:
        """Threads of warps [n] touch shared memory of CTAs [n].

        Args:
            cta: Whose memory.
            warp: Whose threads.
            pc: The instruction.
            begun: Whether it is known for another reason that the CTA has begun.
        """
        away = cta != warp // self.clocks.per_cta
        if not np.count_nonzero(away):
            return
        warps = np.broadcast_to(warp, cta.shape)[away].tolist()
        for target, w in {*zip(cta[away].tolist(), warps, strict=True)}:
            if not begun and not self._has_begun(target, w):
                self._report(target, w, pc, "has begun", AFTER_START)
            self._touch(target, w, int(self.clocks.seen[w, w]), w, pc)

    def unit(self, cta: int, event: Event, pc: int, own: bool = False) -> None:
        """An asynchronous operation touches shared memory of a CTA, of another if not ``own``."""
        if own or cta != event.warp // self.clocks.per_cta:
            self._touch(cta, event.chain, event.number, event.warp, pc)

    def _touch(self, cta: int, chain: int, number: int, warp: int, pc: int) -> None:
        self.touched[cta][chain] = number, warp, pc
        if self.ended[cta]:
            self._report(cta, warp, pc, "has not ended", BEFORE_END)

    def end(self, cta: int) -> None:
        """The last thread of a CTA has ended: it has to know of every access from outside."""
        self.ended[cta] = True
        mine = slice(cta * self.clocks.per_cta, (cta + 1) * self.clocks.per_cta)
        strict = not self.model.relaxed_keeps
        known = self.clocks.seen[mine].max(0) if strict else self._known(mine)
        for chain, (number, warp, pc) in self.touched[cta].items():
            if number > known[chain]:
                self._report(cta, warp, pc, "has not ended", BEFORE_END)

    def _has_begun(self, cta: int, warp: int) -> bool:
        first = cta * self.clocks.per_cta
        here = slice(first, first + self.clocks.per_cta)
        return bool((self._known(slice(warp, warp + 1))[here] >= self.clocks.began[here]).any())

    def _known(self, warps: slice) -> NDArray[np.int64]:
        """What any of these warps knows, by barriers that order execution alone too."""
        return np.maximum(self.clocks.seen[warps], self.clocks.barriers_seen[warps]).max(0)

    def _report(self, cta: int, warp: int, pc: int, what: str, missing: str) -> None:
        who = self.clocks.name(0, warp)
        self.reporter.add(
            "cluster-exit",
            pc,
            f"shared memory of CTA {cta} of the cluster is accessed by {who}, and nothing says "
            f"that the CTA {what}",
            who=who,
            missing=missing,
        )
