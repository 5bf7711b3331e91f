"""Hopper GEMM, base version: one warpgroup loads, waits, multiplies, waits: no pipeline.

TMA brings a tile of A and of B to shared memory, and wgmma multiplies them from there into
registers. Nothing overlaps: tensor cores idle while a tile is on its way, and the other way round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.gemm_plan import GemmPlan
from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    ELEMENT_BYTES,
    GROUP_M,
    MMA_STEPS,
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    TILE_N,
    shared_tiles,
    store_tile,
    tiled_mma,
    tma_atom,
    tma_parts,
)
from mla_var3.runtime import Tiling
from mla_var3.runtime.cute_kernel import CuteTiling

TILE_M = GROUP_M
THREADS = 128
STEP_BYTES = (TILE_M + TILE_N) * TILE_K * ELEMENT_BYTES
#: Named barrier of the warpgroup (0 is the CTA's own).
EPILOGUE = 1


class Kernel:
    """Host and device half; the element type is that of a."""

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        """Launch c [m,n] = a [m,k] @ b [n,k]^T."""
        dtype = self.dtype = a.element_type

        @cute.struct
        class Storage:
            full: cute.struct.MemRange[cutlass.Int64, 1]
            a: cute.struct.Align[cute.struct.MemRange[dtype, TILE_M * TILE_K], 1024]
            b: cute.struct.Align[cute.struct.MemRange[dtype, TILE_N * TILE_K], 1024]
            c: cute.struct.Align[cute.struct.MemRange[dtype, SLABS_IN_FLIGHT * SLAB * SLAB], 1024]

        self.storage = Storage
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        load_a, load_b = tma_atom(load, a, TILE_M), tma_atom(load, b, TILE_N)
        store_c = tma_atom(store, c, SLAB)
        self.gemm(*load_a, *load_b, *store_c).launch(
            grid=(cute.ceil_div(c.shape[1], TILE_N), cute.ceil_div(c.shape[0], TILE_M), 1),
            block=(THREADS, 1, 1),
            stream=stream,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def gemm(
        self,
        load_a: cute.CopyAtom,
        a: cute.Tensor,
        load_b: cute.CopyAtom,
        b: cute.Tensor,
        store_c: cute.CopyAtom,
        c: cute.Tensor,
    ):
        """Grid (tiles of n, tiles of m)."""
        column, row, _ = cute.arch.block_idx()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)

        s_a = shared_tiles(storage.a, self.dtype, TILE_M, 1)  # [TILE_M, TILE_K, 1]
        s_b = shared_tiles(storage.b, self.dtype, TILE_N, 1)  # [TILE_N, TILE_K, 1]
        mma = tiled_mma(self.dtype).get_slice(0)
        operands = (
            mma.make_fragment_A(mma.partition_A(s_a)),
            mma.make_fragment_B(mma.partition_B(s_b)),
        )
        acc = mma.make_fragment_C(mma.partition_shape_C((TILE_M, TILE_N)))
        acc.fill(0.0)
        from_a = (load_a, *tma_parts(load_a, s_a, a))
        from_b = (load_b, *tma_parts(load_b, s_b, b))
        full = storage.full.data_ptr()
        for step in cutlass.range(cute.ceil_div(a.shape[1], TILE_K), unroll=1):
            if warp_index == 0:
                self.load(from_a, from_b, row, column, step, 0, full)
            cute.arch.mbarrier_wait(full, step & 1)
            self.multiply(acc, operands, 0)
            warpgroup.wait_group(0)
            cute.arch.sync_threads()  # all warps have read the tiles
        s_c = shared_tiles(storage.c, self.dtype, SLAB, SLABS_IN_FLIGHT)
        store_tile(acc, s_c, store_c, c, row, column, 0, EPILOGUE)
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(storage.full.data_ptr(), 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    @cute.jit
    def load(self, from_a, from_b, row, column, step, stage, full):
        """One warp asks for the tiles of a step; ``full`` counts their bytes."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, STEP_BYTES)
        load_a, s_a, g_a = from_a
        load_b, s_b, g_b = from_b
        cute.copy(load_a, g_a[None, row, step], s_a[None, stage], tma_bar_ptr=full)
        cute.copy(load_b, g_b[None, column, step], s_b[None, stage], tma_bar_ptr=full)

    @cute.jit
    def multiply(self, acc, operands, stage):
        """Issue C += A B^T of one step, as one commit group."""
        mma = tiled_mma(self.dtype)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        a, b = operands
        warpgroup.fence()
        for k in range_constexpr(MMA_STEPS):
            cute.gemm(mma, acc, a[None, None, k, stage], b[None, None, k, stage], acc)
        warpgroup.commit_group()


@dataclass(frozen=True, kw_only=True)
class Plan(GemmPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"gemm": CuteTiling}

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"gemm": [CuteTiling()]}

    def host(self, tiling: CuteTiling) -> Kernel:
        return Kernel()
