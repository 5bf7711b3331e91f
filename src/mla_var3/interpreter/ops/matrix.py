"""Interpreter handlers of matrix products (also block-scaled), reductions and scans of tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from cuda.tile import _datatype as dt

from mla_var3.interpreter import taint
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.program import Code, Env, Runtime
from mla_var3.interpreter.values import held_dtype, to_scalar, wrap


def _mma_taint(x: int, y: int, acc: int, r: int, extra: Sequence[int] = ()) -> taint.Rule:
    """A row is undetermined where its row of x is, a column where its column of y is."""

    def rule(env: Env, rt: taint.Holder) -> None:
        shape = env[r].shape
        whole: taint.Taint | None = None
        for slot, spread in parts:
            found = rt.taints.get(slot)
            if found is not None:
                part = taint.Taint(found.spread_labels(spread).expand(shape), found.bits)
                whole = part if whole is None else whole | part
        taint.assign(rt, r, None if whole is None else taint.settle(whole.labels, whole.bits))

    parts: list[tuple[int, taint.Move]] = [
        (x, lambda m: m.any(-1, keepdim=True)),
        (y, lambda m: m.any(-2, keepdim=True)),
        (acc, lambda m: m),
        *((slot, lambda m: m.any()) for slot in extra),
    ]
    return rule


def _work(op: Any) -> int:
    """Multiply-adds of a product."""
    return math.prod(op.result_var.get_type().shape) * op.x.get_type().shape[-1]


@handler("tile_mma")
def tile_mma(op: Any, lo: Lowering) -> Any:
    """X @ y + acc: products exact, sums in float32 (float64 for float64, integers wrap)."""
    x, y, acc, r = (lo.slot(v) for v in (op.x, op.y, op.acc, op.result_var))
    source, target = op.x.get_type().dtype, op.result_var.get_type().dtype
    work = _work(op)
    lo.widest = max(lo.widest, work)
    rule = _mma_taint(x, y, acc, r)
    if dt.is_integral(source):

        def integers(env: Env, rt: Runtime) -> None:
            product = torch.matmul(env[x].double(), env[y].double()).long()
            env[r] = wrap(product + env[acc], target)

        return integers, rule
    lo.count("mma", 2 * work)
    held = held_dtype(target)
    wide = torch.float64 if held == torch.float64 else torch.float32
    zero = isinstance(lo.constant(op.acc), int | float) and lo.constant(op.acc) == 0
    flat = len(op.result_var.get_type().shape) == 2

    def step(env: Env, rt: Runtime) -> None:
        a, b = env[x].to(wide), env[y].to(wide)
        if zero:
            out = torch.matmul(a, b)
        elif flat:
            out = torch.addmm(env[acc].to(wide), a, b)
        else:
            out = torch.matmul(a, b).add_(env[acc].to(wide))
        env[r] = out if wide == held else out.to(held)

    return step, rule


@handler("tile_mma_scaled")
def tile_mma_scaled(op: Any, lo: Lowering) -> Any:
    """(x * x_scale) @ (y * y_scale) + acc, scales shared by blocks along K."""
    x, xs, y, ys, acc, r = (
        lo.slot(v) for v in (op.x, op.x_scale, op.y, op.y_scale, op.acc, op.result_var)
    )
    work = _work(op)
    lo.widest = max(lo.widest, work)
    lo.count("mma", 2 * work)
    block_x = op.x.get_type().shape[-1] // op.x_scale.get_type().shape[-1]
    block_y = op.y.get_type().shape[-2] // op.y_scale.get_type().shape[-2]
    held = held_dtype(op.result_var.get_type().dtype)

    def step(env: Env, rt: Runtime) -> None:
        a = env[x].double() * env[xs].double().repeat_interleave(block_x, dim=-1)
        b = env[y].double() * env[ys].double().repeat_interleave(block_y, dim=-2)
        env[r] = (torch.matmul(a, b) + env[acc].double()).to(held)

    return step, _mma_taint(x, y, acc, r, extra=(xs, ys))


# ----------------------------------------------------------------------- reductions and scans


def _single(op: Any) -> Any:
    """Returns the one operation of a combiner that applies it to its two parameters, or None."""
    operations = op.body.operations
    if len(op.xs) != 1 or len(operations) != 2:
        return None
    inner, end = operations
    if inner.op not in ("raw_binary_arith", "raw_binary_bitwise"):
        return None
    if [v.name for v in (inner.lhs, inner.rhs)] != [p.name for p in op.body.params]:
        return None
    if [v.name for v in end.outputs] != [inner.result_var.name]:
        return None
    plain = getattr(inner, "rounding_mode", None) is None or inner.rounding_mode.name == "RN"
    return inner if plain and not getattr(inner, "flush_to_zero", False) else None


def _fast_reduction(op: Any, dtype: Any, axis: int) -> Callable[[torch.Tensor], Any] | None:
    """Returns torch's own reduction where it gives what the combiner would."""
    inner = _single(op)
    if inner is None:
        return None
    wide_float = dtype in (dt.float32, dt.float64)
    is_int = dt.is_integral(dtype)
    if inner.fn == "add" and wide_float:
        return lambda x: x.sum(axis)
    if inner.fn == "mul" and wide_float:
        return lambda x: x.prod(axis)
    if inner.fn == "add" and is_int:
        return lambda x: wrap(x.sum(axis, dtype=torch.int64), dtype)
    if inner.fn in ("min", "max") and (dt.is_float(dtype) or (is_int and dtype is not dt.uint64)):
        extreme = torch.amax if inner.fn == "max" else torch.amin

        # A combiner may skip NaN, amin and amax do not; None asks for the general way.
        def skip_nan(x: torch.Tensor) -> torch.Tensor | None:
            out = extreme(x, axis)
            return None if bool(torch.isnan(out).any()) else out

        return skip_nan
    return None


