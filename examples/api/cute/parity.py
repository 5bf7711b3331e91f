"""A ring of two stages by hand: which parity each side waits for, and when it flips; no GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

STAGES, WARP = 2, 32


# %% cute.arch.mbarrier_wait cute.arch.mbarrier_arrive cute.arch.mbarrier_init
@cute.struct
class Storage:
    """Shared memory: two barriers per stage, and the stages."""

    full: cute.struct.MemRange[cutlass.Int64, STAGES]
    free: cute.struct.MemRange[cutlass.Int64, STAGES]
    ring: cute.struct.MemRange[cutlass.Float32, STAGES * WARP]


@cute.kernel
def doubled(x: cute.Tensor, out: cute.Tensor):
    """Warp 0 fills stages, warp 1 empties them."""
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    storage = SmemAllocator().allocate(Storage)
    full, free = storage.full.data_ptr(), storage.free.data_ptr()
    ring = storage.ring.get_tensor(cute.make_layout((WARP, STAGES)))
    if warp == 0 and lane == 0:
        for i in cutlass.range_constexpr(STAGES):
            cute.arch.mbarrier_init(full + i, WARP)  # The lanes that fill it.
            cute.arch.mbarrier_init(free + i, WARP)  # The lanes that have read it.
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    stage = cutlass.Int32(0)
    if warp == 0:
        parity = cutlass.Int32(1)  # Passes at once: nobody has filled the stage before.
        for step in cutlass.range(x.shape[0], unroll=1):
            cute.arch.mbarrier_wait(free + stage, parity)
            ring[lane, stage] = x[step, lane]
            cute.arch.mbarrier_arrive(full + stage)
            stage += 1
            if stage == STAGES:  # Once per turn of the ring, not once per step.
                stage, parity = cutlass.Int32(0), parity ^ 1
    else:
        parity = cutlass.Int32(0)  # The first phase: that stage was filled once.
        for step in cutlass.range(x.shape[0], unroll=1):
            cute.arch.mbarrier_wait(full + stage, parity)
            out[step, lane] = 2.0 * ring[lane, stage]
            cute.arch.mbarrier_arrive(free + stage)
            stage += 1
            if stage == STAGES:
                stage, parity = cutlass.Int32(0), parity ^ 1


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    doubled(x, out).launch(grid=(1, 1, 1), block=(2 * WARP, 1, 1))


x, out = torch.randn(6, WARP).cuda(), torch.zeros(6, WARP).cuda()
launch(from_dlpack(x), from_dlpack(out))
assert torch.equal(out, 2 * x)
