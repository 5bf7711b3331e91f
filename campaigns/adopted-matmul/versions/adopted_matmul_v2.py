"""A matrix product that is an adopted kernel as it is.

``nox -s check -- examples/adopted_matmul.py`` takes it as it takes a version of ours. Its tiles are
too small for the tensor cores, which `profile` says, and which a campaign undoes.
"""

from __future__ import annotations

import cuda.tile as ct
import torch

#: Rows and columns of a block's tile, and columns of a step.
TILE = (128, 128, 64)
CHECKS = [{"m": 32, "n": 48, "k": 64}, {"m": 70, "n": 33, "k": 100}]


@ct.kernel
def matmul(a, b, c, M: ct.Constant[int], N: ct.Constant[int], K: ct.Constant[int]):
    """C = a @ b, a block per tile."""
    i, j = ct.bid(0), ct.bid(1)
    total = ct.full((M, N), 0.0, dtype=ct.float32)
    for k in range(ct.num_tiles(a, axis=1, shape=(M, K))):
        x = ct.load(a, (i, k), (M, K), padding_mode=ct.PaddingMode.ZERO)
        y = ct.load(b, (k, j), (K, N), padding_mode=ct.PaddingMode.ZERO)
        total = ct.mma(x, y, total)
    ct.store(c, (i, j), total.astype(c.dtype))


def inputs(device, m=128, n=128, k=256):
    """The inputs by name; further parameters are sizes, and flags of ``profile``."""
    a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    return {"a": a.half(), "b": b.half()}


def reference(a, b):
    """What is right, by plain torch."""
    return a.float() @ b.float()


def launch(a, b):
    """The kernel, launched as its users do."""
    c = torch.empty(a.shape[0], b.shape[1], dtype=a.dtype, device=a.device)
    grid = (ct.cdiv(c.shape[0], TILE[0]), ct.cdiv(c.shape[1], TILE[1]))
    ct.launch(torch.cuda.current_stream(), grid, matmul, (a, b, c, *TILE))
    return c
