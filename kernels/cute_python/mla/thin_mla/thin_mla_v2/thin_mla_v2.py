"""Thin MLA v2: one ring of key slabs feeds both warpgroups, in the order of the keys.

While a warpgroup of v1 works on a tile, the slot of that tile takes nothing in. Here all slabs of
a CTA pass through one ring of more places than two tiles have, so that its loads follow the memory
in order and run ahead of both warpgroups, which take turns at the tiles. One warp loads the keys;
another the queries, which no longer come first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import Int32, Uint32, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.slabs import (
    ROPE_SLAB,
    SLAB,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    as_vector,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.thin_l2 import ThinL2Kernel
from mla_var3.kernel.cute_python.kit.thin_plan import ThinClusterPlan, ThinClusterTiling
from mla_var3.kernel.cute_python.kit.thin_slabs import BLOCKS, CONSUMERS, GROUPS, ORDER
from mla_var3.kernel.cute_python.kit.thin_steps import transposed_layout
from mla_var3.runtime import KernelPlan
from mla_var3.runtime.cute_kernel import require_shared_memory
from mla_var3.workloads import option

#: Warps behind the consumers: one loads the keys, one the queries.
KEY_WARP, QUERY_WARP = CONSUMERS // 32, CONSUMERS // 32 + 1
#: Shared memory of a block; of that, bytes of barriers, maxima and sums, rounded up.
SHARED_BYTES, SMALL_BYTES = 227 * 1024, 3 * 1024
#: Fewest places of the ring: a tile per warpgroup, which the outputs that meet at the end fit too.
LEAST_RING = GROUPS * SLABS


def bytes_beside_ring(columns: int) -> int:
    """Shared memory of the queries, of a tile of weights per warpgroup, and of what is small."""
    return (SLABS + GROUPS) * columns * SLAB * 2 + SMALL_BYTES


def longest_ring(columns: int) -> int:
    """Slabs that fit beside the rest."""
    return (SHARED_BYTES - bytes_beside_ring(columns)) // SLAB_BYTES


@dataclass(frozen=True, kw_only=True)
class Tiling(ThinClusterTiling):
    """How many rows a CTA holds, how many CTAs share their keys, and how far loads run ahead."""

    ring: int = option(22, "slabs of 64 keys by 64 in shared memory", minimum=LEAST_RING)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_shared_memory(
            SHARED_BYTES, ring=self.ring * SLAB_BYTES, rest=bytes_beside_ring(self.columns)
        )


class Kernel(ThinL2Kernel):
    """One ring for both warpgroups; parts meet through L2 as in v1."""

    def __init__(self, causal: bool, tiling: Tiling):
        super().__init__(causal, tiling, ring=tiling.ring)

    def turn(self, tile, j):
        """Place of the ``j``-th slab of the CTA's ``tile``-th tile, and the parity of its lap."""
        slab = Uint32(tile * SLABS + j)
        # One register of the warp instead of one per thread: with 32 columns the others spill.
        place = cute.arch.make_warp_uniform(Int32(slab % self.ring))
        return place, Int32(slab // self.ring & 1)

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def load(self, storage, q_tensors, kv_tensors, work, warp_index):
        """A warp for the keys, and one for the queries."""
        if warp_index == KEY_WARP:
            self.load_keys(storage, kv_tensors, work)
        elif warp_index == QUERY_WARP:
            self.load_row_tile(storage, q_tensors, work)
        self.cluster_sync()  # the two of the epilogue
        self.cluster_sync()

    @cute.jit
    def load_keys(self, storage, kv_tensors, work):
        """One warp: the CTA's tiles, slab by slab, each as soon as its place is free."""
        _, batch, _, first, count = self.place(work)
        loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, self.ring))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        for i in cutlass.range(count, unroll=1):
            for j in range_constexpr(SLABS):
                place, lap = self.turn(i, j)
                cute.arch.mbarrier_wait(free + place, lap ^ 1)
                self.load_slab(loads, first + i, batch, ORDER[j], place, full + place)

    @cute.jit
    def load_row_tile(self, storage, q_tensors, work):
        """One warp: the CTA's row tile."""
        block, batch, _, _, _ = self.place(work)
        self.load_queries(storage, q_tensors, block, batch)

    # ---- consumer warpgroups ---------------------------------------------------------------
    def tiles(self, storage, group):
        """Barriers and shared memory of the whole ring."""
        layout = transposed_layout(self.dtype, self.ring)
        return (
            storage.full.data_ptr(),
            storage.free.data_ptr(),
            shared_slabs(storage.kv, self.dtype, self.ring),
            storage.kv.get_tensor(layout.outer, swizzle=layout.inner),
        )

    @cute.jit
    def consume(self, storage, work, scratch, scale_log2, o, lse, group: cutlass.Constexpr):
        """One warpgroup, from the queries to its share of the output."""
        wg = self.warpgroup(storage, scale_log2, group)
        block, batch, part, first, count = self.place(work)
        self.start(wg, work, block * self.columns)
        cute.arch.mbarrier_wait(storage.q_full.data_ptr(), 0)
        for i in cutlass.range(group, count, GROUPS, unroll=1):
            self.scores(wg, i)
            self.softmax(wg, first + i, group)
            self.accumulate(wg, i)
        place = (block, batch, part)
        self.epilogue(wg, storage, scratch, o, as_vector(lse), place, group)

    @cute.jit
    def scores(self, wg, tile):
        """S = K Q^T, slab by slab as each one lands."""
        mma = self.score_mma()
        for j in range_constexpr(SLABS):
            place, lap = self.turn(tile, j)
            cute.arch.mbarrier_wait(wg.full + place, lap)
            warpgroup.fence()
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, j != 0 or step != 0)
                k, q = wg.k[None, None, step, place], wg.q[None, None, step, ORDER[j]]
                cute.gemm(mma, wg.score, k, q, wg.score)
            warpgroup.commit_group()
        warpgroup.wait_group(0)
        self.release(wg, tile, ROPE_SLAB)

    @cute.jit
    def accumulate(self, wg, tile):
        """O += V^T P^T, a block of 64 dimensions per slab, each given back when it is done."""
        mma = self.output_mma()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for slab in range_constexpr(BLOCKS):
            place, _ = self.turn(tile, ORDER.index(slab))
            for step in range_constexpr(4):
                v, p = wg.v[None, None, step, place], wg.p[None, None, step]
                cute.gemm(mma, wg.out[slab], v, p, wg.out[slab])
            warpgroup.commit_group()
        for slab in range_constexpr(BLOCKS):
            warpgroup.wait_group(BLOCKS - 1 - slab)
            self.release(wg, tile, slab)

    @cute.jit
    def release(self, wg, tile, slab: cutlass.Constexpr):
        place, _ = self.turn(tile, ORDER.index(slab))
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free + place)


@dataclass(frozen=True, kw_only=True)
class Plan(ThinClusterPlan):
    """Problem and launch; the ring is as long as there is room for."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    checked = (2, None, 3, None, 2, 1)  # one of them with many laps

    def tiling_of(self, columns: int, splits: int) -> Tiling:
        tiling = super().tiling_of(columns, splits)
        return dataclasses.replace(tiling, ring=longest_ring(columns))
