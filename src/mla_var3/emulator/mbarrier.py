"""The state of one emulated mbarrier."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import Event


@dataclass
class MBarrier:
    """An mbarrier object: arrivals and bytes outstanding in its phase, and what it knows.

    Its phases are a chain: that of the current one has the number ``base + phase + 1``.
    """

    count: int
    pending: int
    init_warp: int
    init_clock: int
    vector: NDArray[np.int64]
    done: NDArray[np.int64]
    chain: int
    base: int
    tx: int = 0
    phase: int = 0
    pc: int = 0
    known_to: set[int] = field(default_factory=set)
    #: By instruction the threads that were answered no since the last phase ended.
    refused: dict[int, NDArray[np.bool_]] = field(default_factory=dict)
    #: The last phase that a tcgen05.commit arrived in, its event and its instruction; and the last
    #: phase whose end somebody has seen.
    committed: tuple[int, Event, int] | None = None
    #: The last phase that a copy brought bytes in, the copy's warp and its instruction.
    brought: tuple[int, int, int] | None = None
    passed: int = 0

    def state(self) -> str:
        """What is missing in its phase, in words."""
        lacks = []
        if self.pending:
            whole = "its only arrival" if self.count == 1 else f"its {self.count} arrivals"
            lacks.append(whole if self.pending == self.count else f"{self.pending} of {whole}")
        if self.tx > 0:
            lacks.append(f"{self.tx} bytes")
        if self.tx < 0:
            lacks.append(f"an announcement of {-self.tx} bytes that came")
        return f"phase {self.phase}, which lacks {' and '.join(lacks) or 'nothing'}"
