"""Even schedule of few-row attention, read in two steps, so that first loads wait for one read.

Of the schedule a producer needs its worker's own row. Who else has a part of the sequence that the
worker ends with stands in the rows of others, each found by the one before; only consumers ask for
them, while they wait for keys.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.members import MembersSchedule, MembersWork

ThinWork = NamedTuple("ThinWork", [*MembersWork.__annotations__.items(), ("begun", Int32)])


@dataclass(frozen=True)
class ThinSchedule(MembersSchedule):
    """A CTA per worker; its work also names the worker that began what this one goes on with."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA, as its worker's own row says; ``final`` and ``ends`` are open."""
        table, lengths, cuts = where
        _, heads, queries, _ = lse.shape
        worker = cuts.shape[0] - 1 - cute.arch.make_warp_uniform(cute.arch.block_idx()[0])
        cut = cuts[worker, None]
        first, first_tile = cut[int(Cut.SEQUENCE)], cut[int(Cut.TILE)]
        last, last_tile = cut[int(Cut.END_SEQUENCE)], cut[int(Cut.END_TILE)]
        begun = cut[int(Cut.OWNER)]  # read beside the others, whatever they say
        last = last - Int32(last_tile == 0)
        owner = cutlass.select_((last == first) & (first_tile > 0), begun, worker)
        return ThinWork(
            table, lengths, first, first_tile, last, last_tile, Int32(0), 2 * worker,
            heads, queries, masked, worker, owner, Int32(-1), Int32(0), Int32(1), Int32(0), begun,
        )  # fmt: skip

    @cute.jit
    def members(self, work, cuts):
        """The same with who finishes the sequence that it ends with, and if that one ends there."""
        final = cuts[cutlass.max(work.owner, 0), int(Cut.LAST)]
        finisher = cuts[cutlass.max(final, 0), None]
        ends = (finisher[int(Cut.END_SEQUENCE)] == work.last + 1) & (
            finisher[int(Cut.END_TILE)] == 0
        )
        return work._replace(final=final, ends=Int32(ends))
