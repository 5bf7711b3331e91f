"""Hopper GEMM v1: a ring of stages, so that TMA runs ahead of the tensor cores.

The warpgroup still does everything itself. It asks for the tiles of the next steps before it needs
them, and keeps one step's MMA in flight while it waits for the one before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

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


class Tiling(StagesTiling):
    """How far loads run ahead."""


class Kernel(RingGemm):
    """One warpgroup that loads and multiplies."""

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

        operands, acc = self.registers(storage, 0)
        acc.fill(0.0)
        s_a, s_b = self.tiles(storage)
        from_a = (load_a, *tma_parts(load_a, s_a, a))
        from_b = (load_b, *tma_parts(load_b, s_b, b))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        steps = cute.ceil_div(a.shape[1], TILE_K)
        if warp_index == 0:
            for step in cutlass.range(cutlass.min(self.stages, steps), unroll=1):
                self.load(from_a, from_b, row, column, step, step, full + step)
        self.multiply(acc, operands, full, 0)
        for step in cutlass.range(1, steps, unroll=1):
            self.multiply(acc, operands, full, step)
            warpgroup.wait_group(1)  # the step before has read its tiles
            past = step - 1
            self.release(free, past)
            if (warp_index == 0) & (past + self.stages < steps):
                stage = past % self.stages
                cute.arch.mbarrier_wait(free + stage, past // self.stages & 1)
                self.load(from_a, from_b, row, column, past + self.stages, stage, full + stage)
        warpgroup.wait_group(0)
        s_c = shared_tiles(storage.c, self.dtype, SLAB, SLABS_IN_FLIGHT)
        store_tile(acc, s_c, store_c, c, row, column, 0, EPILOGUE)
        cute.arch.cp_async_bulk_wait_group(0, read=True)


@dataclass(frozen=True, kw_only=True)
class Plan(StagesPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"gemm": Tiling}
