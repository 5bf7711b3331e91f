"""Merges by all workers that end with the same sequence, also the one that finishes it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32

from mla_var3.kernel.cute_python.kit.ahead import AheadKernel
from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.joined import JoinedSchedule, JoinedWork

MembersWork = NamedTuple("MembersWork", [*JoinedWork.__annotations__.items(), ("ends", Int32)])


@dataclass(frozen=True)
class MembersSchedule(JoinedSchedule):
    """The even schedule, which says whether who finishes a sequence does nothing after it."""

    @cute.jit
    def work(self, where, lse, masked):
        """The work of this CTA. Groups of one worker are neighbors: they read the same keys."""
        work = JoinedSchedule.work(self, where, lse, masked)
        finisher = where[2][cutlass.max(work.final, 0), None]
        done = (finisher[int(Cut.END_SEQUENCE)] == work.last + 1) & (
            finisher[int(Cut.END_TILE)] == 0
        )
        return MembersWork(*work, ends=Int32(done))


class MembersKernel(AheadKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        self.schedule = MembersSchedule(share)

    # ---- merges of three parts and more ----------------------------------------------------
    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge the sequence that this worker ends with, with all who do."""
        stays = (work.last_tile > 0) | ((work.worker == work.final) & (work.ends > 0))
        if stays & (work.final - work.owner > 1):
            self.stage(storage, work, outputs, slots, work.final - work.owner + work.ends)

    def parts(self, work, members):
        """Parts of the sequence."""
        return work.final - work.owner + 1
