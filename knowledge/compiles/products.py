"""Small products: one matrix product in a loop, and latent rows times the weights of a head."""

from __future__ import annotations

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, CutileTiling
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def product(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """One block: a [M, inner] times b [inner, N], K of the inner dimension per step."""
    acc = ct.zeros((M, N), ct.float32)
    for i in range(ct.cdiv(a.shape[1], K)):
        left = ct.load(a, (0, i), (M, K), padding_mode=ZERO)
        acc = ct.mma(left, ct.load(b, (i, 0), (K, N), padding_mode=ZERO), acc)
    ct.store(out, (0, 0), acc.astype(out.dtype))


def kernel(m: int, n: int, k: int, inner: int) -> CtKernel:
    """The product, bound to meta tensors.

    Args:
        m: Rows of the tile.
        n: Columns of the tile.
        k: Inner elements per step.
        inner: Inner elements of the matrices.
    """
    shapes = ((m, inner), (inner, n), (m, n))
    a, b, out = (torch.empty(*x, dtype=torch.bfloat16, device="meta") for x in shapes)
    return CtKernel(
        product,
        grid_fn=lambda x: (1,),
        args_fn=lambda x: (a, b, out, m, n, k),
        input_tensors={"a": a, "b": b},
        output_tensors={"out": out},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
