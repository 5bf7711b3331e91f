"""Hopper GEMM v2: warp specialization: one warp loads, two warpgroups multiply.

The producer warp runs ahead as far as the ring allows and needs few registers; setmaxnreg hands
those of its warpgroup to the two that multiply. These share a tile of B, which halves its traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import cutlass
import cutlass.cute as cute
from cutlass.cute.nvgpu import warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.gemm_plan import StagesPlan, StagesTiling
from mla_var3.kernel.cute_python.kit.gemm_ring import EPILOGUE, RingGemm
from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    shared_tiles,
    store_tile,
    tma_parts,
)

GROUPS = 2
CONSUMERS = GROUPS * 128
THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
SLABS = GROUPS * SLABS_IN_FLIGHT
WARPS = CONSUMERS // 32


class Tiling(StagesTiling):
    """How far loads run ahead."""


class Kernel(RingGemm):
    """A producer warp, and two warpgroups below each other."""

    groups = GROUPS

    def launch_options(self, c) -> dict[str, Any]:
        own = {"block": (THREADS, 1, 1), "min_blocks_per_mp": 1}
        return RingGemm.launch_options(self, c) | own

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

        if warp_index >= WARPS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            if warp_index == WARPS:
                self.produce(storage, (load_a, a), (load_b, b), row, column)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            steps = cute.ceil_div(a.shape[1], TILE_K)
            self.consume(storage, steps, (store_c, c), row, column, warp_index // 4)

    @cute.jit
    def produce(self, storage, from_a, from_b, row, column):
        """One warp: the tiles of every step, as stages come free."""
        s_a, s_b = self.tiles(storage)
        steps = cute.ceil_div(from_a[1].shape[1], TILE_K)
        from_a = (from_a[0], *tma_parts(from_a[0], s_a, from_a[1]))
        from_b = (from_b[0], *tma_parts(from_b[0], s_b, from_b[1]))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        for step in cutlass.range(steps, unroll=1):
            stage = step % self.stages
            cute.arch.mbarrier_wait(free + stage, step // self.stages & 1 ^ 1)
            self.load(from_a, from_b, row, column, step, stage, full + stage)

    @cute.jit
    def consume(self, storage, steps, to_c, row, column, group):
        """One warpgroup: 64x256 of C."""
        operands, acc = self.registers(storage, group)
        acc.fill(0.0)
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        self.multiply(acc, operands, full, 0)
        for step in cutlass.range(1, steps, unroll=1):
            self.multiply(acc, operands, full, step)
            warpgroup.wait_group(1)  # the step before has read its tiles
            self.release(free, step - 1)
        warpgroup.wait_group(0)
        s_c = shared_tiles(storage.c, self.dtype, SLAB, SLABS)
        store_tile(acc, s_c, *to_c, row * GROUPS + group, column, group, EPILOGUE + group)
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@dataclass(frozen=True, kw_only=True)
class Plan(StagesPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"gemm": Tiling}
