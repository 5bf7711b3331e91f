"""Kernel of sparse latent attention in one launch, whose next tokens are on their way to L2.

Producers are those of ``gather``; who ends with the same list merges it, as in ``short``. While a
tile's tokens are converted, those of the next are sent for, as far as L2.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int64, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.alternate import AlternateEpilogue, AlternateKernel
from mla_var3.kernel.cute_python.kit.gather import GatherKernel
from mla_var3.kernel.cute_python.kit.rings import readers
from mla_var3.kernel.cute_python.kit.short import ShortKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLABS
from mla_var3.kernel.cute_python.kit.sparse import ROW_BYTES, TOKENS, WARPS, hide_unfilled

#: Bytes that L2 fetches at once.
LINE = 128


class MergedKernel(GatherKernel, ShortKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    #: Whether the tokens of the next tile are sent for, as far as L2.
    hints = True

    __call__ = AlternateKernel.__call__
    sparse_attention = AlternateKernel.sparse_attention

    def __init__(self, lazy):
        """Of a lag of the maximum, in log2."""
        ShortKernel.__init__(self, lazy, 1, KEYS)
        self.hide, self.epilogue = hide_unfilled, AlternateEpilogue(1)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers; at those of the slabs each producer warp arrives."""
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(SLABS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, WARPS)
                for i in range_constexpr(self.rings):
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, readers(i, 1))
                self.epilogue.init(storage)
        cute.arch.mbarrier_init_fence()
        self.after_barriers()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def token(self, work, cache, sequence, length, place):
        """The token that a lane looks up for its warp, on its way to L2; -1 where there is none."""
        found = GatherKernel.token(self, work, cache, sequence, length, place)
        if const_expr(self.hints):
            self.send_for(cache, found)
        return found

    @cute.jit
    def send_for(self, cache, token):
        """Bytes of 16 tokens to L2; of a token two lanes ask for half each."""
        page, place = cache.shape[1], cutlass.max(token, 0)
        row = Int64(cache[place // page, place % page, None].iterator.toint())
        half = cute.arch.lane_idx() // TOKENS
        for i in range_constexpr(ROW_BYTES // LINE // 2 + 1):
            at = row + Int64((ROW_BYTES // LINE // 2 + 1) * LINE * half + LINE * i)
            if token >= 0:
                cute.arch.inline_ptx("prefetch.global.L2 [{$r0}];", read_only_args=[at])


class UnhintedKernel(MergedKernel):
    """The same without hints."""

    hints = False
