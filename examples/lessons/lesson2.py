"""Lesson 2: Hopper multiplies tiles of 64 rows. A head has one row: how much work is useful?"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import launch

HEADS, KEYS, DIM, ROWS = 64, 256, 64, 64


@ct.kernel
def rows_of_heads(
    q, cache, out, ROWS: ct.Constant[int], KEYS: ct.Constant[int], DIM: ct.Constant[int]
):
    group = ct.bid(0)
    query = ct.load(q, (group, 0, 0), (1, ROWS, DIM), padding_mode=ct.PaddingMode.ZERO)
    query = query.reshape((ROWS, DIM))
    rows = ct.load(cache, (0, 0), (KEYS, DIM))
    scores = ct.mma(query, rows.transpose(), ct.zeros((ROWS, KEYS), ct.float32))
    weights = ct.exp(scores - ct.max(scores, axis=1, keepdims=True))
    weights = weights / ct.sum(weights, axis=1, keepdims=True)
    result = ct.mma(weights.astype(ct.bfloat16), rows, ct.zeros((ROWS, DIM), ct.float32))
    ct.store(out, (group, 0, 0), result.reshape((1, ROWS, DIM)))


torch.manual_seed(0)
q = (torch.randn(HEADS, DIM) / DIM**0.5).bfloat16()
cache = torch.randn(KEYS, DIM).bfloat16()
wanted = torch.softmax(q.float() @ cache.float().T, dim=1) @ cache.float()
useful = 2 * 2 * HEADS * KEYS * DIM  # two products, a multiplication and an addition each

for per_block in (1, ROWS):
    shape = (HEADS // per_block, per_block, DIM)
    out = torch.empty(shape)
    report = launch(
        (HEADS // per_block,), rows_of_heads, (q.view(shape), cache, out, ROWS, KEYS, DIM)
    )
    error = (out.view(HEADS, DIM) - wanted).abs().max().item()
    share = useful / report.mma_flops
    print(f"{per_block} heads per block: {report.mma_flops} FLOPs, {share:.1%} of them useful")
    print(f"  bytes loaded: {report.bytes_loaded}; right: {error < 2e-2}")
