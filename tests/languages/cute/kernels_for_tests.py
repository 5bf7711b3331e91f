"""Two small complete kernels of ours: a vector scale, and a tiled Hopper matrix product."""

from __future__ import annotations

import os
import time

import cuda.bindings.driver as cuda
import cutlass
import cutlass.utils as utils
import cutlass.utils.hopper_helpers as sm90
import torch
from cutlass import BFloat16, Float32, Int64, const_expr, cute, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.languages.cute.signature import Dynamic


class Scale:
    """y = factor * x, one element per thread."""

    def __init__(self, threads: int) -> None:
        self.threads = threads

    @cute.jit
    def __call__(
        self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream
    ) -> None:
        blocks = cute.ceil_div(cute.size(x), self.threads)
        self.kernel(x, y, factor).launch(
            grid=(blocks, 1, 1), block=(self.threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32) -> None:
        i = cute.arch.block_idx()[0] * self.threads + cute.arch.thread_idx()[0]
        if i < cute.size(x):
            y[i] = x[i] * factor


class Early:
    """y = 2 * x, launched before the launch before it has ended; waits for that if it ``waits``."""

    def __init__(self, waits: bool) -> None:
        self.waits = waits

    @cute.jit
    def __call__(self, x: cute.Tensor, y: cute.Tensor, stream: cuda.CUstream) -> None:
        self.kernel(x, y).launch(
            grid=(1, 1, 1), block=(cute.size(x), 1, 1), stream=stream, use_pdl=True
        )

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor) -> None:
        i = cute.arch.thread_idx()[0]
        if const_expr(self.waits):
            cute.arch.griddepcontrol_wait()
        y[i] = x[i] * 2.0


