"""Consumers that need fewer registers: all queries stay in shared memory.

Odd weights take the place of the rotary keys of their tile, whose scores are made by then. So no
place of the queries is needed for them, and the queries' rotary part need not be in registers.
Weights are rescaled as they are, so that no scores are kept beside them. Producers may have the
registers that this saves. Rotary parts stay in bf16, on both sides: no one converts them.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import BFloat16, Float16, Float32, const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS, Handover, arrive, sync
from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.products import (
    RMEM,
    SMEM,
    accumulate,
    output_mma,
    score_mma,
)
from mla_var3.kernel.cute_python.kit.queries import SlabQueries
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLABS,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import (
    LOWEST,
    adopt_max,
    publish_max,
    rescale,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.warpgroups import Side


class ResidentQueries(SlabQueries):
    """All slabs under barriers of their own, by one warp, once both warpgroups are done."""

    @cute.jit
    def load(self, storage, q_loads, block, batch, parity, group):
        """An item's queries."""
        full, free = storage.q_full.data_ptr(), storage.free.data_ptr()
        if group == 0:
            cute.arch.mbarrier_wait(free + Free.Q, parity)
            for slab in range_constexpr(SLABS):
                self.load_slab(q_loads, block, batch, slab, full)


def as_bf16(memory, slabs):
    """Slabs of other 16-bit values: [64, 64, slabs]."""
    layout = slab_layout(BFloat16, slabs)
    at = cute.recast_ptr(memory.data_ptr(), layout.inner, BFloat16)
    return cute.make_tensor(at, layout.outer)


