"""A TMA load whose box reaches past the matrix: how many rows come as zeros? Emulated."""

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import torch
from cutlass.cute.nvgpu import cpasync
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import SmemAllocator

from mla_var3.emulator import emulate

ROWS, SIDE = 100, 64
BOX_BYTES = SIDE * SIDE * 2


@cute.kernel
def kernel(load: cute.CopyAtom, a: cute.Tensor, store: cute.CopyAtom, c: cute.Tensor):
    memory = SmemAllocator()
    barrier = memory.allocate_array(cutlass.Int64, 1)
    tile = memory.allocate_tensor(
        cutlass.Float16, cute.make_layout((SIDE, SIDE), stride=(SIDE, 1)), byte_alignment=128
    )
    with cute.arch.elect_one():
        cute.arch.mbarrier_init(barrier, 1)
    cute.arch.mbarrier_init_fence()
    cute.arch.sync_threads()
    shared, boxes = parts(load, tile, a)
    with cute.arch.elect_one():
        # The whole box counts, also the part of it that lies outside.
        cute.arch.mbarrier_arrive_and_expect_tx(barrier, BOX_BYTES)
    cute.copy(load, boxes[None, 1, 0], shared, tma_bar_ptr=barrier)
    cute.arch.mbarrier_wait(barrier, 0)
    shared, boxes = parts(store, tile, c)
    cute.copy(store, shared, boxes[None, 0, 0])
    cute.arch.cp_async_bulk_commit_group()
    cute.arch.cp_async_bulk_wait_group(0)


def parts(atom, tile, matrix):
    boxes = cute.local_tile(matrix, (SIDE, SIDE), (None, None))
    grouped = cute.group_modes(tile, 0, 2), cute.group_modes(boxes, 0, 2)
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), *grouped)


@cute.jit
def host(a: cute.Tensor, c: cute.Tensor, stream: cuda.CUstream):
    box = cute.make_layout((SIDE, SIDE), stride=(SIDE, 1))
    load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
    from_a = cpasync.make_tiled_tma_atom(load, a, box, (SIDE, SIDE))
    to_c = cpasync.make_tiled_tma_atom(store, c, box, (SIDE, SIDE))
    kernel(*from_a, *to_c).launch(grid=[1, 1, 1], block=[32, 1, 1], stream=stream)


a = torch.ones(ROWS, SIDE, dtype=torch.float16)
c = torch.full((SIDE, SIDE), 7, dtype=torch.float16)
with emulate(arch="sm_90a") as run:
    tensors = [from_dlpack(x, assumed_align=16) for x in (a, c)]
    cute.compile(host, *tensors, cuda.CUstream(0))(*tensors, cuda.CUstream(0))
assert not run.diagnostics, run.diagnostics
print(int((c == 0).all(dim=1).sum()))
