"""Kernel of few-row attention over pages: keys as MMA rows, sequences of any lengths, even cuts.

A worker takes what lies between two cuts, sequence by sequence. The tiles of a part alternate
between two warpgroups, each with a place for one tile and a producer warp of its own, so keys of
the next sequence are under way while the output of this one leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.pages import as_token_rows, page_loads
from mla_var3.kernel.cute_python.kit.short import SteadyLoads
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLAB_BYTES,
    SLABS,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LOWEST
from mla_var3.kernel.cute_python.kit.thin_merge import ThinMerge
from mla_var3.kernel.cute_python.kit.thin_parts import GROUP, HALF_BLOCKS, ROUND
from mla_var3.kernel.cute_python.kit.thin_schedule import ThinSchedule
from mla_var3.kernel.cute_python.kit.thin_slabs import (
    BLOCKS,
    CONSUMERS,
    GROUPS,
    ORDER,
    WIDE,
    thin_layout,
    thin_parts,
    thin_slabs,
)
from mla_var3.kernel.cute_python.kit.thin_steps import Warpgroup, transposed_layout

#: Registers of consumer and producer threads, with few columns and with many.
REGISTERS, WIDE_REGISTERS = (232, 40), (240, 24)
#: Views of whichever warpgroup runs the code of both, and which one it is.
Group = NamedTuple("Group", [*Warpgroup.__annotations__.items(), ("group", Int32)])


class ThinPagedKernel(ThinMerge):
    """Host and device half for a box of keys; the mask comes at launch.

    Args:
        columns: Rows (head, query) of a CTA, as many as a sequence has at most.
        box: Keys that one load takes.
    """

    loads = SteadyLoads
    policy = EVICT_FIRST

    def __init__(self, columns: int, box: int):
        self.columns, self.box = columns, box
        #: Of a thread: columns, and groups of four values of one block of the output.
        self.mine, self.quads = columns // 4, columns // 8
        self.exchanged = min(columns, ROUND) // 8
        #: Of consumer and producer threads; an output of 32 columns takes more.
        self.registers = WIDE_REGISTERS if columns >= WIDE else REGISTERS
        self.schedule = ThinSchedule(1)

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        table: cute.Tensor,
        lengths: cute.Tensor,
        cuts: cute.Tensor,
        places: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        masked: Int32,
        scale_log2: Float32,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,s,h,512], qpe [b,s,h,64], z [pages,page,512], kpe [pages,page,64]."""
        dtype = self.dtype = q.element_type
        n, exchanged = self.columns, GROUPS * HALF_BLOCKS * self.exchanged * GROUP

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, 1]
            q_free: cute.struct.MemRange[cutlass.Int64, 1]
            full: cute.struct.MemRange[cutlass.Int64, GROUPS * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, GROUPS]
            by_warp: cute.struct.MemRange[Float32, GROUPS * 4 * n]
            results: cute.struct.MemRange[Float32, GROUPS * 2 * n]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * n * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * SLABS * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * n * SLAB], 1024]
            handed: cute.struct.Align[cute.struct.MemRange[Float32, exchanged], 1024]

        self.storage = Storage
        load = cpasync.CopyBulkTensorTileG2SOp()
        thin = cute.slice_(thin_layout(dtype, n, 1), (None, None, 0))
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), thin, (n, SLAB)) for x in (q, qpe)
        ]
        load_z, load_kpe = [page_loads(x, self.box, 1) for x in (z, kpe)]
        loads = (*load_q, *load_qpe), (*load_z, *load_kpe)
        store = cpasync.CopyBulkTensorTileS2GOp()
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), thin, (n, SLAB))
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (table, lengths, cuts), (places, signals, o)
        self.paged_attention(*loads, where, slots, outputs, masked, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(CONSUMERS + 128, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where they share a sequence
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def paged_attention(
        self,
        q_loads: tuple,
        kv_loads: tuple,
        where: tuple,
        slots: tuple,
        outputs: tuple,
        masked: Int32,
        scale_log2: Float32,
    ):
        """Grid as the schedule says; loads are TMA atoms and their tensors, latent part first."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.set_up(storage, warp_index, (*q_loads[::2], *kv_loads[::2], outputs[0]))
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(self.registers[1])
            work = self.schedule.work(where, outputs[2], masked)
            group = warp_index - CONSUMERS // 32
            if group < GROUPS:
                self.produce(storage, kv_loads, work, group)
            if warp_index == CONSUMERS // 32 + GROUPS:
                self.load_queries(storage, q_loads, work)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            own = self.schedule.work(where, outputs[2], masked)
            shared = self.schedule.members(own, where[2])
            self.consume(storage, shared, scale_log2, outputs, slots)
            self.merge(storage, shared, outputs, slots)

    @cute.jit
    def set_up(self, storage, warp_index, loads):
        """Barriers, and descriptors of TMA."""
        if warp_index == CONSUMERS // 32:
            for load in loads:
                cpasync.prefetch_descriptor(load)
        if warp_index == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(storage.q_full.data_ptr(), 1)
                cute.arch.mbarrier_init(storage.q_free.data_ptr(), CONSUMERS // 32)  # warps
                for i in range_constexpr(GROUPS * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                for i in range_constexpr(GROUPS):
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # warps
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, kv_tensors, work, group):
        """One warp: the tiles of one warpgroup, slab by slab, sequence after sequence."""
        shared = shared_slabs(storage.kv, self.dtype, GROUPS * SLABS)
        loads = self.loads(kv_tensors, shared, work.table, self.box, 1, 0, self.policy)
        entries, done = loads.entries(), Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            done = done + self.load_part(storage, loads, entries, work, sequence, done, group)

    @cute.jit
    def load_part(self, storage, loads, entries, work, sequence, done, group):
        """Load the tiles of a sequence that are this warpgroup's; how many."""
        length = work.lengths[sequence]
        start, stop, _ = self.schedule.part(work, sequence, length)
        count = (stop - start + 1 - group) // 2
        self.look_up(loads, entries, sequence, length, start + group)
        for i in cutlass.range(count, unroll=1):
            tile = start + 2 * i + group
            phase = ((done + i) & 1) ^ 1
            self.load_tile(storage, loads, entries, sequence, tile, length, phase, group)
        return count

    @cute.jit
    def look_up(self, loads, entries, sequence, length, tile):
        """Find the pages of the first tile of a part."""
        loads.look_up(entries, sequence, length, tile)

    @cute.jit
    def load_tile(self, storage, loads, entries, sequence, tile, length, phase, group):
        """Load a tile once all of its place is free, and find the pages of the one after it.

        Slab by slab, as places come free, memory would come in rows of 128 bytes, not of 1152.
        """
        full, free = storage.full.data_ptr() + group * SLABS, storage.free.data_ptr() + group
        cute.arch.mbarrier_wait(free, phase)
        for j in range_constexpr(SLABS):
            slab = ORDER[j]
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
            loads.issue(slab, entries, tile, length, group * SLABS + slab, full + slab)
        loads.go_on(entries, sequence, length, tile + 2)

    @cute.jit
    def load_queries(self, storage, q_tensors, work):
        """One warp: the queries of one sequence after another."""
        load_q, q, load_qpe, qpe = q_tensors
        n, full = self.columns, storage.q_full.data_ptr()
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        target, latent = thin_parts(load_q, s_q, q, n)
        _, rope = thin_parts(load_qpe, s_q, qpe, n)
        taken = Int32(0)
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            cute.arch.mbarrier_wait(storage.q_free.data_ptr(), (taken & 1) ^ 1)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * n * SLAB * 2)
            place = target[None, ROPE_SLAB]
            cute.copy(load_qpe, rope[None, 0, 0, sequence], place, tma_bar_ptr=full)
            for slab in range_constexpr(ROPE_SLAB):
                source, place = latent[None, 0, slab, sequence], target[None, slab]
                cute.copy(load_q, source, place, tma_bar_ptr=full)
            taken = taken + 1

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, slots):
        """Either warpgroup, sequence after sequence: its tiles, then its half of the output."""
        wg = self.views(storage, scale_log2)
        taken, done = Int32(0), Int32(0)  # sequences and tiles before this one
        for sequence in cutlass.range(work.first, work.last + 1, unroll=1):
            count = self.take_part(wg, storage, work, outputs, slots, sequence, taken, done)
            taken, done = taken + 1, done + count

    @cute.jit
    def take_part(self, wg, storage, work, outputs, slots, sequence, taken, done):
        """This warpgroup's tiles of a sequence, then its half of the output; how many tiles."""
        length = work.lengths[sequence]
        start, stop, whole = self.schedule.part(work, sequence, length)
        self.begin(wg, work, length)
        count = (stop - start + 1 - wg.group) // 2
        for i in cutlass.range(count, unroll=1):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr(), taken & 1)
            self.scores(wg, (done + i) & 1)
            if i + 1 == count:
                self.release_queries(storage)
            self.softmax(wg, start + 2 * i + wg.group, 0)
            self.accumulate(wg)
        if count == 0:
            self.release_queries(storage)
        self.finish(wg, storage, work, outputs, slots, sequence, (start, stop, whole))
        return count

    @cute.jit
    def views(self, storage, scale_log2):
        """Views and registers of the warpgroup that runs this, whose tiles are one of two."""
        group = cute.arch.make_warp_uniform(cute.arch.warp_idx()) // 4
        wg = self.warpgroup(storage, scale_log2, 0)
        n, score, out = self.columns, self.score_mma(), self.output_mma()
        in_score, in_out = score.get_slice(wg.thread), out.get_slice(wg.thread)
        slabs = GROUPS * SLABS
        s_k, s_v = [
            self.slot(storage, layout(self.dtype, slabs), 0)
            for layout in (slab_layout, transposed_layout)
        ]
        s_p = thin_slabs(storage.weights, self.dtype, n, GROUPS)
        own = s_p[None, None, group]
        turned = cute.make_tensor(own.iterator, cute.select(own.layout, mode=[1, 0]))
        by_warp = storage.by_warp.get_tensor(cute.make_layout((4, n, GROUPS), stride=(n, 1, 4 * n)))
        given = {
            **wg._asdict(),
            "full": wg.full + group * SLABS,
            "free": wg.free + group,
            "k": in_score.make_fragment_A(in_score.partition_A(s_k)),
            "v": in_out.make_fragment_A(in_out.partition_A(s_v)),
            "p": in_out.make_fragment_B(in_out.partition_B(s_p)),
            "weights": wg.store_thread.partition_D(turned),
            "by_warp": by_warp[None, None, group],
            "limit": cute.make_rmem_tensor(cute.make_layout(self.mine + 2), Int32),
        }
        return Group(**given, group=group)

    @cute.jit
    def scores(self, wg, phase):
        """S = K Q^T, slab by slab as each one lands."""
        mma = self.score_mma()
        for j in range_constexpr(SLABS):
            slab = ORDER[j]
            cute.arch.mbarrier_wait(wg.full + slab, phase)
            warpgroup.fence()
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, j != 0 or step != 0)
                k, q = wg.k[None, None, step, wg.group * SLABS + slab], wg.q[None, None, step, slab]
                cute.gemm(mma, wg.score, k, q, wg.score)
            warpgroup.commit_group()
        warpgroup.wait_group(0)

    @cute.jit
    def accumulate(self, wg):
        """O += V^T P^T by blocks of 64 dimensions, beginning with those that are kept."""
        mma = self.output_mma()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for block in range_constexpr(BLOCKS):
            # The left warpgroup keeps slabs 0 to 3, the right one 4 to 7.
            half = wg.group if block < HALF_BLOCKS else 1 - wg.group
            slab = wg.group * SLABS + half * HALF_BLOCKS + block % HALF_BLOCKS
            for step in range_constexpr(4):
                v, p = wg.v[None, None, step, slab], wg.p[None, None, step, wg.group]
                cute.gemm(mma, wg.out[block], v, p, wg.out[block])
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free)

    @cute.jit
    def release_queries(self, storage):
        """Both warpgroups have used the queries once all of their warps say so."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(storage.q_free.data_ptr())

    @cute.jit
    def begin(self, wg, work, length):
        """Empty sums, and the keys that the thread's rows see; last of ``limit`` the length."""
        for block in range_constexpr(BLOCKS):
            wg.out[block].fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for c in range_constexpr(self.mine):
            wg.limit[c] = self.seen(work, self.column(wg, c), length)
        wg.limit[self.mine] = self.seen(work, 0, length)
        wg.limit[self.mine + 1] = length

    def seen(self, work, row, length):
        """One past the last key that a row sees; bottom-right aligned, so it may be below 1."""
        return cutlass.min(row // work.heads + (length - work.masked + 1), length)

    @cute.jit
    def mask(self, wg, tile):
        """Hide the keys that a row does not see, and places without keys: a box ends with keys."""
        for r in range_constexpr(2):
            row = 16 * wg.warp + wg.lane // 4 + 8 * r
            first = tile * KEYS + row // self.box * self.box
            kept = cutlass.max(cutlass.min(wg.limit[self.mine + 1] - first, self.box), 0)
            place = row % self.box - (self.box - kept)
            for c in range_constexpr(self.mine):
                i = self.places(c)[r]
                hidden = (place < 0) | (first + place >= wg.limit[c])
                wg.score[i] = -Float32.inf if hidden else wg.score[i]
