"""Values of registers as one: convert, fill, map, select, reduce; runs without a GPU."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

COLUMNS = 8


@cute.kernel
def values(x: cute.Tensor, rounded: cute.Tensor, packed: cute.Tensor, sums: cute.Tensor):
    """A thread per row: weights of its positive values, in bf16 and in fp8, and their sum."""
    row = cute.arch.thread_idx()[0]
    mine = cute.make_rmem_tensor(COLUMNS, cutlass.Float32)
    cute.autovec_copy(x[row, None], mine)
    v = mine.load()  # All values of the tensor, to compute with at once.
    top = v.reduce(cute.ReductionOp.MAX, -cutlass.Float32.inf, 0)
    weights = cute.math.exp2(v - top, fastmath=True)
    kept = cute.where(v > 0.0, weights, cute.zeros_like(weights))
    half = cute.make_rmem_tensor(COLUMNS, cutlass.BFloat16)
    half.store(kept.to(cutlass.BFloat16))  # fp32 to bf16, rounded to nearest even.
    cute.autovec_copy(half, rounded[row, None])
    byte = cute.make_rmem_tensor(COLUMNS, cutlass.Float8E4M3FN)
    byte.store(kept.to(cutlass.Float8E4M3FN))
    cute.autovec_copy(byte, packed[row, None])
    sums[row] = kept.reduce(cute.ReductionOp.ADD, 0.0, 0)


@cute.jit
def launch(x: cute.Tensor, rounded: cute.Tensor, packed: cute.Tensor, sums: cute.Tensor):
    values(x, rounded, packed, sums).launch(grid=(1, 1, 1), block=(32, 1, 1))


x = torch.randn(32, COLUMNS).cuda()
rounded = torch.zeros(32, COLUMNS, dtype=torch.bfloat16).cuda()
packed = torch.zeros(32, COLUMNS, dtype=torch.uint8).cuda()
sums = torch.zeros(32).cuda()
arguments = [from_dlpack(t, assumed_align=8) for t in (x, rounded, packed, sums)]
arguments[2].element_type = cutlass.Float8E4M3FN  # DLPack hands fp8 over as bytes.
launch(*arguments)
expected = torch.where(x > 0, torch.exp2(x - x.amax(1, keepdim=True)), 0.0)
assert torch.allclose(sums, expected.sum(1), rtol=1e-5)
assert torch.equal(rounded, expected.bfloat16())
assert torch.equal(
    packed.view(torch.float8_e4m3fn).float(), expected.to(torch.float8_e4m3fn).float()
)
print("right: True")
