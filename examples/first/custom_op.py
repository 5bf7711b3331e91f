"""A cuTile kernel as an operator of torch, so that ``torch.compile`` keeps it in its graph."""

import cuda.tile as ct
import torch

TILE = 256


@ct.kernel
def scale_kernel(x, out, factor: float, TILE: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, (block,), ct.load(x, (block,), (TILE,)) * factor)


@torch.library.custom_op("mine::scaled", mutates_args=(), device_types=None)
def scaled(x: torch.Tensor, factor: float) -> torch.Tensor:
    """What runs: an output of its own, and the launch on the current stream."""
    out = torch.empty_like(x)
    grid = (ct.cdiv(x.numel(), TILE),)
    ct.launch(torch.cuda.current_stream(), grid, scale_kernel, (x, out, factor, TILE))
    return out


@scaled.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    """What the compiler asks: shape, dtype and device of the output, no launch."""
    return torch.empty_like(x)


@torch.compile(fullgraph=True, backend="eager")  # on a GPU leave the backend out
def layer(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(scaled(x + 1.0, 2.0))


x = torch.randn(1000).cuda()
print("right:", torch.allclose(layer(x), torch.relu((x + 1.0) * 2.0)))
torch.library.opcheck(scaled, (x, 2.0), test_utils=("test_schema", "test_faketensor"))