class Gemm:
    """c [M, N] = a [M, K] b [N, K]^T: one warpgroup, a ring of ``stages`` loads by TMA.

    M is a multiple of 64, N of ``tile_n``, K of 64.
    """

    tile_m, tile_k, threads = 64, 64, 128

    def __init__(self, tile_n: int, stages: int) -> None:
        self.tile_n, self.stages = tile_n, stages

    @cute.jit
    def __call__(
        self, a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream
    ) -> None:
        k_major = warpgroup.OperandMajorMode.K
        mma = sm90.make_trivial_tiled_mma(
            BFloat16, BFloat16, k_major, k_major, Float32, (1, 1, 1), (64, self.tile_n)
        )
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, BFloat16)
        shape_a, shape_b = (self.tile_m, self.tile_k), (self.tile_n, self.tile_k)
        layout_a = cute.tile_to_shape(atom, (*shape_a, self.stages), order=(0, 1, 2))
        layout_b = cute.tile_to_shape(atom, (*shape_b, self.stages), order=(0, 1, 2))
        load = cpasync.CopyBulkTensorTileG2SOp()
        one_a = cute.slice_(layout_a, (None, None, 0))
        one_b = cute.slice_(layout_b, (None, None, 0))
        tma_a, whole_a = cpasync.make_tiled_tma_atom(load, a, one_a, shape_a)
        tma_b, whole_b = cpasync.make_tiled_tma_atom(load, b, one_b, shape_b)

        @cute.struct
        class Storage:
            full: cute.struct.MemRange[Int64, self.stages]
            a: cute.struct.Align[cute.struct.MemRange[BFloat16, cute.cosize(layout_a)], 1024]
            b: cute.struct.Align[cute.struct.MemRange[BFloat16, cute.cosize(layout_b)], 1024]

        self.storage = Storage
        grid = (cute.size(c, mode=[0]) // self.tile_m, cute.size(c, mode=[1]) // self.tile_n, 1)
        self.kernel(mma, tma_a, whole_a, tma_b, whole_b, c, layout_a, layout_b).launch(
            grid=grid, block=(self.threads, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        tma_a: cute.CopyAtom,
        a: cute.Tensor,
        tma_b: cute.CopyAtom,
        b: cute.Tensor,
        c: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        m, n, _ = cute.arch.block_idx()
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = utils.SmemAllocator().allocate(self.storage)
        full = storage.full.data_ptr()
        s_a = storage.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
        s_b = storage.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
        if warp == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(self.stages):
                    cute.arch.mbarrier_init(full + i, 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

        tiles_a = cute.local_tile(a, (self.tile_m, self.tile_k), (m, None))
        tiles_b = cute.local_tile(b, (self.tile_n, self.tile_k), (n, None))
        one = cute.make_layout(1)
        to_a, from_a = cpasync.tma_partition(
            tma_a, 0, one, cute.group_modes(s_a, 0, 2), cute.group_modes(tiles_a, 0, 2)
        )
        to_b, from_b = cpasync.tma_partition(
            tma_b, 0, one, cute.group_modes(s_b, 0, 2), cute.group_modes(tiles_b, 0, 2)
        )
        mine = mma.get_slice(thread)
        part_a = mine.make_fragment_A(mine.partition_A(s_a))
        part_b = mine.make_fragment_B(mine.partition_B(s_b))
        tile_c = cute.local_tile(c, (self.tile_m, self.tile_n), (m, n))
        part_c = mine.partition_C(tile_c)
        sums = mine.make_fragment_C(mine.partition_shape_C((self.tile_m, self.tile_n)))
        sums.fill(0.0)
        steps = cute.size(tiles_a, mode=[2])
        if warp == 0:
            for k in cutlass.range(cutlass.min(self.stages, steps)):
                self.load(tma_a, tma_b, from_a, to_a, from_b, to_b, full, k)
        for k in cutlass.range(steps):
            stage = k % self.stages
            cute.arch.mbarrier_wait(full + stage, (k // self.stages) & 1)
            warpgroup.fence()
            for j in range_constexpr(self.tile_k // 16):
                mma.set(warpgroup.Field.ACCUMULATE, True)
                at = (None, None, j, stage)
                cute.gemm(mma, sums, part_a[at], part_b[at], sums)
            warpgroup.commit_group()
            warpgroup.wait_group(0)
            cute.arch.sync_threads()
            if warp == 0 and k + self.stages < steps:
                self.load(tma_a, tma_b, from_a, to_a, from_b, to_b, full, k + self.stages)
        for i in range_constexpr(cute.size(sums)):
            part_c[i] = sums[i]

    @cute.jit
    def load(self, tma_a, tma_b, from_a, to_a, from_b, to_b, full, k) -> None:
        """Start the loads of tile ``k`` of both operands, into stage ``k % stages``."""
        stage = k % self.stages
        with cute.arch.elect_one():
            bytes_per_stage = (self.tile_m + self.tile_n) * self.tile_k * 2
            cute.arch.mbarrier_arrive_and_expect_tx(full + stage, bytes_per_stage)
        cute.copy(tma_a, from_a[None, k], to_a[None, stage], tma_bar_ptr=full + stage)
        cute.copy(tma_b, from_b[None, k], to_b[None, stage], tma_bar_ptr=full + stage)


class Serialized(Gemm):
    """The same, with the sums touched between multiplications: ptxas must wait for each."""

    @cute.kernel
    def kernel(
        self,
        mma: cute.TiledMma,
        tma_a: cute.CopyAtom,
        a: cute.Tensor,
        tma_b: cute.CopyAtom,
        b: cute.Tensor,
        c: cute.Tensor,
        layout_a: cute.ComposedLayout,
        layout_b: cute.ComposedLayout,
    ) -> None:
        thread, _, _ = cute.arch.thread_idx()
        storage = utils.SmemAllocator().allocate(self.storage)
        mine = mma.get_slice(thread)
        s_a = storage.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
        s_b = storage.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
        part_a = mine.make_fragment_A(mine.partition_A(s_a))
        part_b = mine.make_fragment_B(mine.partition_B(s_b))
        part_c = mine.partition_C(cute.local_tile(c, (self.tile_m, self.tile_n), (0, 0)))
        sums = mine.make_fragment_C(mine.partition_shape_C((self.tile_m, self.tile_n)))
        sums.fill(0.0)
        warpgroup.fence()
        for j in range_constexpr(self.tile_k // 16):
            mma.set(warpgroup.Field.ACCUMULATE, True)
            cute.gemm(mma, sums, part_a[None, None, j, 0], part_b[None, None, j, 0], sums)
            for i in range_constexpr(cute.size(sums)):
                sums[i] = sums[i] * Float32(1.5)
        warpgroup.commit_group()
        warpgroup.wait_group(0)
        for i in range_constexpr(cute.size(sums)):
            part_c[i] = sums[i]


class Refused(Scale):
    """Reads a variable that exists in one branch only."""

    @cute.kernel
    def kernel(self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32) -> None:
        i = cute.arch.block_idx()[0]
        if i < 3:
            found = x[i]
        y[0] = found * factor


class Crashes(Scale):
    """Ends the compiler's process, as a fault inside it would."""

    @cute.jit
    def __call__(
        self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream
    ) -> None:
        crash()


def crash() -> None:
    """End this process at once."""
    os._exit(3)


class Starves(Scale):
    """Runs out of memory while it is traced."""

    @cute.jit
    def __call__(
        self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream
    ) -> None:
        starve()


def starve() -> None:
    """Do as Python does where no memory is left."""
    raise MemoryError


class Endless(Scale):
    """Never ends to be traced."""

    @cute.jit
    def __call__(
        self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream
    ) -> None:
        wait()


def wait() -> None:
    """Do nothing for longer than any test."""
    time.sleep(600)


class Twice(Scale):
    """Launches two device kernels."""

    @cute.jit
    def __call__(
        self, x: cute.Tensor, y: cute.Tensor, factor: cutlass.Float32, stream: cuda.CUstream
    ) -> None:
        for _ in range_constexpr(1):
            self.kernel(x, y, factor).launch(grid=(1, 1, 1), block=(32, 1, 1), stream=stream)
        self.other(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1), stream=stream)

    @cute.kernel
    def other(self, x: cute.Tensor, y: cute.Tensor) -> None:
        y[0] = x[0]


def _empty(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(*shape, dtype=dtype, device="meta")


def gemm_arguments() -> tuple[Dynamic, Dynamic, Dynamic]:
    """a, b and c of :class:`Gemm`, for any multiples of 64."""
    a, b = _empty(256, 512), _empty(128, 512)
    c = _empty(256, 128, dtype=torch.float32)
    return tuple(Dynamic(tensor, (0, 1), 64) for tensor in (a, b, c))


def scale_arguments(n: int = 100) -> tuple[torch.Tensor, torch.Tensor, float]:
    """x, y and factor of :class:`Scale`."""
    return _empty(n, dtype=torch.float32), _empty(n, dtype=torch.float32), 2.0
