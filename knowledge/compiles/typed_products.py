"""One matrix product in a loop whose bf16 operands are converted before it."""

from __future__ import annotations

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, CutileTiling
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO


@ct.kernel
def bfloat16(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """One block: a [M, inner] times b [N, inner] transposed, K of the inner dimension per step."""
    acc = ct.zeros((M, N), ct.float32)
    for i in range(ct.cdiv(a.shape[1], K)):
        left = ct.load(a, (0, i), (M, K), padding_mode=ZERO)
        right = ct.load(b, (0, i), (N, K), padding_mode=ZERO)
        acc = ct.mma(left, right.transpose(), acc)
    ct.store(out, (0, 0), acc.astype(out.dtype))


@ct.kernel
def tfloat32(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """The same, its operands converted to TF32."""
    acc = ct.zeros((M, N), ct.float32)
    for i in range(ct.cdiv(a.shape[1], K)):
        left = ct.load(a, (0, i), (M, K), padding_mode=ZERO).astype(ct.tfloat32)
        right = ct.load(b, (0, i), (N, K), padding_mode=ZERO).astype(ct.tfloat32)
        acc = ct.mma(left, right.transpose(), acc)
    ct.store(out, (0, 0), acc.astype(out.dtype))


@ct.kernel
def float32(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """The same, its operands converted to fp32."""
    acc = ct.zeros((M, N), ct.float32)
    for i in range(ct.cdiv(a.shape[1], K)):
        left = ct.load(a, (0, i), (M, K), padding_mode=ZERO).astype(ct.float32)
        right = ct.load(b, (0, i), (N, K), padding_mode=ZERO).astype(ct.float32)
        acc = ct.mma(left, right.transpose(), acc)
    ct.store(out, (0, 0), acc.astype(out.dtype))


def kernel(m: int, n: int, k: int, inner: int, operands: str) -> CtKernel:
    """The product, bound to meta tensors.

    Args:
        m: Rows of the tile.
        n: Columns of the tile.
        k: Inner elements per step.
        inner: Inner elements of the matrices.
        operands: Type of the operands: ``bfloat16``, ``tfloat32`` or ``float32``.
    """
    shapes = ((m, inner), (n, inner), (m, n))
    a, b, out = (torch.empty(*x, dtype=torch.bfloat16, device="meta") for x in shapes)
    return CtKernel(
        {"bfloat16": bfloat16, "tfloat32": tfloat32, "float32": float32}[operands],
        grid_fn=lambda x: (1,),
        args_fn=lambda x: (a, b, out, m, n, k),
        input_tensors={"a": a, "b": b},
        output_tensors={"out": out},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
