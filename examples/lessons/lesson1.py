"""Lesson 1: 64 heads share one cache, and each head has a block. How often is the cache read?"""

import cuda.tile as ct
import torch

from mla_var3.interpreter import launch

HEADS, KEYS, DIM = 64, 256, 64


@ct.kernel
def one_head_per_block(q, cache, out, KEYS: ct.Constant[int], DIM: ct.Constant[int]):
    head = ct.bid(0)
    query = ct.load(q, (head, 0), (1, DIM))
    rows = ct.load(cache, (0, 0), (KEYS, DIM))
    scores = ct.sum(query * rows, axis=1, keepdims=True)  # [KEYS, 1]
    weights = ct.exp(scores - ct.max(scores, axis=0, keepdims=True))
    weights = weights / ct.sum(weights, axis=0, keepdims=True)
    ct.store(out, (head, 0), ct.sum(weights * rows, axis=0, keepdims=True))


torch.manual_seed(0)
q = torch.randn(HEADS, DIM) / DIM**0.5
cache = torch.randn(KEYS, DIM)  # of all heads: key and value at once, as in MLA
out = torch.empty(HEADS, DIM)

report = launch((HEADS,), one_head_per_block, (q, cache, out, KEYS, DIM))
error = (out - torch.softmax(q @ cache.T, dim=1) @ cache).abs().max().item()

distinct = sum(array.unique_bytes_loaded for array in report.arrays.values())
print(f"right: {error < 1e-4}")
print(f"bytes loaded: {report.bytes_loaded}, of which differ: {distinct}")
print(f"the cache was read {(report.bytes_loaded - q.nbytes) // cache.nbytes} times")
print(f"FLOPs on tensor cores: {report.mma_flops}")
