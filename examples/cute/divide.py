"""A work index into request, block of heads and split, by divisors of the launch; needs no GPU."""

import torch
from cutlass import Int32, cute
from cutlass.cute.runtime import from_dlpack

REQUESTS, BLOCKS, SPLITS = 4, 3, 5


@cute.kernel
def places(out: cute.Tensor, blocks: cute.FastDivmodDivisorV2, splits: cute.FastDivmodDivisorV2):
    """One block per piece of work; ``out`` gets (request, block of heads, split)."""
    work = cute.arch.block_idx()[0]
    rest, split = divmod(work, splits)
    request, block = divmod(rest, blocks)
    if cute.arch.thread_idx()[0] == 0:
        out[work, 0], out[work, 1], out[work, 2] = request, block, split


@cute.jit
def launch(out: cute.Tensor, blocks: Int32, splits: Int32):
    """Prepare both divisors once, before the launch."""
    by_blocks, by_splits = cute.FastDivmodDivisorV2(blocks), cute.FastDivmodDivisorV2(splits)
    places(out, by_blocks, by_splits).launch(grid=(out.shape[0], 1, 1), block=(32, 1, 1))


if __name__ == "__main__":
    out = torch.zeros(REQUESTS * BLOCKS * SPLITS, 3, dtype=torch.int32, device="cuda")
    launch(from_dlpack(out), BLOCKS, SPLITS)
    work = torch.arange(len(out), device="cuda")
    by_hand = (work // (BLOCKS * SPLITS), work // SPLITS % BLOCKS, work % SPLITS)
    print("right:", torch.equal(out, torch.stack(by_hand, 1).int()))
