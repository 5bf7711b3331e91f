"""A warp-specialized ring in the CuTe DSL: one warpgroup loads tiles by TMA, one copies them out.

Tiles are [64, 512] bf16 under the widest swizzle, as a latent cache has them.
"""

from __future__ import annotations

from typing import Any

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.memory import SmemAllocator

from mla_var3.languages.cute.kernel import CuteKernel
from mla_var3.runtime import Tiling
from mla_var3.workloads import Cost

ROWS, WIDTH, GROUP = 64, 512, 128


class Ring:
    """The kernel for a number of stages.

    Args:
        stages: Tiles that the ring holds.
    """

    def __init__(self, stages: int) -> None:
        self.stages = stages

    @cute.jit
    def __call__(self, z: cute.Tensor, o: cute.Tensor, stream: cuda.CUstream):
        """Launch one block."""
        atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, z.element_type)
        ring = cute.tile_to_shape(atom, (ROWS, WIDTH, self.stages), order=(0, 1, 2))
        load, coords = cpasync.make_tiled_tma_atom(
            cpasync.CopyBulkTensorTileG2SOp(), z, cute.slice_(ring, (None, None, 0)), (ROWS, WIDTH)
        )
        self.kernel(load, coords, o, ring).launch(
            grid=(1, 1, 1), block=(2 * GROUP, 1, 1), stream=stream
        )

    @cute.kernel
    def kernel(
        self, load: cute.CopyAtom, coords: cute.Tensor, o: cute.Tensor, ring: cute.ComposedLayout
    ):
        """Copy o.shape[0] rows, tile after tile."""
        thread = cute.arch.thread_idx()[0]
        warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        memory = SmemAllocator()
        full = memory.allocate_array(cutlass.Int64, self.stages)
        free = memory.allocate_array(cutlass.Int64, self.stages)
        smem = memory.allocate_tensor(
            o.element_type, ring.outer, byte_alignment=1024, swizzle=ring.inner
        )
        if thread == 0:
            for stage in range_constexpr(self.stages):
                cute.arch.mbarrier_init(full + stage, 1)
                cute.arch.mbarrier_init(free + stage, GROUP)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()
        tiles = o.shape[0] // ROWS
        if warp < GROUP // 32:
            cute.arch.setmaxregister_decrease(40)
            if warp == 0:
                boxes = cute.local_tile(coords, (ROWS, WIDTH), (None, 0))
                dst, src = cpasync.tma_partition(
                    load,
                    0,
                    cute.make_layout(1),
                    cute.group_modes(smem, 0, 2),
                    cute.group_modes(boxes, 0, 2),
                )
                for j in cutlass.range(tiles, unroll=1):
                    stage, turn = j % self.stages, j // self.stages
                    cute.arch.mbarrier_wait(free + stage, turn & 1 ^ 1)
                    with cute.arch.elect_one():
                        cute.arch.mbarrier_arrive_and_expect_tx(full + stage, ROWS * WIDTH * 2)
                    cute.copy(load, src[None, j], dst[None, stage], tma_bar_ptr=full + stage)
        else:
            cute.arch.setmaxregister_increase(232)
            for j in cutlass.range(tiles, unroll=1):
                stage, turn = j % self.stages, j // self.stages
                cute.arch.mbarrier_wait(full + stage, turn & 1)
                for i in cutlass.range(ROWS * WIDTH // GROUP, unroll=1):
                    at = i * GROUP + thread - GROUP
                    o[j * ROWS + at // WIDTH, at % WIDTH] = smem[at // WIDTH, at % WIDTH, stage]
                cute.arch.mbarrier_arrive(free + stage)


def kernel(stages: int) -> CuteKernel:
    """The ring, bound to tensors of 1024 rows.

    Args:
        stages: Tiles that it holds.
    """
    z, o = (torch.empty(1024, WIDTH, dtype=torch.bfloat16, device="meta") for _ in range(2))

    def host(_: Any) -> tuple[Any, tuple[Any, ...]]:
        return Ring(stages), (z, o)

    return CuteKernel(
        Ring.kernel,
        host,
        input_tensors={"z": z},
        output_tensors={"o": o},
        tiling=Tiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