class ResidentKernel(MergedKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    queries = ResidentQueries()
    #: Order in which the slabs of an even and of an odd tile are multiplied.
    orders = (0, 1, 2, 3, 4, 5, 6, 7, ROPE_SLAB), (4, 5, 6, 7, 0, 1, 2, 3, ROPE_SLAB)
    #: Slabs before whose products consumers fence what producers have written; else those do.
    fenced = ()

    # ---- consumer warpgroups ---------------------------------------------------------------
    def views(self, storage, scale_log2, side):
        """Views of one side: odd weights in the place of rotary keys, rotary parts in bf16."""
        wg = super().views(storage, scale_log2, side)
        keys = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        even = shared_slabs(storage.weights, self.dtype, 1)[None, None, 0]
        places = even, keys[None, None, SLABS + ROPE_SLAB]
        thread = cute.arch.thread_idx()[0] % 128
        into = output_mma(self.dtype, SMEM).get_slice(thread)
        score = score_mma(BFloat16, SMEM).get_slice(thread)
        q, kv = as_bf16(storage.q, SLABS), as_bf16(storage.kv, 2 * SLABS)
        return wg._replace(
            peer_weights=into.make_fragment_A(into.partition_A(places[1 - side])),
            own_weights=wg.store.get_slice(thread).partition_D(places[side]),
            q_rope=(
                score.make_fragment_A(score.partition_A(q)),
                score.make_fragment_B(score.partition_B(kv)),
            ),
        )

    @cute.jit
    def scores(self, wg, tile, order: cutlass.Constexpr, fresh: cutlass.Constexpr, phase, queries):
        """Issue S += Q K^T over some slabs as each one lands; one commit group per slab."""
        for j in range_constexpr(len(order)):
            slab = order[j]
            if const_expr(queries is not None):
                cute.arch.mbarrier_wait(queries[0] + slab, queries[1])
            cute.arch.mbarrier_wait(wg.full + (tile * SLABS + slab), phase)
            if const_expr(slab in self.fenced):
                cute.arch.fence_proxy("async.shared", space="cta")
            warpgroup.fence()
            rope = slab == ROPE_SLAB
            mma = score_mma(BFloat16 if const_expr(rope) else Float16, SMEM)
            q, k = wg.q_rope if const_expr(rope) else (wg.q, wg.k)
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, not (fresh and j == 0 and step == 0))
                keys = k[None, None, step, tile * SLABS + slab]
                cute.gemm(mma, wg.score, q[None, None, step, slab], keys, wg.score)
            warpgroup.commit_group()

    @cute.jit
    def begin(self, wg, storage, work, length, first_key, phase):
        """Empty sums, and queries in fp16."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        wg.limit.fill(-KEYS)  # each tile may have places that no token fills
        for slab in range_constexpr(SLABS):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + slab, phase)
        flat = cute.make_tensor(storage.q.data_ptr(), cute.make_layout(SLABS * SLAB * SLAB))
        for i in range_constexpr(ROPE_SLAB * SLAB * SLAB // 8 // CONSUMERS):
            part = cute.local_tile(flat, (8,), (i * CONSUMERS + cute.arch.thread_idx()[0],))
            values = cute.make_rmem_tensor(8, Float16)
            cute.autovec_copy(part, values)
            values.store(cute.recast_tensor(values, BFloat16).load().to(Float32).to(Float16))
            cute.autovec_copy(values, part)
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.FIRST_PIECE)

    @cute.jit
    def left_tiles(self, wg, even, odd, evens, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        self.scores(wg, Side.LEFT, self.orders[0], True, evens & 1, queries)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(even, unroll=1):
            if i + 1 == even:
                self.release(wg, Free.Q)
            self.left_any(wg, i, (evens + i + 1) & 1, i < odd, i + 1 < even)

    @cute.jit
    def left_any(self, wg, i, next_phase, paired, more):
        """An even tile, the odd one after it where there is one, and the scores of the next."""
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        if paired:  # else it is the output's way out
            self.release(wg, Free.EVEN_LEFT)
        sync(Handover.ODD_MAX)
        if paired:
            adopt_max(wg, Side.RIGHT)
            rescale_halves(wg)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        if paired:
            sync(Handover.ODD_WEIGHTS)
            rescale(wg.out, wg.shrink)
            accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
            if more:
                self.scores(wg, Side.LEFT, self.orders[0][:4], True, next_phase, None)
                warpgroup.wait_group(4)
                self.release(wg, Free.ODD_LEFT)
                self.release(wg, Free.ODD_ROPE)
                self.scores(wg, Side.LEFT, self.orders[0][4:], False, next_phase, None)
                warpgroup.wait_group(0)
            else:
                warpgroup.wait_group(0)
                self.release(wg, Free.ODD_ROPE)
                wg.score.fill(0.0)  # else old ones would be kept for a tile that does not come
        else:
            wg.score.fill(0.0)
        if more:
            self.release(wg, Free.EVEN_ROPE)

    @cute.jit
    def right_pair(self, wg, i, phase, more):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        self.scores(wg, Side.RIGHT, self.orders[1], True, phase, None)
        warpgroup.wait_group(0)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        even_shrink = (wg.shrink[0], wg.shrink[1])
        self.weigh(wg, 2 * i + 1)
        publish_max(wg, Side.RIGHT)
        arrive(Handover.ODD_MAX)
        for r in range_constexpr(2):
            wg.shrink[r] = wg.shrink[r] * even_shrink[r]
        store_weights(wg)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.EVEN_WEIGHTS)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        arrive(Handover.ODD_WEIGHTS)
        warpgroup.wait_group(1)
        if more:  # else it is the output's way out
            self.release(wg, Free.ODD_RIGHT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

    @cute.jit
    def right_alone(self, wg):
        """Left's even tile that no odd one follows."""
        arrive(Handover.ODD_MAX)
        sync(Handover.EVEN_MAX)
        adopt_max(wg, Side.LEFT)
        rescale(wg.out, wg.shrink)
        if const_expr(self.fenced):  # it has taken over nothing itself
            cute.arch.fence_proxy("async.shared", space="cta")
        sync(Handover.EVEN_WEIGHTS)
        accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        warpgroup.wait_group(0)


@cute.jit
def rescale_halves(wg):
    """Multiply weights by ``shrink``; skipped where no row has moved."""
    if cute.arch.vote_any_sync(wg.shrink[0] * wg.shrink[1] != Float32(1.0)):
        flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
        for i in range_constexpr(cute.size(flat)):
            flat[i] = flat[i] * wg.shrink[i // 2 % 2].to(Float16)
