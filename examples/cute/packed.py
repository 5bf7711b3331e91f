"""Rescales an output two values at a time, as sm_100 can; runs without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

COLUMNS = 8


@cute.kernel
def rescale(output: cute.Tensor, factor: cute.Tensor, product: cute.Tensor):
    """A thread per row: output * factor + product, a pair of columns per instruction."""
    row = cute.arch.thread_idx()[0]
    kept = cute.make_rmem_tensor(COLUMNS, cutlass.Float32)
    new = cute.make_rmem_tensor(COLUMNS, cutlass.Float32)
    cute.autovec_copy(output[row, None], kept)
    cute.autovec_copy(product[row, None], new)
    f = factor[row]
    for j in cutlass.range_constexpr(0, COLUMNS, 2):
        kept[j], kept[j + 1] = cute.arch.fma_packed_f32x2(
            (kept[j], kept[j + 1]), (f, f), (new[j], new[j + 1])
        )
    cute.autovec_copy(kept, output[row, None])


@cute.jit
def launch(output: cute.Tensor, factor: cute.Tensor, product: cute.Tensor):
    """Launch on output and product [32, 8], and factor [32]."""
    rescale(output, factor, product).launch(grid=(1, 1, 1), block=(32, 1, 1))


output, product = (torch.randn(32, COLUMNS).cuda() for _ in range(2))
factor = torch.rand(32).cuda()
expected = output * factor[:, None] + product
launch(*(from_dlpack(t, assumed_align=16) for t in (output, factor, product)))
assert torch.allclose(output, expected, rtol=1e-5, atol=1e-6)
print("right: True")
