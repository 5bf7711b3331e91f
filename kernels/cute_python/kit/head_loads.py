"""Producer warps of per-head attention: one each for Q, K and V, by TMA through rings of stages."""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Int32, range_constexpr

from mla_var3.kernel.cute_python.kit.head_items import GROUPS, HeadItems
from mla_var3.kernel.cute_python.kit.head_plan import ELEMENT_BYTES
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    SLAB,
    key_parts,
    row_parts,
    shared_slabs,
)

#: Warps of the consumers.
WARPS = GROUPS * 4


class HeadLoads(HeadItems):
    """The producer warps."""

    @cute.jit
    def load(self, storage, operands, warp_index):
        """A warp for each operand."""
        q_loads, k_loads, v_load, o_store, _ = operands
        work = self.work(o_store[1], v_load[1])
        if warp_index == 0:
            self.produce_queries(storage, work, q_loads)
        if warp_index == 1:
            self.produce_keys(storage, work, k_loads)
        if warp_index == 2:
            self.produce_values(storage, work, v_load)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(GROUPS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                    cute.arch.mbarrier_init(storage.q_free.data_ptr() + i, 1)
                for stage in range_constexpr(self.shape.stages):
                    for full in (storage.k_full, storage.v_full):
                        cute.arch.mbarrier_init(full.data_ptr() + stage, 1)
                    for free in (storage.k_free, storage.v_free):
                        cute.arch.mbarrier_init(free.data_ptr() + stage, WARPS // self.shape.parts)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

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
                tile_s, tile_m = self.rows_of(work, item, number)
                cute.arch.mbarrier_wait(free + number, (taken & 1) ^ 1)
                self.expect(full + number, ROWS * self.shape.d_qk)
                for slab in range_constexpr(slabs):
                    atom, shared, source, inner = sources[slab]
                    cute.copy(
                        atom,
                        source[None, tile_s, tile_m, inner, item.head, item.group],
                        shared[None, number * slabs + slab],
                        tma_bar_ptr=full + number,
                    )
            taken = taken + 1

    @cute.jit
    def produce_keys(self, storage, work, k_loads):
        """One warp: tiles of keys, as places in their ring come free."""
        shape = self.shape
        s_k = shared_slabs(storage.k, self.dtype, shape.keys, shape.stages * shape.q_slabs)
        sources = self.sources(k_loads, key_parts, s_k, shape.keys)
        self.produce(work, storage.k_full.data_ptr(), storage.k_free.data_ptr(), sources)

    @cute.jit
    def produce_values(self, storage, work, v_load):
        """One warp: tiles of values, likewise."""
        shape = self.shape
        s_v = shared_slabs(storage.v, self.dtype, shape.keys, shape.stages * shape.v_slabs)
        sources = self.sources([v_load], key_parts, s_v, shape.keys)
        self.produce(work, storage.v_full.data_ptr(), storage.v_free.data_ptr(), sources)

    def sources(self, loads, parts, shared, tile):
        """For each slab of a row: atom, shared boxes, boxes in memory, and slab of its part."""
        found = []
        for atom, x in loads:
            boxes, source = parts(atom, shared, x, tile)
            width = x.shape[-3]
            found += [(atom, boxes, source, inner) for inner in range(width // SLAB)]
        return found

    @cute.jit
    def produce(self, work, full, free, sources):
        """One warp: ``sources`` of every key tile of every item, from the last tile back."""
        shape, count = self.shape, self.items(work)[1]
        slabs, done = len(sources), Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            steps = self.steps(item)
            for i in cutlass.range(steps, unroll=1):
                place, tile = (done + i) % shape.stages, item.first + steps - 1 - i
                cute.arch.mbarrier_wait(free + place, ((done + i) // shape.stages & 1) ^ 1)
                self.expect(full + place, shape.keys * SLAB * slabs)
                for slab in range_constexpr(slabs):
                    atom, shared, source, inner = sources[slab]
                    cute.copy(
                        atom,
                        source[None, tile, inner, item.head, item.group],
                        shared[None, place * slabs + slab],
                        tma_bar_ptr=full + place,
                    )
            done = done + steps

    @cute.jit
    def expect(self, barrier, elements):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, elements * ELEMENT_BYTES)
