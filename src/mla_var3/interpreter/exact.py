"""Arithmetic rounded once: square roots, fused products, operations with a directed rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import torch
from cuda.tile._datatype import DType
from cuda.tile._numeric_semantics import RoundingMode

from mla_var3.interpreter.conversions import neighbour, round_to_odd


def sqrt(x: torch.Tensor) -> torch.Tensor:
    """Square roots rounded to nearest, as on a GPU.

    torch's own on a CPU are those of a vector library: of random values one in a hundred is off by
    one in the last place.
    """
    if x.dtype not in (torch.float32, torch.float64):
        return sqrt(x.float()).to(x.dtype)
    with np.errstate(invalid="ignore"):
        return torch.from_numpy(np.asarray(np.sqrt(x.numpy())))


def exact_directed(
    fn: str, operands: tuple[torch.Tensor, ...], dtype: DType, mode: RoundingMode
) -> torch.Tensor:
    """Evaluates one arithmetic operation with a directed rounding mode, exactly.

    Works element by element on rational numbers: slow, and meant for the rare kernel that asks
    for a directed mode.

    Args:
        fn: ``"add"``, ``"sub"``, ``"mul"``, ``"truediv"``, ``"fma"`` or ``"sqrt"``.
        operands: Float tensors of one shape and dtype.
        dtype: The dtype.
        mode: RZ, RM or RP.
    """
    near = _EXACT_FALLBACK[fn](*operands)
    flat = [op.double().flatten().tolist() for op in operands]
    results = near.double().flatten().tolist()
    out = near.flatten().clone()
    for i, (result, *xs) in enumerate(zip(results, *flat, strict=True)):
        finite = all(x - x == 0 for x in xs) and result == result
        if not finite or (fn == "truediv" and xs[1] == 0) or (fn == "sqrt" and xs[0] < 0):
            continue
        out[i] = _directed_scalar(fn, xs, out[i], dtype, mode)
    return out.reshape(near.shape)


_EXACT_FALLBACK: dict[str, Callable[..., torch.Tensor]] = {
    "add": torch.add,
    "sub": torch.sub,
    "mul": torch.mul,
    "truediv": torch.div,
    "fma": lambda a, b, c: fma(a, b, c),
    "sqrt": sqrt,
}


def _directed_scalar(
    fn: str, xs: list[float], near: torch.Tensor, dtype: DType, mode: RoundingMode
) -> torch.Tensor:
    def sign(candidate: torch.Tensor) -> int:
        """Compares a candidate with the exact result: -1 below, 0 equal, 1 above."""
        value = float(candidate.double())
        if value in (float("inf"), float("-inf")):
            return 1 if value > 0 else -1
        c = Fraction(value)
        if fn == "sqrt":
            exact, c = Fraction(xs[0]), (c * c if c >= 0 else -c * c)
        else:
            exact = _exact(fn, [Fraction(x) for x in xs])
        return (c > exact) - (c < exact)

    down = up = near.reshape(1)
    if mode is RoundingMode.RM and fn in ("add", "sub", "fma") and _cancels(fn, xs):
        return -near.abs()  # IEEE 754-2019, 6.3: an exact zero sum is -0 when rounding down
    while sign(down) > 0:
        down = neighbour(down, dtype, up=False)
    while sign(up) < 0:
        up = neighbour(up, dtype, up=True)
    ways = {RoundingMode.RM: down, RoundingMode.RP: up}
    found = ways.get(mode, up if bool(torch.signbit(near)) else down)
    return torch.copysign(found, near)[0]  # What rounds to 0 keeps its sign.


def _cancels(fn: str, xs: list[float]) -> bool:
    """Tells whether a sum is exactly zero without each of its terms being +0."""
    if _exact(fn, [Fraction(x) for x in xs]) != 0:
        return False
    signs = [math.copysign(1.0, x) for x in xs]
    first = signs[0] * signs[1] if fn == "fma" else signs[0]
    last = -signs[-1] if fn == "sub" else signs[-1]
    return (first, last) != (1.0, 1.0)


def _exact(fn: str, xs: list[Fraction]) -> Fraction:
    if fn == "fma":
        return xs[0] * xs[1] + xs[2]
    a, b = xs
    if fn == "add":
        return a + b
    if fn == "sub":
        return a - b
    return a * b if fn == "mul" else a / b


def fma(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
    """Returns a*b + c rounded once.

    Done in float64, where the product of two narrower floats is exact. For float16 and bfloat16
    the result is exact too. For float32 the sum is rounded there first, so one result in about
    2**29 can differ from a true fma in its last bit. For float64 the product is rounded too.
    """
    if a.dtype == torch.float64:
        return torch.addcmul(c, a, b)
    if a.dtype == torch.float32:
        return torch.addcmul(c.double(), a.double(), b.double()).float()
    product, term = a.double() * b.double(), c.double()
    total = product + term
    # What the sum lost (Knuth's TwoSum); it decides where the sum is a tie of the narrower format.
    part = total - product
    lost = (product - (total - part)) + (term - part)
    inexact_even = (lost != 0) & ((total.contiguous().view(torch.int64) & 1) == 0)
    inexact_even &= torch.isfinite(total)
    if bool(inexact_even.any()):
        towards = torch.where(lost > 0, torch.inf, -torch.inf).double()
        total = torch.where(inexact_even, torch.nextafter(total, towards), total)
    return round_to_odd(total).to(a.dtype)
