"""Tiles that the last block of a persistent grid takes: the DSL's own scheduler, emulated."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils as utils
import torch
from cutlass.cute.runtime import from_dlpack

from mla_var3.emulator import emulate

TILES, BLOCKS = (5, 4, 1), 6


@cute.kernel
def walk(params: utils.PersistentTileSchedulerParams, taken: cute.Tensor):
    scheduler = utils.StaticPersistentTileScheduler.create(
        params, cute.arch.block_idx(), cute.arch.grid_dim()
    )
    work, count = scheduler.initial_work_tile_info(), cutlass.Int32(0)
    while work.is_valid_tile:
        count += 1
        scheduler.advance_to_next_work()
        work = scheduler.get_current_work()
    if cute.arch.thread_idx()[0] == 0:
        taken[cute.arch.block_idx()[2]] = count


@cute.jit
def host(taken: cute.Tensor, stream: cuda.CUstream):
    params = utils.PersistentTileSchedulerParams(TILES, (1, 1, 1))
    grid = utils.StaticPersistentTileScheduler.get_grid_shape(params, BLOCKS)
    walk(params, taken).launch(grid=grid, block=[32, 1, 1], stream=stream)


taken = torch.zeros(BLOCKS, dtype=torch.int32)
with emulate(arch="sm_90a") as run:
    stream = cuda.CUstream(0)
    cute.compile(host, from_dlpack(taken), stream)(from_dlpack(taken), stream)
assert not run.diagnostics
print(taken.tolist())
print(int(taken[-1]))
