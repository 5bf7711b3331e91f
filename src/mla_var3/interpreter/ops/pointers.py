"""Interpreter handlers of loads and stores by tiles of pointers (gather and scatter).

``gather`` and ``scatter``, which check bounds per element, serve views and atomics too.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile._datatype import DType

from mla_var3.interpreter import taint
from mla_var3.interpreter.arrays import ArrayArg, Pointer
from mla_var3.interpreter.footprint import Scattered
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.undetermined import (
    enter,
    in_address,
    in_value,
    padding_tile,
    poison,
)
from mla_var3.interpreter.ops.views import offsets_of
from mla_var3.interpreter.program import Env, Runtime, line_of
from mla_var3.interpreter.values import from_memory, memory_dtype, to_memory, to_scalar, to_tensor


def report_out_of_bounds(
    rt: Runtime, array: ArrayArg, where: SourceLine, offsets: torch.Tensor, bad: torch.Tensor
) -> None:
    """Reports accesses outside the elements of an array."""
    if rt.log.seen("out-of-bounds", where, array.name):
        return
    first = int(offsets[bad].flatten()[0]) - array.start
    if 0 <= first < array.span:
        place = f"in a gap between its elements, {first} elements from its start"
    else:
        place = f"at {first} elements from its start; the array spans {array.span} elements"
    rt.log.add(
        "out-of-bounds",
        where,
        f"block {rt.block} accesses {int(bad.sum())} elements outside {array.name!r}, "
        f"the first {place}",
        about=array.name,
    )


def legal_part(
    rt: Runtime,
    array: ArrayArg,
    offsets: torch.Tensor,
    mask: torch.Tensor | None,
    itemsize: int,
    where: SourceLine,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns which elements an access may touch, and which it may not but does; reports those."""
    inside = array.has(offsets, itemsize)
    legal = inside if mask is None else mask & inside
    bad = ~inside if mask is None else mask & ~inside
    if bool(bad.any()):
        report_out_of_bounds(rt, array, where, offsets, bad)
    return legal, bad


def gather(
    rt: Runtime,
    array: ArrayArg,
    offsets: torch.Tensor,
    mask: torch.Tensor | None,
    out: torch.Tensor,
    dtype: DType,
    where: SourceLine,
    ordered: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Reads scattered elements into ``out``, wherever ``mask`` allows.

    Elements outside the array are reported and get poison; their taint is not followed, since the
    access itself is the fault.

    Returns:
        The tile, and a mask of elements that nothing wrote, if there are any.
    """
    itemsize = dtype.bitwidth // 8
    legal, bad = legal_part(rt, array, offsets, mask, itemsize, where)
    if bool(bad.any()):
        out[bad] = poison(rt, dtype)
    index = offsets[legal]
    memory = rt.memory
    traffic = memory.traffic(where)
    traffic.loads += 1
    traffic.bytes_loaded += index.numel() * itemsize
    flat = array.region.typed(memory_dtype(dtype))
    out[legal] = from_memory(flat[index], dtype)
    memory.looks += array.region.written
    unwritten = None
    if memory.track and index.numel():
        found = memory.note_load(array, Scattered(index), itemsize, where, ordered)
        if found is not None:
            unwritten = torch.zeros(offsets.shape, dtype=torch.bool)
            unwritten[legal] = found
    return out, unwritten


def scatter(
    rt: Runtime,
    array: ArrayArg,
    offsets: torch.Tensor,
    mask: torch.Tensor | None,
    value: torch.Tensor,
    dtype: DType,
    where: SourceLine,
    ordered: bool,
    found: taint.Taint | None,
) -> None:
    """Writes scattered elements wherever ``mask`` allows and the array has them."""
    itemsize = dtype.bitwidth // 8
    legal, _ = legal_part(rt, array, offsets, mask, itemsize, where)
    in_value(rt, found, legal, where, f"a store to {array.name!r}")
    index, new = offsets[legal], value[legal]
    memory = rt.memory
    traffic = memory.traffic(where)
    traffic.stores += 1
    traffic.bytes_stored += index.numel() * itemsize
    if not index.numel():
        return
    flat, stored = array.region.typed(memory_dtype(dtype)), to_memory(new, dtype)
    flat[index] = stored
    if index.unique().numel() < index.numel():
        _report_collision(rt, array, index, where, same=_same_bits(flat[index], stored))
    memory.version += 1
    if memory.track:
        memory.note_store(array, Scattered(index), itemsize, where, ordered)


def _same_bits(one: torch.Tensor, other: torch.Tensor) -> bool:
    return torch.equal(one.view(torch.uint8), other.contiguous().view(torch.uint8))


def _report_collision(
    rt: Runtime, array: ArrayArg, index: torch.Tensor, where: SourceLine, same: bool
) -> None:
    """Reports an element that one scatter writes more than once; ``same``: always one value."""
    about = f"{array.name}, one value" if same else array.name
    if not rt.log.seen("write-conflict", where, about):
        ordered = index.sort().values
        first = int(ordered[:-1][ordered[1:] == ordered[:-1]][0])
        rt.log.add(
            "write-conflict",
            where,
            f"block {rt.block} writes {array.index_of(first)} more than once in one store; "
            + ("each time the same value" if same else "which of the values stays is undefined"),
            "warning" if same else "error",
            about=about,
        )


@handler("load_pointer")
def load_pointer(op: Any, lo: Lowering) -> Any:
    """Elements that a tile of pointers points to; padding where the mask is false."""
    pointer, r = lo.slot(op.pointer), lo.slot(op.result_vars[0])
    mask = None if op.mask is None else lo.slot(op.mask)
    pad = None if op.padding_value is None else lo.slot(op.padding_value)
    dtype, where = op.result_vars[0].get_type().dtype, line_of(op)
    scalar = lo.is_scalar(op.result_vars[0])

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            rt.taints.pop(r, None)
            in_address(env, rt, pointer, mask, where, "the address of a load")
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        allowed = None if mask is None else torch.as_tensor(env[mask]).expand(offsets.shape)
        shape = tuple(offsets.shape)
        if pad is None:
            base = padding_tile(rt, shape, dtype, None)
        else:
            base = to_tensor(env[pad], dtype).expand(shape).clone()
        out, unwritten = gather(rt, at.array, offsets, allowed, base, dtype, where, False)
        env[r] = to_scalar(out, dtype) if scalar else out
        if pad is None and allowed is not None:
            origin = taint.Origin("undetermined-padding", where, at.array.name)
            enter(rt, r, ~allowed, origin)
        enter(rt, r, unwritten, taint.Origin("uninitialised-read", where, at.array.name))

    return step, taint.own


@handler("store_pointer")
def store_pointer(op: Any, lo: Lowering) -> Any:
    """A tile written to where a tile of pointers points."""
    pointer, value = lo.slot(op.pointer), lo.slot(op.value)
    mask = None if op.mask is None else lo.slot(op.mask)
    dtype, where = op.value.get_type().dtype, line_of(op)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            in_address(env, rt, pointer, mask, where, "the address of a store")
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        allowed = None if mask is None else torch.as_tensor(env[mask]).expand(offsets.shape)
        new = to_tensor(env[value], dtype).expand(offsets.shape)
        scatter(rt, at.array, offsets, allowed, new, dtype, where, False, rt.taints.get(value))

    return step, taint.own
