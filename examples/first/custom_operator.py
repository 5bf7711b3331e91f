"""A CuTe kernel as an operator of torch, which ``torch.compile`` calls and does not look into."""

import cutlass
import torch
from cutlass import cute
from cutlass.cute.runtime import from_dlpack

THREADS = 64


@cute.kernel
def doubled(x: cute.Tensor, out: cute.Tensor):
    thread, block = cute.arch.thread_idx()[0], cute.arch.block_idx()[0]
    out[block, thread] = x[block, thread] * cutlass.Float32(2.0)


@cute.jit
def launch(x: cute.Tensor, out: cute.Tensor):
    doubled(x, out).launch(grid=(x.shape[0], 1, 1), block=(THREADS, 1, 1))


@torch.library.custom_op("mine::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    launch(from_dlpack(x), from_dlpack(out))
    return out


@double.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)  # Shape, dtype and device: all that a compiler asks for.


def main() -> None:
    """Call it as a function of torch, and as a compiler sees it: with tensors without values."""
    x = torch.randn(3, THREADS).cuda()
    assert torch.equal(double(x), 2 * x)
    seen = double(torch.empty(3, THREADS, device="meta"))
    assert seen.shape == (3, THREADS)


if __name__ == "__main__":
    main()
