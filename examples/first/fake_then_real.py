"""Compiles on fake tensors of any length, without data, and calls that with real ones."""

import cuda.bindings.driver as cuda
import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack, make_fake_stream, make_fake_tensor

WIDTH = 64


@cute.kernel
def double(x: cute.Tensor, out: cute.Tensor):
    row, column = cute.arch.block_idx()[0], cute.arch.thread_idx()[0]
    out[row, column] = 2 * x[row, column]


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor, stream):
    double(x, out).launch(grid=(x.shape[0], 1, 1), block=(WIDTH, 1, 1), stream=stream)


rows, step = cutlass.sym_int32(), cutlass.sym_int64(divisibility=4)  # known at the call
x = make_fake_tensor(cutlass.Float32, (rows, WIDTH), stride=(step, 1), assumed_align=16)
out = make_fake_tensor(cutlass.Float32, (rows, WIDTH), stride=(WIDTH, 1), assumed_align=16)
ffi = cute.compile(launch, x, out, make_fake_stream(), options="--enable-tvm-ffi")
plain = cute.compile(launch, out, out, make_fake_stream())

stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
for length in (3, 50):
    x = torch.randn(length, 2 * WIDTH).cuda()[:, :WIDTH]  # each row begins 128 values on
    out = torch.zeros(length, WIDTH).cuda()
    ffi(x, out, stream)  # torch's tensors as they are
    assert torch.equal(out, 2 * x)

    wrapped = [from_dlpack(t, assumed_align=16) for t in (x.contiguous(), out)]
    # Dynamic where the fake ones are: else no length is passed, and the kernel reads none.
    wrapped = [t.mark_compact_shape_dynamic(mode=0, stride_order=(0, 1)) for t in wrapped]
    out.zero_()
    plain(*wrapped, stream)
    assert torch.equal(out, 2 * x)
print("right: compiled once without data, called with 3 and with 50 rows")
