"""Kernel of a shared prefix whose last steps add the latent output times Wv: no combine kernel.

What is left after the keys of the prefix is a product of the same shape as the output: rows of the
latent part are weights, Wv of the head is values. So it takes the last places of the rings, and no
partial result leaves a block. With one tile of rows per head each warpgroup has a head of its own,
so that all heads are under way beside the own tokens.
"""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.kernel.cute_python.kit.combine import LATENT, WIDTH, project_mma
from mla_var3.kernel.cute_python.kit.dependent import Dependent
from mla_var3.kernel.cute_python.kit.head_items import GROUPS
from mla_var3.kernel.cute_python.kit.head_kernel import THREADS
from mla_var3.kernel.cute_python.kit.head_plan import LN_2
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    SLAB,
    by_group,
    key_parts,
    row_parts,
    shared_slabs,
    sums_by_group,
    tma_keys,
    tma_rows,
)
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel

#: How far below a running maximum (log2) the own tokens' LSE still is a base: what the prefix gives
#: is multiplied by at most 2**FAR, and fits fp32 where keys times their values are below 2**64; own
#: tokens that count for less count for 2**-FAR of it, next to nothing.
FAR = 64.0


class Merging(RopeKernel):
    """The kernel of the prefix, whose last steps are the latent rows times Wv.

    With ``shape.apart`` each warpgroup has a head of its own, of which it reads every other place
    of the rings; else both have rows of one head, and read each place together.
    """

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        key: cute.Tensor,
        value: cute.Tensor,
        kpe: cute.Tensor,
        o_own: cute.Tensor,
        lse_own: cute.Tensor,
        wv: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch.

        Args:
            q: [b,h,s,128].
            qpe: [b,h,s,64].
            key: [groups,n,h,128].
            value: [groups,n,h,128].
            kpe: [groups,n,64], of all heads.
            o_own: Latent output of the own tokens [b,h,s,512].
            lse_own: Its LSE [b,h,s].
            wv: [h,512,128].
            o: Output [b,h,s,128].
            lse: LSE [b,h,s].
            scale_log2: Softmax scale over ln 2.
            stream: Where to launch.
        """
        groups, heads = kpe.shape[0], wv.shape[0]
        views = self.views(q, qpe, key, value, kpe, o, lse)
        q_loads, k_loads, v_load, o_store, lse_out = self.prepare(*views)
        load = cpasync.CopyBulkTensorTileG2SOp()
        own_load = tma_rows(load, by_group(o_own, groups), self.shape.tile_s)
        by_head = cute.make_layout(
            (LATENT, WIDTH, heads, 1), stride=(WIDTH, 1, LATENT * WIDTH, LATENT * WIDTH)
        )
        wv_load = tma_keys(cute.make_tensor(wv.iterator, by_head), self.shape.keys)
        sums = (sums_by_group(lse_own, groups), lse_out)
        count = self.items(self.work(o_store[1], v_load[1]))[1]
        blocks = count if const_expr(self.blocks is None) else cutlass.min(count, self.blocks)
        operands = (q_loads, (k_loads, own_load), (v_load, wv_load), o_store, sums)
        Dependent(self.merging(*operands, scale_log2)).launch(
            grid=(blocks, 1, 1), block=(THREADS, 1, 1), stream=stream, min_blocks_per_mp=1
        )

    # ---- items -----------------------------------------------------------------------------
    def work(self, o, value):
        """Extents: one output, and of heads as many as blocks have."""
        work = super().work(o, value)._replace(splits=Int32(1))
        return work._replace(heads=work.heads // GROUPS) if self.shape.apart else work

    def head_of(self, item, number):
        """A warpgroup's head."""
        return item.head * GROUPS + number if self.shape.apart else item.head

    def steps(self, item):
        """Places that the keys of an item take."""
        return item.tiles * self.shape.parts

    def own_steps(self):
        """Steps of a warpgroup over the latent rows."""
        return LATENT // self.shape.keys

    def places(self, item):
        """Places that all of an item takes."""
        return self.steps(item) + self.own_steps() * self.shape.parts

    def tile_of(self, wg, item, steps, i):
        return item.first + steps - 1 - i

    def output_of(self, work, item, number):
        return item.group

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def merging(
        self,
        q_loads: tuple,
        k_loads: tuple,
        v_loads: tuple,
        o_store: tuple,
        sums: tuple,
        scale_log2: Float32,
    ):
        """Grid (blocks)."""
        self.run(q_loads, k_loads, v_loads, o_store, sums, scale_log2)

    @cute.jit
    def load(self, storage, operands, warp_index):
        """A warp for each operand."""
        q_loads, (k_loads, own_load), (v_load, wv_load), o_store, _ = operands
        work = self.work(o_store[1], v_load[1])
        if warp_index == 0:
            self.produce_queries(storage, work, q_loads)
        if warp_index == 1:
            self.produce_keys(storage, work, k_loads, own_load)
        if warp_index == 2:
            self.produce_values(storage, work, v_load, wv_load)

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce_queries(self, storage, work, q_loads):
        """One warp: both warpgroups' rows of every item."""
        slabs, count = self.shape.q_slabs, self.items(work)[1]
        s_q = shared_slabs(storage.q, self.dtype, ROWS, GROUPS * slabs)
        full, free = storage.q_full.data_ptr(), storage.q_free.data_ptr()
        sources = self.sources(q_loads, row_parts, s_q, self.shape.tile_s)
        taken = Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            for number in range_constexpr(GROUPS):
                rows, head = self.rows_of(work, item, number), self.head_of(item, number)
                cute.arch.mbarrier_wait(free + number, (taken & 1) ^ 1)
                self.expect(full + number, ROWS * self.shape.d_qk)
                for slab in range_constexpr(slabs):
                    atom, shared, source, inner = sources[slab]
                    cute.copy(
                        atom,
                        source[(None, *rows, inner, head, item.group)],
                        shared[None, number * slabs + slab],
                        tma_bar_ptr=full + number,
                    )
            taken = taken + 1

    @cute.jit
    def produce_keys(self, storage, work, k_loads, own_load):
        """One warp: keys of every item, then its latent rows."""
        shape, count = self.shape, self.items(work)[1]
        s_k = shared_slabs(storage.k, self.dtype, shape.keys, shape.stages * shape.q_slabs)
        sources = self.sources(k_loads, key_parts, s_k, shape.keys)
        s_rows = shared_slabs(storage.k, self.dtype, ROWS, shape.stages * self.row_slabs())
        rows_to, rows_from = row_parts(own_load[0], s_rows, own_load[1], shape.tile_s)
        full, free = storage.k_full.data_ptr(), storage.k_free.data_ptr()
        readers, slabs = GROUPS // shape.parts, shape.keys // SLAB  # of a place, of a reader
        done = Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            self.produce_tiles(item, full, free, sources, done)
            done = done + self.steps(item)
            cute.arch.griddepcontrol_wait()  # the own tokens' launch has ended
            for j in cutlass.range(self.own_steps() * shape.parts, unroll=1):
                place = self.claim(full, free, done + j, readers * slabs * ROWS * SLAB)
                for reader in range_constexpr(readers):
                    number = j % GROUPS if const_expr(shape.apart) else reader
                    rows, head = self.rows_of(work, item, number), self.head_of(item, number)
                    for slab in range_constexpr(slabs):
                        inner = j // shape.parts * slabs + slab
                        cute.copy(
                            own_load[0],
                            rows_from[(None, *rows, inner, head, item.group)],
                            rows_to[None, place * self.row_slabs() + reader * slabs + slab],
                            tma_bar_ptr=full + place,
                        )
            done = done + self.own_steps() * shape.parts

    @cute.jit
    def produce_values(self, storage, work, v_load, wv_load):
        """One warp: values of every item, then Wv of its head."""
        shape, count = self.shape, self.items(work)[1]
        s_v = shared_slabs(storage.v, self.dtype, shape.keys, shape.stages * shape.v_slabs)
        sources = self.sources([v_load], key_parts, s_v, shape.keys)
        wv_to, wv_from = key_parts(wv_load[0], s_v, wv_load[1], shape.keys)
        full, free = storage.v_full.data_ptr(), storage.v_free.data_ptr()
        done = Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            self.produce_tiles(item, full, free, sources, done)
            done = done + self.steps(item)
            for j in cutlass.range(self.own_steps() * shape.parts, unroll=1):
                place = self.claim(full, free, done + j, shape.keys * shape.d_v)
                head = self.head_of(item, j % GROUPS)
                for slab in range_constexpr(shape.v_slabs):
                    cute.copy(
                        wv_load[0],
                        wv_from[None, j // shape.parts, slab, head, 0],
                        wv_to[None, place * shape.v_slabs + slab],
                        tma_bar_ptr=full + place,
                    )
            done = done + self.own_steps() * shape.parts

    @cute.jit
    def produce_tiles(self, item, full, free, sources, done):
        """``sources`` of an item's key tiles, from the last tile back."""
        shape, slabs = self.shape, len(sources)
        for i in cutlass.range(self.steps(item), unroll=1):
            place = self.claim(full, free, done + i, shape.keys * SLAB * slabs)
            tile = item.first + item.tiles - 1 - i // shape.parts
            head = self.head_of(item, i % GROUPS)
            for slab in range_constexpr(slabs):
                atom, shared, source, inner = sources[slab]
                cute.copy(
                    atom,
                    source[None, tile, inner, head, item.group],
                    shared[None, place * slabs + slab],
                    tma_bar_ptr=full + place,
                )

    @cute.jit
    def claim(self, full, free, done, elements):
        """Place ``done`` of a ring once it is free; ``elements`` are on their way to it."""
        place = done % self.shape.stages
        cute.arch.mbarrier_wait(free + place, (done // self.shape.stages & 1) ^ 1)
        self.expect(full + place, elements)
        return place

    def row_slabs(self):
        """Slabs of 64 rows that a place of the keys' ring holds."""
        return self.shape.keys * self.shape.q_slabs // ROWS

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, operands, scale_log2, number):
        """One warpgroup: 64 rows of every item."""
        _, _, (v_load, _), o_store, (lse_own, lse) = operands
        work = self.work(o_store[1], v_load[1])
        count = self.items(work)[1]
        wg = self.warpgroup(storage, scale_log2, number)
        taken, done = Int32(0), Int32(0)  # items and places in the rings before this item
        self.enter(wg)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            item = item._replace(head=self.head_of(item, number))
            self.reset(wg, work, item)
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + number, taken & 1)
            self.attend(wg, storage, item, item.tiles, done)
            self.merge(wg, storage, work, item, lse_own, done + self.steps(item))
            self.finish(wg, storage, work, item, o_store, lse)
            taken, done = taken + 1, done + self.places(item)
        self.leave(wg)

    @cute.jit
    def merge(self, wg, storage, work, item, lse_own, done):
        """Add the own tokens: a step for each place of the rings from ``done`` on.

        Sums and output go to a base at which the latent rows, which are normalized, count once. One
        that is further than FAR below the maximum would overflow; there they are next to nothing.
        """
        cute.arch.griddepcontrol_wait()
        own = self.own_sums(wg, work, item, lse_own)
        for r in range_constexpr(2):
            base = cute.arch.fmax(own[r], wg.row_max[r] - FAR)
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - base, fastmath=True)
            theirs = cute.math.exp2(own[r] - base, fastmath=True)
            wg.row_max[r] = base
            # The sum of a row is over its four threads, of which one has the own tokens'.
            more = theirs if wg.lane % 4 == 0 else Float32(0.0)
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + more
        self.rescale(wg)
        for j in range_constexpr(self.own_steps()):
            self.project(wg, storage, self.place_of(wg, done, j))
            if const_expr(j > 0):
                warpgroup.wait_group(1)
                self.release_both(storage, self.place_of(wg, done, j - 1))
        warpgroup.wait_group(0)
        self.release_both(storage, self.place_of(wg, done, self.own_steps() - 1))

    @cute.jit
    def own_sums(self, wg, work, item, lse_own):
        """LSE of the own tokens of the thread's two rows, in units of log2."""
        tile_s, tile_m = self.rows_of(work, item, wg.number)
        width = self.shape.tile_s
        own = cute.make_rmem_tensor(2, Float32)
        for r in range_constexpr(2):
            row = wg.row + 8 * r
            # A row past the edge reads the last one, and is not stored.
            query = cutlass.min(tile_s * width + row % width, work.queries - 1)
            member = tile_m * (ROWS // width) + row // width
            member = cutlass.min(member, work.members - 1)
            own[r] = lse_own[query, member, item.head, item.group] * (1.0 / LN_2)
        return own

    @cute.jit
    def project(self, wg, storage, place):
        """Issue a step of latent rows times Wv, as one commit group."""
        shape, slabs = self.shape, self.shape.keys // SLAB
        stage = cute.arch.make_warp_uniform(place % shape.stages)
        phase = place // shape.stages & 1
        mma = project_mma(self.dtype)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        mine = mma.get_slice(cute.arch.thread_idx()[0] % 128)
        s_rows = shared_slabs(storage.k, self.dtype, ROWS, shape.stages * self.row_slabs())
        rows = mine.make_fragment_A(mine.partition_A(s_rows))
        first = stage * self.row_slabs()
        if const_expr(not shape.apart):
            first = first + wg.number * slabs
        cute.arch.mbarrier_wait(storage.k_full.data_ptr() + stage, phase)
        cute.arch.mbarrier_wait(storage.v_full.data_ptr() + stage, phase)
        warpgroup.fence()
        for step in range_constexpr(shape.keys // 16):
            slab, inner = step // (SLAB // 16), step % (SLAB // 16)
            a, b = rows[None, None, inner, first + slab], wg.v[None, None, step, stage]
            cute.gemm(mma, wg.out, a, b, wg.out)
        warpgroup.commit_group()

    @cute.jit
    def release_both(self, storage, place):
        """A warp has read latent rows and Wv."""
        self.release(storage.k_free, place)
        self.release(storage.v_free, place)
