"""Looks for the fastest tile size and hint of a cuTile kernel; times need a GPU."""

import cuda.tile as ct
import torch
from cuda.tile.tune import exhaustive_search


@ct.kernel
def twice(x, out, ROWS: ct.Constant[int]):
    block = ct.bid(0)
    ct.store(out, (block,), ct.load(x, (block,), (ROWS,)) * 2.0)


x = torch.randn(4096).cuda()
out = torch.empty_like(x)
SPACE = [(rows, warps) for rows in (32, 64, 128) for warps in (4, 8)]
found = exhaustive_search(
    SPACE,
    torch.cuda.current_stream(),
    lambda c: (ct.cdiv(x.shape[0], c[0]),),  # grid of a configuration
    twice,
    lambda c: (x, out, c[0]),  # arguments, the tile size among them
    lambda c: {"num_worker_warps": c[1]},  # hints
)
print("fastest:", found.best.config, found.best.mean_us, "us")
