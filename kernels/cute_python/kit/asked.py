"""Keys of a pair of row tiles that L2 is asked for before their places in shared memory are free.

Two CTAs of a cluster load half of each tile for each other, so that a place has to come free in
both. What waits for DRAM then has less time to arrive than where a CTA loads for itself. A row of
the cache is fetched in nine loads of 128 bytes a row; asked for as a whole it comes at once.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, Int64, const_expr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.odd_tiles import PAIR
from mla_var3.kernel.cute_python.kit.pages import as_token_rows, page_loads
from mla_var3.kernel.cute_python.kit.rings import latent_storage
from mla_var3.kernel.cute_python.kit.short import ShortKernel, SteadyLoads
from mla_var3.kernel.cute_python.kit.slabs import EVICT_FIRST, SLAB, slab_layout
from mla_var3.kernel.cute_python.kit.threes import ThreesKernel
from mla_var3.kernel.cute_python.kit.warpgroups import THREADS

#: Bytes between rows up to which the rows of a box are asked for together, with what lies between.
NEAR = 2048


class AskedLoads(SteadyLoads):
    """Loads whose rows L2 may be asked for ahead."""

    def __init__(self, tensors, *rest):
        """``tensors`` end with latents [pages, page, 512], and whether they are asked for."""
        super().__init__(tensors[:4], *rest)
        self.rows, self.asked = tensors[4], tensors[5]

    @cute.jit
    def ask(self, entries, length, tile):
        """Ask L2 for the latents of this CTA's boxes of a tile: each lane for one box.

        Rotary parts come with them where they lie between.
        """
        key, lane = self.first_key(tile, 0), cute.arch.lane_idx()
        if (self.asked > 0) & (lane < self.pieces) & (key < length):
            at = cute.domain_offset((entries[1], entries[3], 0), self.rows).iterator.toint()
            width = self.rows.element_type.width // 8
            size = (self.box - 1) * Int32(self.rows.stride[1]) * width
            cute.arch.inline_ptx(
                "cp.async.bulk.prefetch.L2.global.L2::cache_hint [{$r0}], {$r1}, {$r2};",
                read_only_args=[at, size + self.rows.shape[2] * width, Int64(EVICT_FIRST)],
            )


class AskedKernel(ThreesKernel):
    """Host and device half for one box of keys and number of CTAs that share keys."""

    def __init__(self, lazy, share, box, keep=False):
        """Settings.

        Args:
            lazy: log2 by which a row's maximum may lag behind.
            share: CTAs of a cluster, which hold neighboring row tiles and share their keys.
            box: Keys that one load takes.
            keep: Whether L2 keeps keys as long as anything else.
        """
        super().__init__(lazy, share, box, keep)
        if share == PAIR:
            self.loads = AskedLoads

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
        self.dtype = self.out_dtype = q.element_type
        self.storage = latent_storage(
            q.element_type, self.queries.barriers, self.rings, self.epilogue.fields()
        )
        slab = cute.slice_(slab_layout(self.dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_token_rows(x), slab, (SLAB, SLAB))
            for x in (q, qpe)
        ]
        load_z, load_kpe = [page_loads(x, self.box, self.share) for x in (z, kpe)]
        store = cpasync.CopyBulkTensorTileS2GOp()
        store_o = cpasync.make_tiled_tma_atom(store, as_token_rows(o), slab, (SLAB, SLAB))
        loads = (*load_q, *load_qpe), (*load_z, *load_kpe)
        if const_expr(self.share == PAIR):
            # With more row tiles other clusters read the same keys, and one tile has L2 to itself.
            alone = self.schedule.groups(q.shape[1] * q.shape[2]) == 1
            near = Int64(z.stride[1]) * (z.element_type.width // 8) <= NEAR
            loads = loads[0], (*loads[1], z, Int32(alone & near))
        outputs = (*store_o, lse, lse_unit, lse_empty)
        where, slots = (table, lengths, cuts), (places, signals, o)
        self.paged_attention(*loads, where, slots, outputs, masked, scale_log2).launch(
            **self.schedule.launch(q, cuts),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            cooperative=True,  # all CTAs run at once, as they must where three share a sequence
        )

    # ---- producer warps --------------------------------------------------------------------
    def fetch_descriptors(self, warp_index, loads):
        """Those of TMA; what else producers are handed has none."""
        loads = [x for x in loads if not isinstance(x, cute.Tensor)]
        LatentKernel.fetch_descriptors(self, warp_index, loads)

    @cute.jit
    def load_next(
        self,
        storage,
        kv_loads,
        entries,
        sequence,
        length,
        tile,
        phase,
        group: cutlass.Constexpr,
    ):
        """Load a tile, find the places of the one after it, and ask L2 for its keys."""
        ShortKernel.load_next(
            self, storage, kv_loads, entries, sequence, length, tile, phase, group
        )
        if const_expr(self.share == PAIR and group % 2 == 1):
            kv_loads.ask(entries, length, tile + 2)
