"""Element-wise arithmetic of softmax over one fp32 tile, in exact and in approximate modes."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import torch

from mla_var3.runtime.ct_kernel import ConstInt, CtKernel, CutileTiling
from mla_var3.workloads import Cost

APPROX = ct.RoundingMode.APPROX


def applied(operation: Any) -> Any:
    """A kernel that applies an operation of two tiles to x and y."""

    @ct.kernel
    def elementwise(x, y, out, M: ConstInt, N: ConstInt):
        a, b = ct.load(x, (0, 0), (M, N)), ct.load(y, (0, 0), (M, N))
        ct.store(out, (0, 0), operation(a, b))

    return elementwise


def divide(a, b):
    """IEEE division."""
    return a / b


def divide_approx(a, b):
    """Division that may be off by some units in the last place."""
    return ct.truediv(a, b, rounding_mode=APPROX, flush_to_zero=True)


def exp(a, b):
    """The natural exponential."""
    return ct.exp(a)


def exp_approx(a, b):
    """The natural exponential by the hardware's approximation."""
    return ct.exp(a, rounding_mode=APPROX)


def exp2(a, b):
    """The exponential to base two, subnormal numbers included."""
    return ct.exp2(a)


def exp2_flush(a, b):
    """The exponential to base two, subnormal numbers flushed to zero."""
    return ct.exp2(a, flush_to_zero=True)


OPERATIONS = (divide, divide_approx, exp, exp_approx, exp2, exp2_flush)
KERNELS = {operation.__name__: applied(operation) for operation in OPERATIONS}


def kernel(operation: str, rows: int, columns: int) -> CtKernel:
    """An operation over one tile, bound to meta tensors.

    Args:
        operation: Name of one of ``OPERATIONS``.
        rows: Rows of the tile.
        columns: Columns of the tile.
    """
    x, y, out = (torch.empty(rows, columns, device="meta") for _ in range(3))
    return CtKernel(
        KERNELS[operation],
        grid_fn=lambda x: (1,),
        args_fn=lambda _: (x, y, out, rows, columns),
        input_tensors={"x": x, "y": y},
        output_tensors={"out": out},
        tiling=CutileTiling(),
        autotune_configs=[],
        algorithmic_flops_bytes_fn=lambda x: Cost(0, 0),
    )
