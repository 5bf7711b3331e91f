"""One cuTile matrix product in a loop, in each operand type that ``ct.mma`` takes."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, CutileTiling
from mla_var3.workloads import Cost

ZERO = ct.PaddingMode.ZERO
#: Columns of the tile, inner elements per step and in all.
COLUMNS, STEP, INNER = 64, 64, 4096


def _product(sums: Any) -> Any:
    """The product with an accumulator of a type."""

    @ct.kernel
    def product(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
        """One block: a [M, inner] times b [N, inner] transposed, K inner elements per step."""
        acc = ct.zeros((M, N), sums)
        for i in range(ct.cdiv(a.shape[1], K)):
            left = ct.load(a, (0, i), (M, K), padding_mode=ZERO)
            right = ct.load(b, (0, i), (N, K), padding_mode=ZERO)
            acc = ct.mma(left, right.transpose(), acc)
        ct.store(out, (0, 0), acc)

    return product


@ct.kernel
def tfloat32(a, b, out, M: ConstInt, N: ConstInt, K: ConstInt):
    """The same of float32 arrays, their tiles converted to TF32, of which there are no arrays."""
    acc = ct.zeros((M, N), ct.float32)
    for i in range(ct.cdiv(a.shape[1], K)):
        left = ct.load(a, (0, i), (M, K), padding_mode=ZERO).astype(ct.tfloat32)
        right = ct.load(b, (0, i), (N, K), padding_mode=ZERO).astype(ct.tfloat32)
        acc = ct.mma(left, right.transpose(), acc)
    ct.store(out, (0, 0), acc)


def kernel(rows: int, operands: str, sums: str) -> CtKernel:
    """The product, bound to meta tensors.

    Args:
        rows: Rows of the tile.
        operands: Type of both operands, by cuTile's name.
        sums: Type of the accumulator.
    """
    tf32 = operands == "tfloat32"
    held = getattr(torch, "float32" if tf32 else operands)
    a, b = (torch.empty(x, INNER, dtype=held, device="meta") for x in (rows, COLUMNS))
    out = torch.empty(rows, COLUMNS, dtype=getattr(torch, sums), device="meta")
    return CtKernel(
        tfloat32 if tf32 else _product(getattr(ct, sums)),
        grid_fn=lambda x: (1,),
        args_fn=lambda x: (a, b, out, rows, COLUMNS, STEP),
        input_tensors={"a": a, "b": b},
        output_tensors={"out": out},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
