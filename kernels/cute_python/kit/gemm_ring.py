"""GEMM mainloop as a multistage pipeline: TMA loads run ahead of wgmma by a ring of stages."""

from __future__ import annotations

from typing import Any, ClassVar

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.kernel.cute_python.kit.gemm_tiles import (
    ELEMENT_BYTES,
    GROUP_M,
    MMA_STEPS,
    SLAB,
    SLABS_IN_FLIGHT,
    TILE_K,
    TILE_N,
    shared_tiles,
    tiled_mma,
    tma_atom,
)

#: Named barrier of the first warpgroup that multiplies (0 is the CTA's own); then the others'.
EPILOGUE = 1


class RingGemm:
    """Host half, and the steps of both sides of the ring; the element type is that of a.

    A version adds its kernel, ``gemm``, and says by ``launch_options`` where it runs.

    Args:
        stages: Steps in shared memory.
    """

    #: Warpgroups that multiply, below each other, and CTAs that share a stage.
    groups: ClassVar[int] = 1
    cluster: ClassVar[int] = 1

    def __init__(self, stages: int):
        self.stages = stages

    @classmethod
    def tile_m(cls) -> int:
        """Rows of C of a CTA."""
        return cls.groups * GROUP_M

    @classmethod
    def step_bytes(cls) -> int:
        """What a step brings to a CTA."""
        return (cls.tile_m() + TILE_N) * TILE_K * ELEMENT_BYTES

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
        """Launch c [m,n] = a [m,k] @ b [n,k]^T."""
        dtype = self.dtype = a.element_type
        rows, slabs = self.tile_m(), self.groups * SLABS_IN_FLIGHT

        @cute.struct
        class Storage:
            full: cute.struct.MemRange[cutlass.Int64, self.stages]
            free: cute.struct.MemRange[cutlass.Int64, self.stages]
            a: cute.struct.Align[cute.struct.MemRange[dtype, self.stages * rows * TILE_K], 1024]
            b: cute.struct.Align[cute.struct.MemRange[dtype, self.stages * TILE_N * TILE_K], 1024]
            c: cute.struct.Align[cute.struct.MemRange[dtype, slabs * SLAB * SLAB], 1024]

        self.storage = Storage
        load_a, load_b = self.loads(a, b)
        store_c = tma_atom(cpasync.CopyBulkTensorTileS2GOp(), c, SLAB)
        self.gemm(*load_a, *load_b, *store_c).launch(stream=stream, **self.launch_options(c))

    def loads(self, a, b):
        """TMA loads of both operands."""
        load = cpasync.CopyBulkTensorTileG2SOp()
        return tma_atom(load, a, self.tile_m()), tma_atom(load, b, TILE_N)

    def launch_options(self, c) -> dict[str, Any]:
        """A CTA per tile of C."""
        grid = (cute.ceil_div(c.shape[1], TILE_N), cute.ceil_div(c.shape[0], self.tile_m()), 1)
        return {"grid": grid, "block": (self.groups * 128, 1, 1)}

    # ---- both sides of the ring ------------------------------------------------------------
    @cute.jit
    def init_barriers(self, storage, warp_index):
        """A stage is full when its bytes are there, and free when all of its readers say so."""
        readers = self.cluster * self.groups * 4  # warps
        if warp_index == 0:
            with cute.arch.elect_one():
                for stage in range_constexpr(self.stages):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + stage, 1)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + stage, readers)
        cute.arch.mbarrier_init_fence()
        self.meet()

    @cute.jit
    def meet(self):
        """All that use the barriers know that they are there."""
        cute.arch.sync_threads()

    @cute.jit
    def load(self, from_a, from_b, row, column, step, stage, full):
        """One warp asks for the tiles of a step; ``full`` counts their bytes."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, self.step_bytes())
        load_a, s_a, g_a = from_a
        load_b, s_b, g_b = from_b
        cute.copy(load_a, g_a[None, row, step], s_a[None, stage], tma_bar_ptr=full)
        cute.copy(load_b, g_b[None, column, step], s_b[None, stage], tma_bar_ptr=full)

    def tiles(self, storage):
        """Operands in shared memory: [tile_m, TILE_K, stages] and [TILE_N, TILE_K, stages]."""
        return (
            shared_tiles(storage.a, self.dtype, self.tile_m(), self.stages),
            shared_tiles(storage.b, self.dtype, TILE_N, self.stages),
        )

    def registers(self, storage, group):
        """Views of both operands, and accumulators, of a warpgroup."""
        s_a, s_b = self.tiles(storage)
        mma = tiled_mma(self.dtype, self.groups).get_slice(group * 128)
        operands = (
            mma.make_fragment_A(mma.partition_A(s_a)),
            mma.make_fragment_B(mma.partition_B(s_b)),
        )
        acc = mma.make_fragment_C(mma.partition_shape_C((self.tile_m(), TILE_N)))
        return operands, acc

    @cute.jit
    def multiply(self, acc, operands, full, step):
        """Issue C += A B^T of one step once its tiles have landed, as one commit group."""
        stage = step % self.stages
        cute.arch.mbarrier_wait(full + stage, step // self.stages & 1)
        mma = tiled_mma(self.dtype, self.groups)
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
