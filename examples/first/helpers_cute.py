"""A CuTe kernel with helper functions and a flag that is resolved when it is compiled."""

import cutlass
import torch
from cutlass import Float32, cute
from cutlass.cute.runtime import from_dlpack

WIDTH = 32


@cute.jit  # branches and loops in a helper are the kernel's own: without it they are Python's
def visible(score: Float32, row, column, CAUSAL: cutlass.Constexpr[bool]):
    if cutlass.const_expr(CAUSAL):  # of compile time: the other side is not in the kernel
        score = -Float32.inf if column > row else score  # of run time
    return score


@cute.jit
def row_softmax(score: Float32):  # numbers, tensors, tuples of them: in and out
    best = cute.arch.warp_reduction_max(score)
    weight = cute.math.exp(score - best)
    return weight, cute.arch.warp_reduction_sum(weight)


@cute.kernel
def attend(scores: cute.Tensor, out: cute.Tensor, CAUSAL: cutlass.Constexpr[bool]):
    row, column = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    weight, total = row_softmax(visible(scores[row, column], row, column, CAUSAL))
    out[row, column] = weight / total


@cute.jit
def launch(scores: cute.Tensor, out: cute.Tensor, CAUSAL: cutlass.Constexpr[bool]):
    attend(scores, out, CAUSAL).launch(grid=(scores.shape[0], 1, 1), block=(WIDTH, 1, 1))


scores = torch.randn(WIDTH, WIDTH).cuda()
for causal in (False, True):
    out = torch.zeros_like(scores)
    tensors = from_dlpack(scores), from_dlpack(out)
    compiled = cute.compile(launch, *tensors, causal)  # once for each value of the flag
    compiled(*tensors)  # the flag is part of the kernel: not passed again
    mask = torch.ones_like(scores, dtype=torch.bool).tril() if causal else scores == scores
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(1)
    print(f"causal {causal}: right", torch.allclose(out, wanted, atol=1e-5))
