"""Lesson 4: 200 keys in tiles of 64 leave 56 places empty. What stands in them?"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import launch

HEADS, KEYS, DIM, TILE = 16, 200, 64, 64


@ct.kernel
def ragged(
    q, cache, out, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int],
    KEYS: ct.Constant[int], MASK: ct.Constant[bool],
):  # fmt: skip
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(ct.num_tiles(cache, 0, (TILE, DIM))):
        rows = ct.load(cache, (step, 0), (TILE, DIM), padding_mode=ct.PaddingMode.ZERO)
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        if MASK:
            place = step * TILE + ct.arange(TILE, dtype=ct.int32)
            scores = ct.where(place.reshape((1, TILE)) < KEYS, scores, -float("inf"))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    ct.store(out, (0, 0), acc / total)


torch.manual_seed(0)
q = (torch.randn(HEADS, DIM) / DIM**0.5).bfloat16()
cache = torch.randn(KEYS, DIM).bfloat16()
wanted = torch.softmax(q.float() @ cache.float().T, dim=1) @ cache.float()

for mask in (False, True):
    out = torch.empty(HEADS, DIM)
    launch((1,), ragged, (q, cache, out, HEADS, TILE, DIM, KEYS, mask))
    ratio = (out.norm() / wanted.norm()).item()
    error = (out - wanted).abs().max().item()
    print(f"mask {mask}: output is {ratio:.2f} of what it should be; right: {error < 2e-2}")
