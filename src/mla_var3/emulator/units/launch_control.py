"""Emulated ``clusterlaunchcontrol`` unit: gives a running cluster the work of one not yet begun."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator import functions as fn
from mla_var3.emulator.formats import U32, U64
from mla_var3.emulator.units.base import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: Bytes of an answer.
ANSWER = 16


class LaunchControl(Unit):
    """``clusterlaunchcontrol``: claims go to the launch, in order, and answers to shared memory."""

    name = "launch_control"

    def claim(self, to: Any, barrier: Any, everyone: bool, s: Any, pc: int) -> None:
        """``clusterlaunchcontrol.try_cancel``: an answer, which an mbarrier counts as its bytes.

        An answer has a 1 where there was such a cluster, and the index of its first CTA.
        """
        m = self.machine
        n, size = len(m.ids[s]), m.shared.size
        places = m.shared.physical(fn.spread(to, n), m.cta_offset[s])
        bars = m.shared.physical(fn.spread(barrier, n), m.cta_offset[s])
        for i, warp in enumerate(m.warp[s].tolist()):
            answer = self._answer()
            at, bar = int(places[i]), int(bars[i])
            pairs = [(at, bar)]
            if everyone:
                pairs = [(at % size + k * size, bar % size + k * size) for k in range(m.ctas)]
            for pair in pairs:
                self._put(*pair, answer, warp, pc)
        m.note("try_cancel", s, pc)

    def _answer(self) -> NDArray[np.uint32]:
        m, answer = self.machine, np.zeros(4, U32)
        if m.memory_map.waiting:
            _, index = m.memory_map.waiting.popleft()
            answer[:] = [1, *(x * c for x, c in zip(index, m.cluster, strict=True))]
        return answer

    def _put(self, at: int, barrier: int, answer: NDArray[np.uint32], warp: int, pc: int) -> None:
        m, shift = self.machine, self.machine.shared.shift
        event = m.sync.event(barrier, warp)
        m.shared.bytes[at : at + ANSWER] = answer.view(np.uint8)
        if m.checks:
            m.shadow.unit_write(slice(at >> shift, (at + ANSWER) >> shift), event, pc)
        m.sync.complete(barrier, ANSWER, event, pc)

    @staticmethod
    def canceled(low: Any) -> Any:
        """Whether an answer has a cluster."""
        return (low & U64(1)) != 0

    @staticmethod
    def first(low: Any, high: Any, axis: int) -> Any:
        """The index of an answer's first CTA along an axis."""
        word = (low >> U64(32), high & U64(0xFFFFFFFF), high >> U64(32))[axis]
        return word.astype(U32)
