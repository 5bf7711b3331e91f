"""Split-KV merge kernel: fp32 partial outputs of each row, weighted by their LSE."""

from __future__ import annotations

from dataclasses import dataclass

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr

from mla_var3.kernel.cute_python.kit.slabs import LATENT, as_rows, as_vector
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST

#: Threads that merge a row, each four columns.
MERGE_THREADS = LATENT // 4


@dataclass(frozen=True)
class Merge:
    """Split-KV merge kernel: host and device half.

    Attributes:
        early: Whether blocks start while attention ends, as a programmatic dependent launch.
    """

    early: bool = False

    @cute.jit
    def __call__(
        self,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        stream: cuda.CUstream,
    ):
        """Launch on partial [parts*b,h,s,512] fp32 and partial_lse [parts*b,h,s]."""
        b, h, s, _ = o.shape
        self.merge(as_rows(partial), as_vector(partial_lse), as_rows(o), as_vector(lse)).launch(
            grid=(h * s, b, 1), block=(MERGE_THREADS, 1, 1), stream=stream, use_pdl=self.early
        )

    @cute.kernel
    def merge(
        self, partial: cute.Tensor, partial_lse: cute.Tensor, o: cute.Tensor, lse: cute.Tensor
    ):
        """Grid (rows, b): one row of 512."""
        row, batch, _ = cute.arch.block_idx()
        column, sequences = cute.arch.thread_idx()[0], o.shape[2]
        parts = partial.shape[2] // sequences
        if const_expr(self.early):
            cute.arch.griddepcontrol_wait()  # attention has ended, and what it wrote is visible
        top = Float32(LOWEST)
        for part in cutlass.range(parts, unroll=8):
            top = cute.arch.fmax(top, partial_lse[row, part * sequences + batch])
        total = Float32(0.0)
        acc = cute.make_rmem_tensor(4, Float32)
        acc.fill(0.0)
        for part in cutlass.range(parts, unroll=8):
            at = part * sequences + batch
            weight = cute.math.exp2((partial_lse[row, at] - top) * (1.0 / LN_2), fastmath=True)
            values = cute.local_tile(partial[row, None, at], (4,), (column,)).load()
            acc.store(acc.load() + values * weight)
            total = total + weight
        inverse = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        out = cute.local_tile(o[row, None, batch], (4,), (column,))
        out.store((acc.load() * inverse).to(o.element_type))
        if column == 0:
            lse[row, batch] = top + cute.math.log2(total, fastmath=True) * LN_2
