"""Exercise: out = a * x + y in cuTile, a tile of 256 elements per block."""

import cuda.tile as ct
import torch


@ct.kernel
def axpy(a, x, y, out, TILE: ct.Constant[int]):
    block = ct.bid(0)
    tile = a * ct.load(x, (block,), (TILE,)) + ct.load(y, (block,), (TILE,))
    ct.store(out, (block,), tile)


x, y = torch.randn(1000).cuda(), torch.randn(1000).cuda()
out = torch.zeros_like(x)
ct.launch(torch.cuda.current_stream(), (ct.cdiv(1000, 256),), axpy, (2.0, x, y, out, 256))
print("right:", torch.allclose(out, 2.0 * x + y, atol=1e-6))
