"""Interpreter handlers of tile data movement: reshape, broadcast, permute, extract, concatenate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cuda.tile import _datatype as dt

from mla_var3.interpreter import taint
from mla_var3.interpreter.arrays import Pointer
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.program import Env, Runtime, line_of
from mla_var3.interpreter.values import to_scalar, to_tensor

Move = Callable[[torch.Tensor], torch.Tensor]


def _moved(op: Any, lo: Lowering, move: Move) -> Any:
    """Builds an operation that applies ``move`` to a tile, and to its taint mask."""
    dtype = op.x.get_type().dtype
    x, r = lo.slot(op.x), lo.slot(op.result_var)
    scalar = lo.is_scalar(op.result_var)
    rule = taint.reshaped(x, r, move) if lo.local is None else taint.own
    if dt.is_pointer_dtype(dtype) or dt.is_foreign_pointer_dtype(dtype):
        return _moved_pointer(op, lo, move), rule

    if lo.is_scalar(op.x) or scalar:

        def convert(env: Env, rt: Runtime) -> None:
            out = move(to_tensor(env[x], dtype))
            env[r] = to_scalar(out, dtype) if scalar else out

        return convert, rule

    def step(env: Env, rt: Runtime) -> None:
        env[r] = move(env[x])

    return step, rule


def _moved_pointer(op: Any, lo: Lowering, move: Move) -> Any:
    x, r = lo.slot(op.x), lo.slot(op.result_var)
    rank0 = op.result_var.get_type().shape == ()

    def step(env: Env, rt: Runtime) -> None:
        pointer = env[x]
        offset = move(torch.as_tensor(pointer.offset))
        env[r] = Pointer(pointer.array, int(offset) if rank0 else offset, pointer.itemsize)

    return step


@handler("tile_reshape")
def tile_reshape(op: Any, lo: Lowering) -> Any:
    """The same elements in another shape, in row-major order."""
    shape = op.result_var.get_type().shape
    return _moved(op, lo, lambda x: x.reshape(shape))


@handler("tile_broadcast")
def tile_broadcast(op: Any, lo: Lowering) -> Any:
    """Axes of size 1 repeated."""
    shape = op.result_var.get_type().shape
    return _moved(op, lo, lambda x: x.expand(shape))


@handler("tile_permute")
def tile_permute(op: Any, lo: Lowering) -> Any:
    """Axes in another order."""
    axes = op.axes
    return _moved(op, lo, lambda x: x.permute(axes))


@handler("tile_cat")
def tile_cat(op: Any, lo: Lowering) -> Any:
    """Two tiles joined along an axis."""
    x, y, r, axis = lo.slot(op.x), lo.slot(op.y), lo.slot(op.result_var), op.axis
    shapes = (op.x.get_type().shape, op.y.get_type().shape)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = torch.cat((env[x], env[y]), dim=axis)

    def rule(env: Env, rt: Runtime) -> None:
        taints = [rt.taints.get(slot) for slot in (x, y)]
        present = [t for t in taints if t is not None]
        if not present:
            rt.taints.pop(r, None)
            return
        labels = [
            torch.zeros(shape, dtype=torch.int64) if t is None else t.labels
            for t, shape in zip(taints, shapes, strict=True)
        ]
        rt.taints[r] = taint.Taint(torch.cat(labels, dim=axis), taint.union_bits(present))

    return step, rule


def _corner(
    index: tuple[int, ...], part: tuple[int, ...], whole: tuple[int, ...], rt: Runtime, where: Any
) -> list[slice]:
    """Returns the slices of a part given by its index in units of its own shape."""
    slices = []
    for i, n, size in zip(index, part, whole, strict=True):
        if not 0 <= i < size // n:
            rt.log.add(
                "out-of-bounds",
                where,
                f"block {rt.block} takes part {index} of a tile of shape {whole} in parts of "
                f"shape {part}, which does not exist",
            )
            i = min(max(i, 0), size // n - 1)
        slices.append(slice(i * n, (i + 1) * n))
    return slices


@handler("tile_extract")
def tile_extract(op: Any, lo: Lowering) -> Any:
    """A part of a tile."""
    x, r, index = lo.slot(op.x), lo.slot(op.result_var), lo.slots(op.index)
    part, whole, where = op.shape, op.x.get_type().shape, line_of(op)

    def step(env: Env, rt: Runtime) -> None:
        at = tuple(env[i] for i in index)
        env[r] = env[x][tuple(_corner(at, part, whole, rt, where))]

    def rule(env: Env, rt: Runtime) -> None:
        found = rt.taints.get(x)
        if found is None:
            rt.taints.pop(r, None)
            return
        at = tuple(env[i] for i in index)
        corner = tuple(_corner(at, part, whole, rt, where))
        taint.assign(rt, r, found.map(lambda m: m[corner]))

    return step, rule


@handler("tile_insert")
def tile_insert(op: Any, lo: Lowering) -> Any:
    """A tile with a part replaced."""
    x, value, r = lo.slot(op.x), lo.slot(op.value), lo.slot(op.result_var)
    index, part = lo.slots(op.index), op.value.get_type().shape
    whole, where = op.x.get_type().shape, line_of(op)

    def step(env: Env, rt: Runtime) -> None:
        at = tuple(env[i] for i in index)
        out = env[x].clone()
        out[tuple(_corner(at, part, whole, rt, where))] = env[value]
        env[r] = out

    def rule(env: Env, rt: Runtime) -> None:
        old, new = rt.taints.get(x), rt.taints.get(value)
        present = [t for t in (old, new) if t is not None]
        if not present:
            rt.taints.pop(r, None)
            return
        labels = torch.zeros(whole, dtype=torch.int64) if old is None else old.labels.clone()
        at = tuple(env[i] for i in index)
        labels[tuple(_corner(at, part, whole, rt, where))] = 0 if new is None else new.labels
        taint.assign(rt, r, taint.settle(labels, taint.union_bits(present)))

    return step, rule
