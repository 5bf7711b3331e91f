"""Hopper GEMM v3: CTAs stay and take tile after tile, in an order that L2 likes.

The producer loads the next tile's first steps while the consumers store the last one's C. Tiles are
handed out in groups of ``group_m`` rows, so that those in flight share rows of A and of B.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.gemm.hopper_gemm.common import (
    ELEMENT_BYTES,
    GROUP_M,
    MMA_STEPS,
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    TILE_N,
    TmaGemmPlan,
    require_stages,
    shared_tiles,
    store_tile,
    tiled_mma,
    tma_atom,
    tma_parts,
)
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

GROUPS = 2
TILE_M = GROUPS * GROUP_M
CONSUMERS = GROUPS * 128
THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
SLABS = GROUPS * SLABS_IN_FLIGHT
STEP_BYTES = (TILE_M + TILE_N) * TILE_K * ELEMENT_BYTES
#: Named barrier of the first consumer warpgroup (0 is the CTA's own); the next is the other's.
EPILOGUE = 1
WARPS = CONSUMERS // 32


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """How far loads run ahead, how many blocks stay, and the order of tiles."""

    stages: int = option(4, "steps of the k loop in shared memory", minimum=2)
    blocks: int | None = option(None, "blocks that stay; by default one per SM", minimum=1)
    group_m: int = option(16, "row tiles whose columns are walked through together", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_stages(self.stages, TILE_M, SLABS)


@dataclass(frozen=True, kw_only=True)
class Plan(TmaGemmPlan):
    """Problem and launch of v3."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"gemm": Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"gemm": [Tiling(group_m=rows) for rows in (4, 8, 16, 32)]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        return self.launch(
            Kernel.gemm,
            lambda x: Kernel(x.stages, x.blocks or self.target.sm_count, x.group_m),
            inputs,
        )


def tiles_of(c):
    """Tiles of C below and beside each other."""
    return cute.ceil_div(c.shape[0], TILE_M), cute.ceil_div(c.shape[1], TILE_N)


class Kernel:
    """Host and device half; the element type is that of a."""

    def __init__(self, stages: int, blocks: int, group_m: int):
        self.stages = stages
        self.blocks = blocks
        self.group_m = group_m

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        """Launch c [m,n] = a [m,k] @ b [n,k]^T."""
        dtype = self.dtype = a.element_type

        @cute.struct
        class Storage:
            full: cute.struct.MemRange[cutlass.Int64, self.stages]
            free: cute.struct.MemRange[cutlass.Int64, self.stages]
            a: cute.struct.Align[cute.struct.MemRange[dtype, self.stages * TILE_M * TILE_K], 1024]
            b: cute.struct.Align[cute.struct.MemRange[dtype, self.stages * TILE_N * TILE_K], 1024]
            c: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * SLAB * SLAB], 1024]

        self.storage = Storage
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        load_a, load_b = tma_atom(load, a, TILE_M), tma_atom(load, b, TILE_N)
        store_c = tma_atom(store, c, SLAB)
        self.gemm(*load_a, *load_b, *store_c).launch(
            grid=(cutlass.min(self.blocks, tiles_of(c)[0] * tiles_of(c)[1]), 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
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
        """Grid (blocks)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)

        if warp_index >= WARPS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp_index == WARPS:
                self.produce(storage, (load_a, a), (load_b, b), tiles_of(c))
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            steps = cute.ceil_div(a.shape[1], TILE_K)
            self.consume(storage, steps, (store_c, c), warp_index // 4)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for stage in range_constexpr(self.stages):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + stage, 1)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + stage, WARPS)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    @cute.jit
    def produce(self, storage, from_a, from_b, tiles):
        """One warp: the operands of every step of every tile, as stages come free."""
        s_a = shared_tiles(storage.a, self.dtype, TILE_M, self.stages)  # [TILE_M, TILE_K, stages]
        s_b = shared_tiles(storage.b, self.dtype, TILE_N, self.stages)  # [TILE_N, TILE_K, stages]
        steps = cute.ceil_div(from_a[1].shape[1], TILE_K)
        from_a = (from_a[0], *tma_parts(from_a[0], s_a, from_a[1]))
        from_b = (from_b[0], *tma_parts(from_b[0], s_b, from_b[1]))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        done = Int32(0)  # steps of the tiles before
        first, blocks = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        for tile in cutlass.range(first, tiles[0] * tiles[1], blocks, unroll=1):
            row, column = self.place(tile, tiles)
            for step in cutlass.range(steps, unroll=1):
                stage = (done + step) % self.stages
                cute.arch.mbarrier_wait(free + stage, (done + step) // self.stages & 1 ^ 1)
                self.load(from_a, from_b, row, column, step, stage, full + stage)
            done = done + steps

    @cute.jit
    def consume(self, storage, steps, to_c, group):
        """One warpgroup: 64x256 of C, tile after tile."""
        s_a = shared_tiles(storage.a, self.dtype, TILE_M, self.stages)  # [TILE_M, TILE_K, stages]
        s_b = shared_tiles(storage.b, self.dtype, TILE_N, self.stages)  # [TILE_N, TILE_K, stages]
        mma = tiled_mma(self.dtype, GROUPS).get_slice(group * 128)
        operands = (
            mma.make_fragment_A(mma.partition_A(s_a)),
            mma.make_fragment_B(mma.partition_B(s_b)),
        )
        acc = mma.make_fragment_C(mma.partition_shape_C((TILE_M, TILE_N)))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        s_c = shared_tiles(storage.c, self.dtype, SLAB, SLABS)
        tiles = tiles_of(to_c[1])
        done = Int32(0)  # steps of the tiles before
        first, blocks = cute.arch.block_idx()[0], cute.arch.grid_dim()[0]
        for tile in cutlass.range(first, tiles[0] * tiles[1], blocks, unroll=1):
            row, column = self.place(tile, tiles)
            acc.fill(0.0)
            self.multiply(acc, operands, full, done)
            for step in cutlass.range(done + 1, done + steps, unroll=1):
                self.multiply(acc, operands, full, step)
                warpgroup.wait_group(1)  # the step before has read its tiles
                self.release(free, step - 1)
            warpgroup.wait_group(0)
            done = done + steps
            self.release(free, done - 1)
            store_tile(acc, s_c, *to_c, row * GROUPS + group, column, group, EPILOGUE + group)
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def place(self, tile, tiles):
        """Row and column of a tile: down the rows of a group, then to its next column."""
        rows, columns = tiles
        top = tile // (self.group_m * columns) * self.group_m
        height = cutlass.min(self.group_m, rows - top)
        within = tile - top * columns
        return top + within % height, within // height

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
    def multiply(self, acc, operands, full, step):
        """Issue C += A B^T of one step once its tiles have landed, as one commit group."""
        stage = step % self.stages
        cute.arch.mbarrier_wait(full + stage, step // self.stages & 1)
        mma = tiled_mma(self.dtype, GROUPS)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        a, b = operands
        warpgroup.fence()
        for k in range_constexpr(MMA_STEPS):
            cute.gemm(mma, acc, a[None, None, k, stage], b[None, None, k, stage], acc)
        warpgroup.commit_group()

    @cute.jit
    def release(self, free, step):
        """A warp has read the tiles of a step."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free + step % self.stages)
