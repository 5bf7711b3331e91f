"""Lesson 3: a context does not fit in one tile. Can a softmax be computed piece by piece?"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import launch

HEADS, KEYS, DIM, TILE = 64, 512, 64, 64


@ct.kernel
def loop_over_keys(
    q, cache, out, rescaled, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int]
):
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)  # the largest score so far
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(ct.num_tiles(cache, 0, (TILE, DIM))):
        rows = ct.load(cache, (step, 0), (TILE, DIM))
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new)
        shrink = ct.exp(best - new)  # 1 where the maximum stayed
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc * shrink)
        grown = ct.where(new > best, 1.0, 0.0)
        ct.store(rescaled, (step, 0), ct.sum(grown, axis=0, keepdims=True))
        best = new
    ct.store(out, (0, 0), acc / total)


torch.manual_seed(0)
q = (torch.randn(HEADS, DIM) / DIM**0.5).bfloat16()
cache = torch.randn(KEYS, DIM).bfloat16()
out = torch.empty(HEADS, DIM)
rescaled = torch.empty(KEYS // TILE, 1)

report = launch((1,), loop_over_keys, (q, cache, out, rescaled, HEADS, TILE, DIM))
wanted = torch.softmax(q.float() @ cache.float().T, dim=1) @ cache.float()
error = (out - wanted).abs().max().item()

print(f"right: {error < 2e-2}, largest error {error:.4f}")
print(f"cache tile in fast memory: {TILE * DIM * 2} bytes instead of {cache.nbytes}")
print("rows whose maximum grew, per step:", [int(count) for count in rescaled[:, 0]])
