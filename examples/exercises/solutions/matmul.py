"""Exercise: C = A @ B in cuTile, a tile of 64 x 64 per block, with a loop over K."""

import cuda.tile as ct
import torch


@ct.kernel
def matmul(a, b, c, TILE: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    acc = ct.zeros((TILE, TILE), ct.float32)
    for step in range(ct.num_tiles(a, 1, (TILE, TILE))):
        left = ct.load(a, (i, step), (TILE, TILE), padding_mode=ct.PaddingMode.ZERO)
        right = ct.load(b, (step, j), (TILE, TILE), padding_mode=ct.PaddingMode.ZERO)
        acc = ct.mma(left, right, acc)
    ct.store(c, (i, j), acc)


a, b = torch.randn(100, 150).bfloat16().cuda(), torch.randn(150, 130).bfloat16().cuda()
c = torch.zeros(100, 130).cuda()
ct.launch(torch.cuda.current_stream(), (2, 3), matmul, (a, b, c, 64))
print("right:", torch.allclose(c, a.float() @ b.float(), atol=1e-3))
