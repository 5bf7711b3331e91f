"""Kernel template of latent attention: two alternating consumer warpgroups, four producer warps.

A CTA holds 64 rows (head, query) of one sequence. The output of 64x512 fp32 fills the registers of
two warpgroups: *left* keeps columns 0 to 255 and makes the weights of the even tiles of 64 keys,
*right* keeps columns 256 to 511 and makes those of the odd tiles; each hands its weights to the
other through shared memory. Each producer warp refills one half of one tile as soon as its reader
lets go of it.

A version sets the parts: ``schedule_type`` (which items a CTA takes), ``queries`` (how they arrive)
and ``epilogue_type`` (how parts of the same rows are merged and stored). As they stand here, two
CTAs of a cluster share keys by multicast, or split them and merge through distributed shared
memory.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.epilogue import ClusterEpilogue
from mla_var3.kernel.cute_python.kit.handovers import (
    CONSUMERS,
    Handover,
    arrive,
    cluster_sync,
    sync,
)
from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all
from mla_var3.kernel.cute_python.kit.products import RMEM, SMEM, accumulate, score_mma, scores
from mla_var3.kernel.cute_python.kit.queries import WholeQueries
from mla_var3.kernel.cute_python.kit.rings import Free, latent_storage, readers
from mla_var3.kernel.cute_python.kit.schedule import ClusterSchedule
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    latent_loads,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import (
    LOWEST,
    adopt_max,
    publish_max,
    rescale,
    rescale_weights,
    softmax,
    store_weights,
)
from mla_var3.kernel.cute_python.kit.warpgroups import (
    CONSUMER_REGISTERS,
    EVEN_ORDER,
    ODD_ORDER,
    PRODUCER_REGISTERS,
    THREADS,
    Side,
    views,
)


class LatentKernel:
    """Host and device half for one mask; the element type is that of q."""

    schedule_type = ClusterSchedule
    epilogue_type = ClusterEpilogue
    queries = WholeQueries()
    #: Barriers by which warpgroups give back what they have read.
    rings = len(Free)
    #: Whether descriptors are fetched while barriers are set up.
    prefetch = False
    #: Whether the merge of parts may start while attention ends.
    early_merge = False
    #: Whether CTAs of a cluster meet without a release before the first load: the fence of the
    #: barriers is all that it has to order.
    relaxed = False

    def __init__(self, causal, tiling, partial=False):
        """Settings.

        Args:
            causal: Whether the mask is causal.
            tiling: A tiling with ``lazy``, ``splits``, ``share`` and ``blocks``.
            partial: Whether outputs are parts, in fp32, for a merge.
        """
        splits, share = tiling.splits, tiling.share
        self.causal, self.lazy, self.share, self.partial = causal, tiling.lazy, share, partial
        self.schedule = self.schedule_type(causal, splits, share, tiling.blocks)
        self.epilogue = self.epilogue_type(splits, share, partial)

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64]."""
        self.launch(q, qpe, z, kpe, (), o, lse, scale_log2, stream)

    @cute.jit
    def launch(self, q, qpe, z, kpe, exchanged, o, lse, scale_log2, stream):
        """Launch with the tensors by which CTAs exchange parts of the same rows, if any."""
        q_loads, kv_loads, outputs = self.prepare(q, qpe, z, kpe, o, lse)
        self.attention(q_loads, kv_loads, exchanged, outputs, scale_log2).launch(
            **self.schedule.launch(q, o),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    @cute.jit
    def prepare(self, q, qpe, z, kpe, o, lse):
        """Shared memory, and what the device half takes: loads of queries and keys, and outputs."""
        self.dtype = q.element_type
        self.storage = latent_storage(
            self.dtype, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(self.dtype, 1), (None, None, 0))
        q_loads, kv_loads = latent_loads(q, qpe, z, kpe, slab, self.share)
        return q_loads, kv_loads, self.epilogue.outputs(o, lse, slab, q_loads[:2])

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def attention(
        self,
        q_loads: tuple,
        kv_loads: tuple,
        exchanged: tuple,
        outputs: tuple,
        scale_log2: Float32,
    ):
        """Grid as the schedule says; loads are TMA atoms and their tensors, latent part first."""
        self.begin(outputs)
        cta = cute.arch.block_idx()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], *kv_loads[::2]))
        self.init_barriers(storage, warp_index)

        work = self.schedule.work(cta, kv_loads[1], *outputs[1:3])
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_loads, kv_loads, work, group)
                    self.epilogue.relay(storage, exchanged, group)
            if const_expr(self.early_merge and self.partial):
                cute.arch.griddepcontrol_launch_dependents()
            self.epilogue.drain()
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, exchanged, side)
        self.end()

    def begin(self, outputs):
        """What comes before all else."""

    def end(self):
        """No CTA of a cluster leaves while another may still write to it."""
        cluster_sync()

    @cute.jit
    def fetch_descriptors(self, warp_index, loads):
        """Those of TMA, by the first producer warp."""
        if const_expr(self.prefetch):  # noqa: SIM102  # const_expr stands alone.
            if warp_index == CONSUMERS // 32:
                for load in loads:
                    cpasync.prefetch_descriptor(load)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        """All barriers, seen by the whole cluster."""
        if warp_index == 0:
            with cute.arch.elect_one():
                # These stand here: what is called in a region decides what the region carries.
                for i in range_constexpr(self.queries.barriers):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                for i in range_constexpr(self.rings):
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, readers(i, self.share))
                self.epilogue.init(storage)
        cute.arch.mbarrier_init_fence()
        self.after_barriers()

    @cute.jit
    def after_barriers(self):
        """All CTAs of the cluster see each other's barriers."""
        if const_expr(self.relaxed):
            cute.arch.cluster_arrive_relaxed()
            cute.arch.cluster_wait()
        else:
            cluster_sync()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        rank = self.schedule.rank()
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        q_loads = SlabLoads(*q_tensors, s_q)
        kv_loads = SlabLoads(*kv_tensors, s_kv, rank, self.share)
        tile, right = group // 2, group % 2
        readers = self.schedule.readers()
        full, free = storage.full.data_ptr() + tile * SLABS, storage.free.data_ptr()
        first, count, step = self.schedule.items(work)
        taken, done = Int32(0), Int32(0)  # items, and pairs of tiles, before this item
        for item in cutlass.range(first, count, step, unroll=1):
            block, _, batch, first_tile, pairs = self.schedule.place(work, item)
            self.queries.load(storage, q_loads, block, batch, (taken & 1) ^ 1, group)
            for i in cutlass.range(pairs, unroll=1):
                parity, key_tile = ((done + i) & 1) ^ 1, first_tile + 2 * i + tile
                if const_expr(right):
                    cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + tile, parity)
                    self.load_slab(kv_loads, key_tile, batch, tile, ROPE_SLAB, full, readers)
                cute.arch.mbarrier_wait(free + group, parity)
                for slab in range_constexpr(4 * right, 4 * right + 4):
                    self.load_slab(kv_loads, key_tile, batch, tile, slab, full, readers)
            taken, done = taken + 1, done + pairs

    @cute.jit
    def load_slab(self, kv_loads, key_tile, batch, tile, slab: cutlass.Constexpr, full, readers):
        """A slab of a tile of keys, to all CTAs that read it."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        options = {"cache_policy": cutlass.Int64(EVICT_FIRST)}
        if const_expr(self.share > 1):
            options["mcast_mask"] = readers
        kv_loads.issue(slab, key_tile, batch, tile * SLABS + slab, full + slab, **options)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, exchanged, side: cutlass.Constexpr):
        """One warpgroup, from an item's queries to its half of the output, item after item."""
        wg = views(storage, self.dtype, scale_log2, side)
        first, count, step = self.schedule.items(work)
        taken, done = Int32(0), Int32(0)  # items, and pairs of tiles, before this item
        for item in cutlass.range(first, count, step, unroll=1):
            block, out, _, first_tile, pairs = self.schedule.place(work, item)
            self.start(wg, storage, work, block * ROWS, first_tile * KEYS, taken & 1)
            if const_expr(side == Side.LEFT):
                self.left(wg, pairs, done, self.queries.first(storage, taken & 1))
            else:
                self.queries.await_rest(storage, taken & 1)
                self.right(wg, pairs, done)
            self.epilogue.finish(wg, storage, outputs, exchanged, block, out, item, side)
            self.release(wg, Free.ODD_LEFT + side)  # after its last use as the output's way out
            taken, done = taken + 1, done + pairs

    @cute.jit
    def start(self, wg, storage, work, first, first_key, phase):
        """Empty sums, what rows see, and the queries' rope slab in registers."""
        queries, keys = work[1:3]
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for r in range_constexpr(2):
            wg.limit[r] = seen(first + wg.row + 8 * r, queries, keys, self.causal) - first_key
        wg.limit[2] = seen_by_all(first, queries, keys, self.causal) - first_key
        cute.arch.mbarrier_wait(self.queries.rope(storage), phase)
        self.take_rope(wg, storage)

    @cute.jit
    def take_rope(self, wg, storage):
        """The queries' rope slab in registers: its place takes odd weights."""
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_A(ldmatrix, score_mma(self.dtype, RMEM))
        thread = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        cute.copy(copy, thread.partition_S(s_q[None, None, ROPE_SLAB]), thread.retile(wg.q_rope))

    def weigh(self, wg, tile):
        """Scores of a tile to weights."""
        softmax(wg, tile, self.lazy)

    @cute.jit
    def left(self, wg, pairs, done, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        scores(wg, Side.LEFT, EVEN_ORDER, True, done & 1, queries)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(pairs - 1, unroll=1):
            self.left_pair(wg, i, (done + i + 1) & 1, False)
        self.release_queries(wg, Free.Q)
        self.epilogue.offer()
        self.left_pair(wg, pairs - 1, 0, True)
        self.release_queries(wg, Free.Q_ROPE)

    @cute.jit
    def left_pair(self, wg, i, next_phase, last: cutlass.Constexpr):
        """Even weights times own half, then odd weights, then the scores of the next even tile."""
        self.weigh(wg, 2 * i)
        publish_max(wg, Side.LEFT)
        arrive(Handover.EVEN_MAX)
        rescale(wg.out, wg.shrink)
        accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_LEFT)

        sync(Handover.ODD_MAX)
        adopt_max(wg, Side.RIGHT)
        rescale_weights(wg)
        store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        arrive(Handover.EVEN_WEIGHTS)
        sync(Handover.ODD_WEIGHTS)
        rescale(wg.out, wg.shrink)
        accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
        if const_expr(not last):
            next_phase = self.next_phase(i, next_phase)
            scores(wg, Side.LEFT, EVEN_ORDER[:4], True, next_phase)
            warpgroup.wait_group(4)
            self.release(wg, Free.ODD_LEFT)
            scores(wg, Side.LEFT, EVEN_ORDER[4:], False, next_phase)
        warpgroup.wait_group(0)
        if const_expr(not last):
            self.release(wg, Free.EVEN_ROPE)

    def next_phase(self, i, phase):
        """The phase of the next even tile, as ``left`` gives it."""
        return phase

    @cute.jit
    def right(self, wg, pairs, done):
        """Weights of the odd tiles, columns 256 to 511 of the output."""
        for i in cutlass.range(pairs, unroll=1):
            self.right_pair(wg, i, (done + i) & 1, i + 1 < pairs)
        self.release_queries(wg, Free.Q)

    @cute.jit
    def right_pair(self, wg, i, phase, more):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        scores(wg, Side.RIGHT, ODD_ORDER, True, phase)
        warpgroup.wait_group(0)
        self.release(wg, Free.ODD_ROPE)
        self.epilogue.offer_last(more)
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
        self.release_odd(wg, more)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

    @cute.jit
    def release_odd(self, wg, more):
        """The right half of the odd tile; the last one's is the output's way out before."""
        if more:
            self.release(wg, Free.ODD_RIGHT)

    def release_queries(self, wg, which):
        """What of the queries the next item's may replace."""
        self.release(wg, which)

    @cute.jit
    def release(self, wg, which: cutlass.Constexpr):
        """Give back a place in shared memory, to all CTAs that fill it."""
        with cute.arch.elect_one():
            if const_expr(self.share == 1 or which >= Free.Q):
                cute.arch.mbarrier_arrive(wg.free + which)
            else:
                for i in range_constexpr(self.share):
                    cute.arch.mbarrier_arrive(wg.free + which, self.schedule.reader(i))
