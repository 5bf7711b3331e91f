"""Looks at a loop's values after each tile, on a CPU, and holds them against torch."""

import cuda.tile as ct
import torch

from mla_var3.interpreter import Options, launch

ROWS, KEYS, DIM, TILE = 16, 256, 64, 64


@ct.kernel
def attend(q, cache, out, ROWS: ct.Constant[int], TILE: ct.Constant[int], DIM: ct.Constant[int]):
    """Attention of one block: scores, softmax and output tile by tile."""
    query = ct.load(q, (0, 0), (ROWS, DIM))
    best = ct.full((ROWS, 1), -1e30, ct.float32)
    total = ct.zeros((ROWS, 1), ct.float32)
    acc = ct.zeros((ROWS, DIM), ct.float32)
    for step in range(ct.num_tiles(cache, 0, (TILE, DIM))):
        rows = ct.load(cache, (step, 0), (TILE, DIM))
        scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, TILE), ct.float32))
        new = ct.maximum(best, ct.max(scores, axis=1, keepdims=True))
        weights = ct.exp(scores - new)
        shrink = ct.exp(best - new)
        total = total * shrink + ct.sum(weights, axis=1, keepdims=True)
        acc = acc * shrink
        acc = ct.mma(weights.astype(ct.bfloat16), rows, acc)
        best = new
    ct.store(out, (0, 0), acc / total)


torch.manual_seed(0)
q = (torch.randn(ROWS, DIM) / DIM**0.5).bfloat16()
cache = torch.randn(KEYS, DIM).bfloat16()
out = torch.empty(ROWS, DIM)

# The lines of weights, of total and of the second acc above.
options = Options(watch=("see_inside.py:22", "see_inside.py:24", "see_inside.py:26"))
report = launch((1,), attend, (q, cache, out, ROWS, TILE, DIM), options=options)

# A watched line gives its value once per pass of the loop, in order.
accs, totals = ([w.value for w in report.watched if w.name == name] for name in ("acc", "total"))
for j, (acc, total) in enumerate(zip(accs, totals, strict=True)):
    seen = cache[: (j + 1) * TILE].float()
    wanted = torch.softmax(q.float() @ seen.T, dim=1) @ seen
    error = (torch.as_tensor(acc) / torch.as_tensor(total) - wanted).abs().max().item()
    print(f"after tile {j}: acc / total is off by {error:.4f} from a softmax over {len(seen)} keys")

weights = [w.value for w in report.watched if w.name == "weights"]
print("pass 1, row 0, keys 0 to 3:", weights[1][0, :4])
