"""Which thread and register hold an element of a wgmma accumulator: asked, and by the rule."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack
from cutlass.utils import hopper_helpers

ROWS, COLUMNS = 64, 256
K_MAJOR = cute.nvgpu.OperandMajorMode.K


@cute.kernel
def ask(thread_of: cute.Tensor, register_of: cute.Tensor, mma: cute.TiledMma):
    """Each thread writes its number and its registers where it holds elements."""
    thread = cute.arch.thread_idx()[0]
    where = cute.make_identity_tensor((ROWS, COLUMNS))  # elements are their own coordinates
    mine = mma.get_slice(thread).partition_C(where)  # those that this thread holds
    for i in cutlass.range_constexpr(cute.size(mine)):
        thread_of[mine[i]] = thread
        register_of[mine[i]] = i


@cute.jit
def launch(thread_of: cute.Tensor, register_of: cute.Tensor):
    """Ask a product of one warpgroup."""
    kinds = (cutlass.Float16, cutlass.Float16, K_MAJOR, K_MAJOR, cutlass.Float32)
    mma = hopper_helpers.make_trivial_tiled_mma(*kinds, (1, 1, 1), (ROWS, COLUMNS))
    ask(thread_of, register_of, mma).launch(grid=(1, 1, 1), block=(128, 1, 1))


def holder(row, column):
    """Thread and register of an element."""
    warp, lane = row // 16, 4 * (row % 8) + column % 8 // 2
    register = 4 * (column // 8) + 2 * (row % 16 // 8) + column % 2
    return 32 * warp + lane, register


thread_of, register_of = (torch.zeros(ROWS, COLUMNS, dtype=torch.int32).cuda() for _ in range(2))
launch(from_dlpack(thread_of), from_dlpack(register_of))
asked = torch.stack((thread_of, register_of), -1).cpu().tolist()
assert asked == [[list(holder(r, c)) for c in range(COLUMNS)] for r in range(ROWS)]
print("(9, 37): thread {}, register {}".format(*asked[9][37]))