def _combine(
    code: Code,
    params: Sequence[int],
    results: Sequence[int],
    env: Env,
    rt: Runtime,
    left: Sequence[torch.Tensor],
    right: Sequence[torch.Tensor],
) -> list[torch.Tensor]:
    """Runs a combiner on whole tensors; its parameters alternate between left and right."""
    for i, (lhs, rhs) in enumerate(zip(left, right, strict=True)):
        env[params[2 * i]], env[params[2 * i + 1]] = lhs, rhs
    code.complete(env, rt)
    # A result that ignores its parameters has no axes yet.
    return [torch.as_tensor(env[r]).expand(x.shape) for r, x in zip(results, left, strict=True)]


@handler("tile_reduce")
def tile_reduce(op: Any, lo: Lowering) -> Any:
    """A reduction along one axis, by halves (the order is unspecified in cuTile)."""
    axis = op.axis
    types = [x.get_type() for x in op.xs]
    shape = types[0].shape
    inner = math.prod(shape) // shape[axis] * (shape[axis] - 1)
    code, params, results = lo.combiner(op.body, inner)
    xs, rs = lo.slots(op.xs), lo.slots(op.result_vars)
    scalar = [lo.is_scalar(v) for v in op.result_vars]
    fast = _fast_reduction(op, types[0].dtype, axis)

    def general(env: Env, rt: Runtime) -> list[torch.Tensor]:
        parts = [env[x] for x in xs]
        while (n := parts[0].shape[axis]) > 1:
            left = [p.narrow(axis, 0, n // 2) for p in parts]
            right = [p.narrow(axis, n // 2, n // 2) for p in parts]
            parts = _combine(code, params, results, env, rt, left, right)
        return [p.squeeze(axis) for p in parts]

    def step(env: Env, rt: Runtime) -> None:
        outs: list[Any] = [fast(env[xs[0]])] if fast is not None else [None]
        if outs[0] is None:
            outs = general(env, rt)
        for r, out, ty, is_scalar in zip(rs, outs, types, scalar, strict=True):
            env[r] = to_scalar(out, ty.dtype) if is_scalar else out

    return step, taint.spread(xs, rs, lambda m: m.any(axis))


def _fast_scan(op: Any, dtype: Any, axis: int) -> Callable[[torch.Tensor], torch.Tensor] | None:
    inner = _single(op)
    if inner is None or inner.fn not in ("add", "mul"):
        return None
    scan = torch.cumsum if inner.fn == "add" else torch.cumprod
    if dtype in (dt.float32, dt.float64):
        return lambda x: scan(x, axis)
    if dt.is_integral(dtype):
        return lambda x: wrap(scan(x, axis, dtype=torch.int64), dtype)
    return None


@handler("tile_scan")
def tile_scan(op: Any, lo: Lowering) -> Any:
    """An inclusive scan along one axis: each step combines elements twice as far apart."""
    axis, reverse = op.axis, op.reverse
    types = [x.get_type() for x in op.xs]
    shape = types[0].shape
    n = shape[axis]
    code, params, results = lo.combiner(op.body, math.prod(shape) // n * (n - 1))
    xs, rs = lo.slots(op.xs), lo.slots(op.result_vars)
    fast = _fast_scan(op, types[0].dtype, axis)

    def general(env: Env, rt: Runtime, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        distance = 1
        while distance < n:
            left = [p.narrow(axis, 0, n - distance) for p in parts]
            right = [p.narrow(axis, distance, n - distance) for p in parts]
            new = _combine(code, params, results, env, rt, left, right)
            parts = [
                torch.cat((p.narrow(axis, 0, distance), q), dim=axis)
                for p, q in zip(parts, new, strict=True)
            ]
            distance *= 2
        return parts

    def step(env: Env, rt: Runtime) -> None:
        parts = [env[x].flip(axis) if reverse else env[x] for x in xs]
        outs = general(env, rt, parts) if fast is None else [fast(parts[0])]
        for r, out in zip(rs, outs, strict=True):
            env[r] = out.flip(axis) if reverse else out

    def spread(mask: torch.Tensor) -> torch.Tensor:
        order = mask.flip(axis) if reverse else mask
        seen = order.long().cumsum(axis) > 0
        return seen.flip(axis) if reverse else seen

    return step, taint.spread(xs, rs, spread)
