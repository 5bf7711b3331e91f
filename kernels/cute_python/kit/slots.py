"""Split-KV merge kernel for sequences cut at any tile: each part's slot, weighted by its LSE."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32

from mla_var3.kernel.cute_python.kit.even import Cut, EvenSchedule
from mla_var3.kernel.cute_python.kit.slabs import LATENT, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LOWEST

#: Threads that merge a row, each four columns.
MERGE_THREADS = LATENT // 4


class MergeSlots:
    """Merge the parts of each row, in the order of the workers, by their LSE."""

    def __init__(self, share):
        """Of row tiles in groups of ``share``."""
        self.schedule = EvenSchedule(share)

    @cute.jit
    def __call__(
        self,
        cuts: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on partial [slots,64,512] fp32, partial_lse [slots,64], o [b,s,h,512]."""
        _, s, h, _ = o.shape
        self.merge_slots(cuts, partial, partial_lse, o, lse, lse_unit, lse_empty).launch(
            grid=(s * h, cuts.shape[0], 1), block=(MERGE_THREADS, 1, 1), stream=stream
        )

    @cute.kernel
    def merge_slots(
        self,
        cuts: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        lse_unit: Float32,
        lse_empty: Float32,
    ):
        """Grid (rows, workers): one row of the sequence that a worker begins and does not end."""
        row, worker, _ = cute.arch.block_idx()
        last = cuts[worker, int(Cut.LAST)]
        if last > worker:
            self.merge_row(
                cuts, partial, partial_lse, o, lse, (lse_unit, lse_empty), row, worker, last
            )

    @cute.jit
    def merge_row(self, cuts, partial, partial_lse, o, lse, numbers, row, worker, last):
        lse_unit, lse_empty = numbers
        column, heads = cute.arch.thread_idx()[0], o.shape[2]
        groups = self.schedule.groups(o.shape[1] * heads)
        block, place = row // ROWS, row % ROWS
        top = Float32(LOWEST)
        for part in cutlass.range(worker, last + 1, unroll=8):
            slot = self.schedule.slot(part, worker, block, groups)
            top = cute.arch.fmax(top, partial_lse[slot, place])
        total = Float32(0.0)
        acc = cute.make_rmem_tensor(4, Float32)
        acc.fill(0.0)
        for part in cutlass.range(worker, last + 1, unroll=8):
            slot = self.schedule.slot(part, worker, block, groups)
            weight = cute.math.exp2(partial_lse[slot, place] - top, fastmath=True)
            values = cute.local_tile(partial[slot, place, None], (4,), (column,)).load()
            acc.store(acc.load() + values * weight)
            total = total + weight
        inverse = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        sequence = cuts[worker, int(Cut.END_SEQUENCE)]
        out = cute.local_tile(o[sequence, row // heads, row % heads, None], (4,), (column,))
        out.store((acc.load() * inverse).to(o.element_type))
        if column == 0:
            value = (top + cute.math.log2(total, fastmath=True)) * lse_unit
            lse[sequence, row % heads, row // heads, 0] = lse_empty if total == 0.0 else value
