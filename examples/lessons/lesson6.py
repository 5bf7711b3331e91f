"""Lesson 6: one sequence is one block, and a GPU has over a hundred SMs. Who uses the others?"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import launch

HEADS, KEYS, DIM, TILE, SPLITS = 16, 1024, 64, 64, 4


@ct.kernel
def part_of_the_keys(
    q, cache, outs, lses, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int],
    STEPS: ct.Constant[int],
):  # fmt: skip
    part = ct.bid(0)
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(STEPS):
        rows = ct.load(cache, (part * STEPS + step, 0), (TILE, DIM))
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc * shrink)
        best = new
    ct.store(outs, (part, 0, 0), (acc / total).reshape((1, ROWS, DIM)))
    ct.store(lses, (part, 0), (best + ct.log(total)).reshape((1, ROWS)))


torch.manual_seed(0)
q = (torch.randn(HEADS, DIM) / DIM**0.5).bfloat16()
cache = torch.randn(KEYS, DIM).bfloat16()
wanted = torch.softmax(q.float() @ cache.float().T, dim=1) @ cache.float()

for splits in (1, SPLITS):
    outs, lses = torch.empty(splits, HEADS, DIM), torch.empty(splits, HEADS)
    steps = KEYS // TILE // splits
    launch((splits,), part_of_the_keys, (q, cache, outs, lses, HEADS, TILE, DIM, steps))
    weights = torch.softmax(lses, dim=0)  # of the parts: e^(LSE_i - LSE)
    merged = (weights[:, :, None] * outs).sum(0)
    plain = outs.mean(0)
    error = (merged - wanted).abs().max().item()
    print(f"{splits} blocks of {steps} steps: right when merged by LSE: {error < 2e-2}")
    wrong = (plain - wanted).abs().max().item()
    print(f"  a plain average of the parts is off by {wrong:.3f}, the merged one by {error:.3f}")
    print(f"  extra bytes: {2 * (outs.nbytes + lses.nbytes) if splits > 1 else 0}")
