"""Interpreter handlers of atomics on array elements: read-modify-write and compare-and-swap.

Blocks run one at a time here, so each update is atomic by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._memory_model import MemoryOrder

from mla_var3.interpreter import taint
from mla_var3.interpreter.arrays import ArrayArg, Pointer
from mla_var3.interpreter.footprint import Scattered
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.access import Box, across_blocks, report_outside, sync_points
from mla_var3.interpreter.ops.pointers import legal_part
from mla_var3.interpreter.ops.undetermined import in_address, in_decision, in_value, poisoned
from mla_var3.interpreter.ops.views import TileView, offsets_of
from mla_var3.interpreter.program import Env, Runtime, line_of
from mla_var3.interpreter.values import (
    from_memory,
    memory_dtype,
    to_memory,
    to_scalar,
    to_tensor,
    wrap,
)

Update = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _update(mode: str, dtype: DType) -> Update:
    """Returns the function of the old value and the operand that an atomic applies."""
    if mode == "EXCHANGE":
        return lambda old, new: new
    if mode == "ADD_INT":
        return lambda old, new: wrap(old + new, dtype)
    if mode.startswith("ADD"):
        return torch.add
    if mode.startswith("BITWISE"):
        return {
            "BITWISE_AND": torch.bitwise_and,
            "BITWISE_OR": torch.bitwise_or,
            "BITWISE_XOR": torch.bitwise_xor,
        }[mode]
    extreme = torch.maximum if mode.startswith("MAX") else torch.minimum
    if dtype is dt.uint64:
        flip = -(2**63)  # the order of uint64 is that of int64 with the top bit flipped
        return lambda old, new: extreme(old ^ flip, new ^ flip) ^ flip
    return extreme


class Ordering:
    """Which sides of a memory order an atomic has.

    Nothing is acquired by an atomic whose result nobody reads: that some block came before it here
    says nothing about a GPU unless the kernel looks at the value and acts on it. An atomic whose
    scope is the block is atomic for no other block, and orders none.

    Args:
        op: The operation.
        read: Whether anything reads the result.
    """

    def __init__(self, op: Any, read: bool) -> None:
        order = op.memory_order if across_blocks(op) else MemoryOrder.RELAXED
        self.across_blocks = across_blocks(op)
        self.acquires = read and order in (MemoryOrder.ACQUIRE, MemoryOrder.ACQ_REL)
        self.releases = order in (MemoryOrder.RELEASE, MemoryOrder.ACQ_REL)

    def note(
        self, rt: Runtime, array: ArrayArg, index: torch.Tensor, itemsize: int, where: SourceLine
    ) -> None:
        """Hears from other blocks, enters the update, and lets later blocks hear of it."""
        memory = rt.memory
        points = sync_points(array, index, itemsize) if self.acquires or self.releases else []
        if self.acquires:
            memory.hazards.acquire(points)
        if memory.track:
            at = Scattered(index)
            unwritten = memory.note_update(array, at, itemsize, where, self.across_blocks)
            if unwritten is not None and not rt.log.seen("uninitialised-read", where, array.name):
                first = int(index[unwritten.flatten()][0])
                rt.log.add(
                    "uninitialised-read",
                    where,
                    f"block {rt.block} updates {array.index_of(first)}, which nothing has written",
                    about=array.name,
                )
        if self.releases:
            memory.hazards.release(points)


def apply_atomic(
    rt: Runtime,
    array: ArrayArg,
    offsets: torch.Tensor,
    allowed: torch.Tensor,
    change: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    dtype: DType,
    where: SourceLine,
    order: Ordering,
    out: torch.Tensor,
) -> None:
    """Applies an update to scattered elements, one after another where they coincide.

    Args:
        rt: The launch.
        array: The array updated.
        offsets: Element offsets.
        allowed: Which of them take part.
        change: Gets old values and the positions of the elements (flat), returns new values.
        dtype: Element dtype.
        where: Source line.
        order: The memory order.
        out: Gets the old values of the elements that take part.
    """
    itemsize = dtype.bitwidth // 8
    legal, _ = legal_part(rt, array, offsets, allowed, itemsize, where)
    positions = legal.flatten().nonzero().flatten()
    index = offsets.flatten()[positions]
    memory = rt.memory
    memory.looks += 1
    traffic = memory.traffic(where)
    traffic.stores += 1
    traffic.loads += 1
    traffic.bytes_loaded += index.numel() * itemsize
    traffic.bytes_stored += index.numel() * itemsize
    if not index.numel():
        return
    flat = array.region.typed(memory_dtype(dtype))
    order.note(rt, array, index, itemsize, where)
    olds = out.view(-1)
    if index.unique().numel() == index.numel():
        rounds = [(index, positions)]
    else:
        rounds = [(index[i : i + 1], positions[i : i + 1]) for i in range(index.numel())]
    for at, position in rounds:
        stored = flat[at]
        old = from_memory(stored, dtype)
        new = to_memory(change(old, position), dtype)
        olds[position] = old
        if not torch.equal(new.view(torch.uint8), stored.view(torch.uint8)):
            flat[at] = new
            memory.version += 1


@handler("tile_atomic_rmw")
def tile_atomic_rmw(op: Any, lo: Lowering) -> Any:
    """Reads, changes and writes elements; the result is what was there."""
    pointer, update, r = lo.slot(op.pointer), lo.slot(op.update), lo.slot(op.result_vars[0])
    mask = None if op.mask is None else lo.slot(op.mask)
    dtype, where = op.update.get_type().dtype, line_of(op)
    apply = _update(op.mode.name, dtype)
    order = Ordering(op, op.result_vars[0].name in lo.used)
    scalar = lo.is_scalar(op.result_vars[0])
    _count(op, lo, op.update.get_type().shape)

    def step(env: Env, rt: Runtime) -> None:
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        new = to_tensor(env[update], dtype).expand(offsets.shape).flatten()
        allowed = _allowed(env, mask, offsets)
        _tainted(env, rt, pointer, mask, update, allowed, at.array, where)
        out = poisoned(rt, tuple(offsets.shape), dtype)
        apply_atomic(
            rt,
            at.array,
            offsets,
            allowed,
            lambda old, i: apply(old, new[i]),
            dtype,
            where,
            order,
            out,
        )
        env[r] = to_scalar(out, dtype) if scalar else out

    return step, taint.nothing(r)


@handler("tile_atomic_cas")
def tile_atomic_cas(op: Any, lo: Lowering) -> Any:
    """Writes where an expected value is found; the result is what was there."""
    pointer, r = lo.slot(op.pointer), lo.slot(op.result_vars[0])
    expected, desired = lo.slot(op.expected), lo.slot(op.desired)
    mask = None if op.mask is None else lo.slot(op.mask)
    dtype, where = op.desired.get_type().dtype, line_of(op)
    order = Ordering(op, op.result_vars[0].name in lo.used)
    scalar = lo.is_scalar(op.result_vars[0])

    def step(env: Env, rt: Runtime) -> None:
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        want = to_tensor(env[expected], dtype).expand(offsets.shape)
        new = to_tensor(env[desired], dtype).expand(offsets.shape).flatten()
        # Where the mask is false, the result is the expected value.
        out, flat = want.clone(), want.flatten()
        allowed = _allowed(env, mask, offsets)
        _tainted(env, rt, pointer, mask, desired, allowed, at.array, where)

        def change(old: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
            return torch.where(_same_bits(old, flat[i]), new[i], old)

        apply_atomic(rt, at.array, offsets, allowed, change, dtype, where, order, out)
        env[r] = to_scalar(out, dtype) if scalar else out

    return step, taint.nothing(r)


def _same_bits(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Compares bits: a compare-and-swap tells -0.0 from 0.0, and finds NaN."""
    if not x.is_floating_point():
        return x == y
    bits = torch.int32 if x.dtype == torch.float32 else torch.int64
    return x.contiguous().view(bits) == y.contiguous().view(bits)


