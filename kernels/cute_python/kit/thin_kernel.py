"""Kernel template of few-row attention, keys as MMA rows: two producer warps, two warpgroups."""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    as_keys,
    as_rows,
    as_vector,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.thin_slabs import (
    BLOCKS,
    CONSUMER_REGISTERS,
    CONSUMERS,
    GROUPS,
    ORDER,
    PRODUCER_REGISTERS,
    WIDE,
    thin_layout,
    thin_parts,
    thin_slabs,
)
from mla_var3.kernel.cute_python.kit.thin_steps import ThinSteps


class ThinKernel(ThinSteps):
    """Host and device half for one mask; the element type is that of q.

    A version says by ``__call__`` what else than the problem it is launched on, and adds ``place``
    and ``epilogue``.

    Args:
        causal: Whether a mask is aligned at the bottom right.
        columns: Rows (head, query) of a CTA.
        splits: CTAs of a cluster that split the keys.
        ring: Slabs of keys in shared memory; by default a slot of a tile per warpgroup.
    """

    def __init__(self, causal: bool, columns: int, splits: int = 1, ring: int = GROUPS * SLABS):
        self.causal = causal
        self.columns = columns
        self.splits = splits
        self.ring = ring
        #: Of a thread: columns, and groups of four values of one block of the output.
        self.mine = columns // 4
        self.quads = columns // 8
        #: Blocks that each CTA of the cluster finishes.
        self.share = BLOCKS // splits
        self.wide = columns >= WIDE

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def start_on(self, problem, scratch, o, lse, scale_log2, stream):
        """Launch.

        Args:
            problem: q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64].
            scratch: What CTAs exchange through memory.
            o: [b,h,s,512], or partial results of as many.
            lse: [b,h,s], likewise.
            scale_log2: Softmax scale over ln 2.
            stream: Where to launch.
        """
        q, qpe, z, kpe = problem
        dtype = self.dtype = q.element_type
        n = self.columns

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, 1]
            full: cute.struct.MemRange[cutlass.Int64, self.ring]
            free: cute.struct.MemRange[cutlass.Int64, self.ring]
            by_warp: cute.struct.MemRange[Float32, GROUPS * 4 * n]
            results: cute.struct.MemRange[Float32, self.splits * GROUPS * 2 * n]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * n * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, self.ring * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * n * SLAB], 1024]

        self.storage = Storage
        load = cpasync.CopyBulkTensorTileG2SOp()
        thin = cute.slice_(thin_layout(dtype, n, 1), (None, None, 0))
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_rows(x), thin, (n, SLAB)) for x in (q, qpe)
        ]
        slab = cute.slice_(slab_layout(dtype, 1), (None, None, 0))
        load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(load, as_keys(x), slab, (KEYS, SLAB)) for x in (z, kpe)
        ]
        _, h, s, _ = q.shape
        loads = (*load_q, *load_qpe, *load_z, *load_kpe)
        self.attention(*loads, scratch, as_rows(o), lse, scale_log2).launch(
            grid=(cute.ceil_div(h * s, n) * o.shape[0] * self.ctas(), 1, 1),
            block=(CONSUMERS + (128 if self.wide else 32 * GROUPS), 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            **self.launch_options(),
        )

    def ctas(self) -> int:
        """CTAs per row tile of a sequence, or of one of its partial results."""
        return self.splits

    def launch_options(self) -> dict[str, Any]:
        """How CTAs are grouped, and when they start."""
        return {"cluster": (self.splits, 1, 1)}

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def attention(
        self,
        load_q: cute.CopyAtom,
        q: cute.Tensor,
        load_qpe: cute.CopyAtom,
        qpe: cute.Tensor,
        load_z: cute.CopyAtom,
        z: cute.Tensor,
        load_kpe: cute.CopyAtom,
        kpe: cute.Tensor,
        scratch: tuple[cute.Tensor, ...],
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (CTAs of a row tile * row tiles * sequences)."""
        self.begin()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.set_up(storage, warp_index)

        work = self.work(o, lse, z)
        if warp_index >= CONSUMERS // 32:
            if const_expr(self.wide):
                cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            self.load(storage, q_tensors, kv_tensors, work, warp_index)
        else:
            if const_expr(self.wide):
                cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            for group in range_constexpr(GROUPS):
                if warp_index // 4 == group:
                    self.consume(storage, work, scratch, scale_log2, o, lse, group)

    def begin(self):
        """What a CTA does first."""

    def work(self, o, lse, z):
        """Rows, queries, keys."""
        return o.shape[0], lse.shape[2], z.shape[0]

    @cute.jit
    def set_up(self, storage, warp_index):
        """Barriers, for all warps at once."""
        if warp_index == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(storage.q_full.data_ptr(), 1)
                for i in range_constexpr(self.ring):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # warps
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    def rank(self):
        return cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    @cute.jit
    def cluster_sync(self):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def load(self, storage, q_tensors, kv_tensors, work, warp_index):
        """A warp per warpgroup; all of them meet in the epilogue of a cluster."""
        for group in range_constexpr(GROUPS):
            if warp_index == CONSUMERS // 32 + group:
                self.produce(storage, q_tensors, kv_tensors, work, group)
        self.cluster_sync()  # the two of the epilogue
        self.cluster_sync()

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: the tiles of one warpgroup, slab by slab; the first also loads the queries."""
        block, batch, _, first, count = self.place(work)
        if const_expr(group == 0):
            self.load_queries(storage, q_tensors, block, batch)
        loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, GROUPS * SLABS))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
            tile = first + GROUPS * i + group
            for j in range_constexpr(SLABS):
                place = group * SLABS + ORDER[j]
                cute.arch.mbarrier_wait(free + place, (i & 1) ^ 1)
                self.load_slab(loads, tile, batch, ORDER[j], place, full + place)

    @cute.jit
    def load_slab(self, loads, tile, batch, slab: cutlass.Constexpr, place, full):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, SLAB_BYTES)
        loads.issue(slab, tile, batch, place, full, cache_policy=cutlass.Int64(EVICT_FIRST))

    @cute.jit
    def load_queries(self, storage, q_tensors, block, batch):
        load_q, q, load_qpe, qpe = q_tensors
        n, full = self.columns, storage.q_full.data_ptr()
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        target, latent = thin_parts(load_q, s_q, q, n)
        _, rope = thin_parts(load_qpe, s_q, qpe, n)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * n * SLAB * 2)
        place = target[None, ROPE_SLAB]
        cute.copy(load_qpe, rope[None, block, 0, batch], place, tma_bar_ptr=full)
        for slab in range_constexpr(ROPE_SLAB):
            source, place = latent[None, block, slab, batch], target[None, slab]
            cute.copy(load_q, source, place, tma_bar_ptr=full)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scratch, scale_log2, o, lse, group: cutlass.Constexpr):
        """One warpgroup, from the queries to its share of the output."""
        wg = self.warpgroup(storage, scale_log2, group)
        block, batch, part, first, count = self.place(work)
        self.start(wg, work, block * self.columns)
        cute.arch.mbarrier_wait(storage.q_full.data_ptr(), 0)
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
            self.scores(wg, i & 1)
            self.softmax(wg, first + GROUPS * i + group, group)
            self.accumulate(wg)
        place = (block, batch, part)
        self.epilogue(wg, storage, scratch, o, as_vector(lse), place, group)
