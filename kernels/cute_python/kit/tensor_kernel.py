"""Template of latent attention in tensor memory: host half, barriers, and warps by their roles.

Six warps have three roles. One loads slabs of keys into a ring, one multiplies, and four turn
scores into weights, a row per thread. A kernel says what each role does (``load``, ``multiply``,
``attend``), what shared memory holds, and whether two CTAs multiply as one.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, tcgen05
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.even import EvenSchedule
from mla_var3.kernel.cute_python.kit.handovers import cluster_sync
from mla_var3.kernel.cute_python.kit.pages import as_pages, as_token_rows
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLAB, SLAB_BYTES, SLABS
from mla_var3.kernel.cute_python.kit.tall_products import box_layout, shared, slab_layout
from mla_var3.kernel.cute_python.kit.tensor_memory import ALL_COLUMNS, after_sync, before_sync

#: Warps: four of softmax, then the one that multiplies, then the one that loads.
MULTIPLIER, LOADER, WARPS = 4, 5, 6


class TensorKernel:
    """Host and device half for one box of keys; the mask is given at launch."""

    #: Rows of queries of a CTA, slabs of keys in its ring, slabs of a row, of which the last is the
    #: rotary part, whether a pair multiplies as one, and which work a CTA takes.
    rows: int
    slots: int
    slabs = SLABS
    pair = False
    schedule_type = EvenSchedule

    def __init__(self, lazy, box):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            box: Keys that one load takes from a page.
        """
        self.lazy, self.box, self.schedule = lazy, box, self.schedule_type(2)

    @property
    def group(self):
        """CTAs that a product is of."""
        return tcgen05.CtaGroup.TWO if self.pair else tcgen05.CtaGroup.ONE

    def storage_of(self, dtype):
        """Shared memory: barriers, the address of tensor memory, queries, and the ring of slabs."""
        memory, align = cute.struct.MemRange, cute.struct.Align
        fields = {
            **{name: memory[cutlass.Int64, count] for name, (count, _) in self.barriers().items()},
            "columns": memory[Int32, 1],
            **self.fields(dtype),
            "q": align[memory[dtype, self.slabs * self.rows * SLAB], 1024],
            "keys": align[memory[dtype, self.slots * KEYS * SLAB], 1024],
        }
        return cute.struct(type("Storage", (), {"__annotations__": fields}))

    def barriers(self):
        """How many barriers there are of each name, and how many arrive at each."""
        return {
            "q_full": (1, 1),
            "q_free": (1, 1),
            "full": (self.slots, 1),
            "free": (self.slots, 1),
        }

    def fields(self, dtype):
        """What else shared memory holds: nothing."""
        return {}

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
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
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
        self.storage = self.storage_of(dtype)
        load = cpasync.CopyBulkTensorTileG2SOp(self.group)
        slab = cute.slice_(slab_layout(dtype, self.rows, 1), (None, None, 0))
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (self.rows, SLAB))
            for x in (q, qpe)
        ]
        box = box_layout(dtype, self.box)
        load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(load, as_pages(x), box, (self.box, SLAB)) for x in (z, kpe)
        ]
        self.attention(
            (*load_q, *load_qpe),
            (*load_z, *load_kpe),
            (table, lengths, cuts),
            (partial, partial_lse),
            (as_token_rows(o), lse, lse_unit, lse_empty),
            masked,
            scale_log2,
        ).launch(
            **self.schedule.launch(q, cuts), block=(32 * WARPS, 1, 1), stream=stream,
            min_blocks_per_mp=1,
        )  # fmt: skip

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def attention(
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
        place = storage.columns.data_ptr()
        self.init_barriers(storage, warp_index)
        if warp_index == MULTIPLIER:
            cute.arch.alloc_tmem(ALL_COLUMNS, place, is_two_cta=self.pair)
            cute.arch.relinquish_tmem_alloc_permit(is_two_cta=self.pair)
        self.meet()
        base = cute.arch.retrieve_tmem_ptr(Float32, 16, place)
        work = self.schedule.work(where, outputs[1], masked)
        if warp_index == LOADER:
            self.load(storage, q_loads, kv_loads, work)
        elif warp_index == MULTIPLIER:
            self.multiply(storage, base, work)
        else:
            self.attend(storage, base, work, scale_log2, outputs, slots)
        self.meet()
        if warp_index == MULTIPLIER:
            cute.arch.dealloc_tmem(base, ALL_COLUMNS, is_two_cta=self.pair)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for name, (count, arrivals) in self.barriers().items():
                    for i in range_constexpr(count):
                        cute.arch.mbarrier_init(getattr(storage, name).data_ptr() + i, arrivals)
        cute.arch.mbarrier_init_fence()

    @cute.jit
    def meet(self):
        """Wait for all threads of the CTAs that multiply as one."""
        before_sync()
        if const_expr(self.pair):
            cluster_sync()
        else:
            cute.arch.sync_threads()
        after_sync()

    def commit(self, barrier):
        """Arrive at a barrier, of both CTAs of a pair, when all products up to here are done."""
        with cute.arch.elect_one():
            tcgen05.commit(barrier, 3 if self.pair else None, self.group)

    # ---- loads -----------------------------------------------------------------------------
    @cute.jit
    def look_up(self, loads, entries, sequence, length, tile):
        """Find the pages of a tile."""
        loads.look_up(entries, sequence, length, tile)

    @cute.jit
    def load_slab(self, storage, loads, slab: cutlass.Constexpr, entries, tile, length, number):
        """A slab of a tile into the next slot of the ring, once that is free."""
        slot = number % self.slots
        barrier = storage.full.data_ptr() + slot
        cute.arch.mbarrier_wait(storage.free.data_ptr() + slot, (number // self.slots & 1) ^ 1)
        self.expect(barrier, SLAB_BYTES)
        loads.issue(slab, entries, tile, length, slot, barrier)

    @cute.jit
    def expect(self, barrier, count: cutlass.Constexpr):
        """So many bytes per CTA; those of a pair are counted by the barrier of its first one."""
        if const_expr(self.pair):
            if self.schedule.rank() == 0:
                with cute.arch.elect_one():
                    cute.arch.mbarrier_arrive_and_expect_tx(barrier, 2 * count)
        else:
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(barrier, count)

    @cute.jit
    def load_queries(self, storage, q_tensors, block, sequence, parity):
        """This CTA's rows of a sequence, once those before are read no more."""
        full = storage.q_full.data_ptr()
        cute.arch.mbarrier_wait(storage.q_free.data_ptr(), parity)
        self.expect(full, self.slabs * self.rows * SLAB * 2)
        slabs = shared(storage.q, slab_layout(self.dtype, self.rows, self.slabs))
        for slab in range_constexpr(self.slabs):
            rope = slab == self.slabs - 1
            atom, matrix = q_tensors[2:] if rope else q_tensors[:2]
            at = (block, 0 if rope else slab, sequence)
            to, start = cpasync.tma_partition(
                atom, 0, cute.make_layout(1),
                cute.group_modes(slabs[None, None, slab], 0, 2),
                cute.group_modes(cute.local_tile(matrix, (self.rows, SLAB), at), 0, 2),
            )  # fmt: skip
            cute.copy(atom, start, to, tma_bar_ptr=full)

    @cute.jit
    def drain(self, storage, loaded, taken):
        """Wait for the last arrivals of products: a CTA that has ended has no barriers."""
        for i in range_constexpr(self.slots):
            number = loaded + i
            cute.arch.mbarrier_wait(
                storage.free.data_ptr() + number % self.slots, (number // self.slots & 1) ^ 1
            )
        cute.arch.mbarrier_wait(storage.q_free.data_ptr(), (taken & 1) ^ 1)