@handler("tile_atomic_red_view")
def tile_atomic_red_view(op: Any, lo: Lowering) -> Any:
    """Updates a tile of an array, element by element; elements outside are left out."""
    view, index, update = lo.slot(op.view), lo.slots(op.index), lo.slot(op.update)
    dtype, where = op.update.get_type().dtype, line_of(op)
    apply, order = _update(op.mode.name, dtype), Ordering(op, read=False)
    _count(op, lo, op.update.get_type().shape)

    def step(env: Env, rt: Runtime) -> None:
        tiles: TileView = env[view]
        starts = [env[i] * by for i, by in zip(index, tiles.steps, strict=True)]
        box = Box(tiles, starts)
        if box.empty:
            report_outside(rt, tiles, where, "updates", [env[i] for i in index])
            return
        offsets = box.footprint(starts).offsets()
        new = env[update][box.slices()]
        allowed = torch.ones(offsets.shape, dtype=torch.bool)
        if rt.taints:
            in_decision(rt, index, where, "the index of an atomic", address=True)
            what = f"an atomic on {tiles.view.array.name!r}"
            in_value(rt, rt.taints.get(update), box.slices(), where, what)
        flat = new.flatten()
        apply_atomic(
            rt,
            tiles.view.array,
            offsets,
            allowed,
            lambda old, i: apply(old, flat[i]),
            dtype,
            where,
            order,
            torch.empty(offsets.shape, dtype=new.dtype),
        )

    return step, taint.own


def _allowed(env: Env, mask: int | None, offsets: torch.Tensor) -> torch.Tensor:
    if mask is None:
        return torch.ones(offsets.shape, dtype=torch.bool)
    return torch.as_tensor(env[mask]).expand(offsets.shape)


def _tainted(
    env: Env,
    rt: Runtime,
    pointer: int,
    mask: int | None,
    value: int,
    allowed: torch.Tensor,
    array: ArrayArg,
    where: SourceLine,
) -> None:
    if rt.taints:
        in_address(env, rt, pointer, mask, where, "the address of an atomic")
        in_value(rt, rt.taints.get(value), allowed, where, f"an atomic on {array.name!r}")


def _count(op: Any, lo: Lowering, shape: tuple[int, ...]) -> None:
    if op.mode.name == "ADD_FLOAT":
        lo.count("atomic_add", int(torch.Size(shape).numel()))
