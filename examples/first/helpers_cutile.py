"""A cuTile kernel with helper functions and a flag that is resolved when it is compiled."""

import cuda.tile as ct
import torch

TILE = 64


def row_softmax(scores):  # a plain function: no decorator, tiles in, several tiles back
    best = ct.max(scores, axis=1, keepdims=True)  # [TILE, 1], which [TILE, TILE] can subtract
    weights = ct.exp(scores - best)
    return weights, ct.sum(weights, axis=1, keepdims=True)


@ct.kernel
def attend(scores, out, CAUSAL: ct.Constant[bool]):
    tile = ct.load(scores, (0, 0), (TILE, TILE))
    if CAUSAL:  # a constant: the other side is not in the compiled kernel
        place = ct.arange(TILE, dtype=ct.int32)
        tile = ct.where(place[None, :] <= place[:, None], tile, -float("inf"))
    weights, total = row_softmax(tile)
    ct.store(out, (0, 0), weights / total)


scores = torch.randn(TILE, TILE).cuda()
for causal in (False, True):  # compiles once for each
    out = torch.zeros_like(scores)
    ct.launch(torch.cuda.current_stream(), (1,), attend, (scores, out, causal))
    mask = torch.ones_like(scores, dtype=torch.bool).tril() if causal else scores == scores
    wanted = scores.masked_fill(~mask, -torch.inf).softmax(1)
    print(f"causal {causal}: right", torch.allclose(out, wanted, atol=1e-5))
