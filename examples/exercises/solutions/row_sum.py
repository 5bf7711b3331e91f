"""Exercise: the sum of each row in cuTile; 200 columns come in tiles of 64, the last not full."""

import cuda.tile as ct
import torch


@ct.kernel
def row_sum(x, out, TILE: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1,), ct.float32)
    for step in range(ct.num_tiles(x, 1, (1, TILE))):
        tile = ct.load(x, (row, step), (1, TILE), padding_mode=ct.PaddingMode.ZERO)
        total = total + ct.sum(tile, axis=1)
    ct.store(out, (row,), total)


x = torch.randn(37, 200).cuda()
out = torch.zeros(37).cuda()
ct.launch(torch.cuda.current_stream(), (37,), row_sum, (x, out, 64))
print("right:", torch.allclose(out, x.sum(1), atol=1e-4))
