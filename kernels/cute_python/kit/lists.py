"""Kernels of latent attention over lists of tokens in the forms that servers keep caches in.

A list is that of two caches, one after the other, or what a page table says. Tokens are rows of 656
bytes (512 values in e4m3, four scales in fp32, 64 rotary values) or of 584 bytes (448 values in
e4m3, 64 rotary values, and a scale in ue8m0 per 64 values, which lies past the rows of its page).
What producers do with them is in ``list_window``; rows of 16-bit values are those of ``prefill``.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass.cute as cute
from cutlass import Float16, Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.handovers import CONSUMERS
from mla_var3.kernel.cute_python.kit.merged import MergedKernel
from mla_var3.kernel.cute_python.kit.pages import as_token_rows
from mla_var3.kernel.cute_python.kit.rings import latent_storage
from mla_var3.kernel.cute_python.kit.slabs import SLAB, slab_layout
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS


class ListKernel(MergedKernel):
    """Host and device half; each list of tokens counts as a sequence, with one query."""

    def __init__(self, lazy, second=False, table=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            second: Whether lists of a second cache follow.
            table: Whether what stands for lists is a page table.
        """
        super().__init__(lazy)
        self.second, self.table = second, table

    @property
    def element(self):
        """Type of what is multiplied."""
        return Float16

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        cache: cute.Tensor,
        other: cute.Tensor,
        indices: cute.Tensor,
        other_indices: cute.Tensor,
        firsts: cute.Tensor,
        lengths: cute.Tensor,
        cuts: cute.Tensor,
        places: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        lse_unit: Float32,
        lse_empty: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [n,1,h,512], qpe [n,1,h,64], caches in bytes [pages,page,width].

        ``lengths`` [n] are of both lists of a query token, the first filled up to whole tiles;
        ``firsts`` [n] are of the first list alone.
        """
        self.dtype, self.out_dtype = self.element, o.element_type
        self.storage = latent_storage(
            self.element, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(q.element_type, 1), (None, None, 0))
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (indices, lengths, cuts), (places, signals, o)
        caches = (cache, other, other_indices, firsts)
        self.list_attention((*load_q, *load_qpe), caches, where, slots, outputs, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a list
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def list_attention(
        self,
        q_loads: tuple,
        caches: tuple,
        where: tuple,
        slots: tuple,
        outputs: tuple,
        scale_log2: Float32,
    ):
        """Grid as the schedule says."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.fetch_descriptors(warp_index, (*q_loads[::2], outputs[0]))
        self.init_barriers(storage, warp_index)
        work = self.schedule.work(where, outputs[2], Int32(0))
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(self.registers[1])
            self.gather_all(storage, q_loads, caches, work, warp_index)
        else:
            cute.arch.setmaxregister_increase(self.registers[0])
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, slots, side)
            self.consumed(storage, work, outputs, slots)
        self.end()
