"""Adds two vectors, a tile of 256 elements per block."""

import cuda.tile as ct
import torch


@ct.kernel
def add(x, y, out, TILE: ct.Constant[int]):
    block = ct.bid(0)
    a = ct.load(x, (block,), (TILE,))
    b = ct.load(y, (block,), (TILE,))
    ct.store(out, (block,), a + b)


x, y = torch.randn(1000).cuda(), torch.randn(1000).cuda()
out = torch.empty_like(x)
ct.launch(torch.cuda.current_stream(), (ct.cdiv(1000, 256),), add, (x, y, out, 256))
print("right:", torch.equal(out, x + y))
