"""Persistent GEMM kernel: one producer warp loads, two consumer warpgroups multiply, per tile.

The producer warp runs ahead as far as the ring allows, also into the next tile, and needs few
registers; setmaxnreg hands those of its warpgroup to the two that multiply.
"""

from __future__ import annotations

from typing import Any

import cutlass
import cutlass.cute as cute
from cutlass import Int32
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.gemm_ring import EPILOGUE, RingGemm
from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    TILE_N,
    shared_tiles,
    store_tile,
    tma_parts,
)

GROUPS = 2
CONSUMERS = GROUPS * 128
THREADS = CONSUMERS + 128
WARPS = CONSUMERS // 32
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24


class PersistentGemm(RingGemm):
    """The roles of a CTA that takes tile after tile.

    Args:
        stages: Steps in shared memory.
        blocks: Persistent CTAs.
        group_m: Row tiles whose columns are walked through together.
    """

    groups = GROUPS

    def __init__(self, stages: int, blocks: int, group_m: int):
        super().__init__(stages)
        self.blocks = blocks
        self.group_m = group_m

    def launch_options(self, c) -> dict[str, Any]:
        """CTAs as asked for, and no more than there are tiles."""
        rows, columns = self.tiles_of(c)
        return {
            "grid": (cutlass.min(self.blocks, rows * columns * self.cluster), 1, 1),
            "block": (THREADS, 1, 1),
            "min_blocks_per_mp": 1,
        }

    def tiles_of(self, c):
        """Tiles of C below and beside each other, of a CTA or of a cluster."""
        rows = cute.ceil_div(c.shape[0], self.cluster * self.tile_m())
        return rows, cute.ceil_div(c.shape[1], TILE_N)

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
                self.produce(storage, (load_a, a), (load_b, b), self.tiles_of(c))
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            steps = cute.ceil_div(a.shape[1], TILE_K)
            self.consume(storage, steps, (store_c, c), warp_index // 4)
        self.leave()

    def leave(self):
        """What a CTA does last."""

    def walk(self):
        """First tile, and how many take turns."""
        return cute.arch.block_idx()[0], cute.arch.grid_dim()[0]

    def b_parts(self, load_b, s_b, b):
        """Boxes of B that a CTA loads."""
        return tma_parts(load_b, s_b, b)

    @cute.jit
    def produce(self, storage, from_a, from_b, tiles):
        """One warp: the operands of every step of every tile, as stages come free."""
        s_a, s_b = self.tiles(storage)
        steps = cute.ceil_div(from_a[1].shape[1], TILE_K)
        from_a = (from_a[0], *tma_parts(from_a[0], s_a, from_a[1]))
        from_b = (from_b[0], *self.b_parts(from_b[0], s_b, from_b[1]))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        done = Int32(0)  # steps of the tiles before
        first, blocks = self.walk()
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
        operands, acc = self.registers(storage, group)
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        s_c = shared_tiles(storage.c, self.dtype, SLAB, self.groups * SLABS_IN_FLIGHT)
        tiles = self.tiles_of(to_c[1])
        done = Int32(0)  # steps of the tiles before
        first, blocks = self.walk()
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
            store_tile(acc, s_c, *to_c, row * self.groups + group, column, group, EPILOGUE + group)
        cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def place(self, tile, tiles):
        """Row and column of a tile: down the rows of a group, then to its next column."""
        rows, columns = tiles
        top = tile // (self.group_m * columns) * self.group_m
        height = cutlass.min(self.group_m, rows - top)
        within = tile - top * columns
        return top + within % height, within // height
