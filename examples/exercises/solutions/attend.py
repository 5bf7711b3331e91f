"""Exercise: latent attention of 16 queries in cuTile; each tile of the cache is K and V."""

import cuda.tile as ct
import torch


@ct.kernel
def attend(q, cache, out, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int]):
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(ct.num_tiles(cache, 0, (TILE, DIM))):
        rows = ct.load(cache, (step, 0), (TILE, DIM))
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights, shrink = ct.exp(scores - new), ct.exp(best - new)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    ct.store(out, (0, 0), acc / total)


q, cache = torch.randn(16, 64).bfloat16().cuda(), torch.randn(256, 64).bfloat16().cuda()
out = torch.zeros(16, 64).cuda()
ct.launch(torch.cuda.current_stream(), (1,), attend, (q, cache, out, 16, 64, 64))
wanted = torch.softmax(q.float() @ cache.float().T, dim=1) @ cache.float()
print("right:", torch.allclose(out, wanted, atol=3e-2))
