"""Kernel of latent attention over lists of rows, each cut into parts that CTAs merge at their end.

Where few query tokens leave most SMs idle, CTAs share a list: each takes a range of its tiles and
leaves what it has in global memory, under the highest score that it has seen. Then all of them
merge a range of columns each, as ``staged`` does.
"""

from __future__ import annotations

from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.prefill import PrefillKernel, RowsEpilogue
from mla_var3.kernel.cute_python.kit.slabs import KEYS, ROWS
from mla_var3.kernel.cute_python.kit.staged import StagedEpilogue, StagedKernel
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS


class PartsWork(NamedTuple):
    """What a CTA needs to know of the work; all of it is uniform."""

    lists: cute.Tensor  # [n, k]
    lengths: cute.Tensor  # [n], how many of each list count, where ``counted``
    counted: Int32
    first: Int32  # list, the only one
    step: Int32
    count: Int32  # of all lists
    block: Int32  # row tile
    heads: Int32
    parts: Int32  # of each list
    last: Int32  # list
    queries: Int32
    worker: Int32  # of all parts of all lists, this one
    owner: Int32  # first one of this list
    final: Int32  # last one
    group: Int32  # row tile
    groups: Int32


class PartsEpilogue(StagedEpilogue, RowsEpilogue):
    """Shared memory beside the slabs: the barrier of the merge too."""

    def fields(self):
        """Further fields of shared memory, before the slabs."""
        return {**StagedEpilogue.fields(self), **RowsEpilogue.fields(self)}


class PartsKernel(PrefillKernel):
    """Host and device half; all CTAs run at once, as they must where they share a list."""

    def __init__(self, lazy, rope):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            rope: Whether rows have rotary values past their 512.
        """
        super().__init__(lazy, rope)
        self.epilogue = PartsEpilogue(1)

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        cache: cute.Tensor,
        indices: cute.Tensor,
        lengths: cute.Tensor,
        sink: cute.Tensor,
        places: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        sums: cute.Tensor,
        tops: cute.Tensor,
        parts: Int32,
        counted: Int32,
        sunk: Int32,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch as ``PrefillKernel``, with ``parts`` of each list.

        ``places`` and ``signals`` take what each leaves; signals are 0 before and after.
        """
        q_loads, store_o = self.prepare(q, qpe, o)
        groups = cute.ceil_div(q.shape[2], ROWS)
        where, outputs = (indices, lengths, counted), (*store_o, sums, tops, parts)
        slots = places, signals, o
        self.prefill(q_loads, cache, where, (sink, sunk), slots, outputs, scale_log2).launch(
            grid=(parts * q.shape[0] * groups, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.jit
    def work_of(self, where, sums):
        """The work of this CTA."""
        lists, lengths, counted = where
        heads, count = sums.shape[1], lists.shape[0]
        groups = cute.ceil_div(heads, ROWS)
        cta, workers = cute.arch.block_idx()[0], cute.arch.grid_dim()[0] // groups
        worker, parts = cta // groups, workers // count
        owner = worker // parts * parts
        return PartsWork(
            lists, lengths, counted, worker // parts, Int32(count), Int32(count), cta % groups,
            heads, parts, worker // parts, Int32(1), worker, owner, owner + parts - 1,
            cta % groups, groups,
        )  # fmt: skip

    @cute.jit
    def span(self, work, length):
        """First tile of this part, and one past its last; none where a list has fewer tiles."""
        tiles, part = cute.ceil_div(length, KEYS), work.worker - work.owner
        return part * tiles // work.parts, (part + 1) * tiles // work.parts

    @cute.jit
    def results(self, wg, storage, outputs, slots, work, sequence, first, side: cutlass.Constexpr):
        """Leave a part, under the highest score itself."""
        for r in range_constexpr(2):
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - wg.highest[r], fastmath=True)
            wg.row_sum[r], wg.row_max[r] = wg.row_sum[r] * wg.shrink[r], wg.highest[r]
        self.scale_out(wg)
        self.leave(wg, work, slots, self.schedule.place(work, work.worker), side)

    @cute.jit
    def consumed(self, storage, work, outputs, slots):
        """Merge the list, with all who have a part of it."""
        self.stage(storage, work, outputs, slots, work.parts)

    @cute.jit
    def weigh_parts(self, storage, room, round_, top, total, side):
        """What each part of a row is worth, and the inverse of the sum so far, with its sink."""
        StagedKernel.weigh_parts(self, storage, room, round_, top, total, side)
        row = cute.arch.thread_idx()[0] % 128
        inverse = storage.sums.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
        inverse[side, row] = self.inverse(storage, row, top[0], total[0])

    @cute.jit
    def store_sum(self, work, outputs, row, top, total):
        """The LSE of a row and its highest score."""
        place = work.block * ROWS + row
        if place < work.heads:
            self.store_numbers(outputs[2:4], work.last, place, top, total, top)
