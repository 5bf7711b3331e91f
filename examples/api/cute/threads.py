"""Warps, votes, shuffles and registers in the CuTe DSL; runs without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack


# %% cute.arch.lane_idx cute.arch.warp_idx cute.arch.make_warp_uniform
# %% cute.arch.shuffle_sync_bfly cute.arch.shuffle_sync_down cute.arch.shuffle_sync_up
# %% cute.arch.shuffle_sync cute.arch.vote_any_sync cute.arch.vote_ballot_sync
# %% cute.arch.warp_reduction_sum cute.arch.warp_reduction_max cute.arch.popc cute.arch.sync_warp
@cute.kernel
def across(x: cute.Tensor, out: cute.Tensor):
    lane, warp = cute.arch.lane_idx(), cute.arch.make_warp_uniform(cute.arch.warp_idx())
    value = x[warp, lane]
    total = value
    for power in cutlass.range_constexpr(5):  # A sum over the warp, in five steps.
        total += cute.arch.shuffle_sync_bfly(total, offset=1 << power)
    first = cute.arch.shuffle_sync(value, offset=0)
    above = cute.arch.shuffle_sync_down(value, offset=1)
    below = cute.arch.shuffle_sync_up(value, offset=1, mask_and_clamp=0)
    out[warp, 0, lane] = total - cute.arch.warp_reduction_sum(value)
    out[warp, 1, lane] = cute.arch.warp_reduction_max(value)
    out[warp, 2, lane] = first + above - below
    negative = cute.arch.vote_ballot_sync(value < 0.0)
    if cute.arch.vote_any_sync(value < 0.0):
        cute.arch.sync_warp()
    out[warp, 3, lane] = cutlass.Float32(cute.arch.popc(negative))


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    across(x, out).launch(grid=(1, 1, 1), block=(64, 1, 1))


x = torch.randint(-9, 9, (2, 32)).float().cuda()
out = torch.empty(2, 4, 32).cuda()
launch(from_dlpack(x), from_dlpack(out))
assert (out[:, 0] == 0).all()
assert torch.equal(out[:, 1, 0], x.max(1).values)
assert torch.equal(out[:, 2, 1:-1], x[:, :1] + x[:, 2:] - x[:, :-2])
assert torch.equal(out[:, 3, 0], (x < 0).sum(1).float())
