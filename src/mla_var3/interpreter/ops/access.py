"""Loads and stores: by tile of a view, and by pointer."""

from __future__ import annotations

import math
from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType
from cuda.tile._memory_model import MemoryOrder

from mla_var3.interpreter import taint
from mla_var3.interpreter.memory import ArrayArg, Pointer, Scattered, Strided, limits
from mla_var3.interpreter.ops import handler
from mla_var3.interpreter.ops.views import TileView, offsets_of
from mla_var3.interpreter.program import Env, Lowering, Runtime, line_of
from mla_var3.interpreter.report import SourceLine
from mla_var3.interpreter.values import (
    from_memory,
    full,
    held_dtype,
    memory_dtype,
    same_in_memory,
    to_memory,
    to_scalar,
    to_tensor,
    wrap_int,
)


def poison(rt: Runtime, dtype: DType) -> float | int | bool:
    """Returns the value that stands for an undetermined element."""
    if dt.is_float(dtype):
        return rt.float_poison
    if dt.is_boolean(dtype):
        return True
    return wrap_int(rt.int_poison, dt.int64 if dtype is dt.uint64 else dtype)


def poisoned(rt: Runtime, shape: tuple[int, ...], dtype: DType) -> torch.Tensor:
    """Returns a tile of undetermined elements."""
    if dt.is_float(dtype) and math.isnan(rt.float_poison):
        return torch.full(shape, math.nan, dtype=held_dtype(dtype))
    return full(shape, poison(rt, dtype), dtype)


def padding_tile(
    rt: Runtime, shape: tuple[int, ...], dtype: DType, padding: float | None
) -> torch.Tensor:
    """Returns a tile filled with padding; integers have no infinities, which stay undetermined."""
    if padding is None or not (dt.is_float(dtype) or math.isfinite(padding)):
        return poisoned(rt, shape, dtype)
    if padding == 0 and math.copysign(1.0, padding) > 0:
        return torch.zeros(shape, dtype=held_dtype(dtype))
    return full(shape, padding if dt.is_float(dtype) else int(padding), dtype)


def strong(op: Any) -> bool:
    """Tells whether an access is ordered (relaxed or stronger)."""
    return op.memory_order is not MemoryOrder.WEAK


class Box:
    """Where a tile meets its array: a box of the tile, and the footprint of that box.

    Attributes:
        lo: First element inside, by axis of the tile.
        hi: Past the last element inside.
        full: Whether the whole tile is inside.
        empty: Whether none of it is.
    """

    __slots__ = ("empty", "full", "hi", "lo", "tiles")

    def __init__(self, tiles: TileView, starts: list[int]) -> None:
        self.tiles = tiles
        self.lo, self.hi, self.full, self.empty = [], [], True, False
        for start, n, extent in zip(starts, tiles.tile, tiles.extents, strict=True):
            low = -start if start < 0 else 0
            high = extent - start if extent - start < n else n
            if low or high != n:
                self.full = False
                if high <= low:
                    self.empty = True
            self.lo.append(low)
            self.hi.append(high)

    def footprint(self, starts: list[int]) -> Strided:
        """Returns the footprint of the part that is inside."""
        tiles, offset = self.tiles, self.tiles.view.offset
        for start, low, stride in zip(starts, self.lo, tiles.strides, strict=True):
            offset += (start + low) * stride
        if self.full:
            return Strided(offset, tiles.tile, tiles.strides)
        return Strided(
            offset, [h - low for low, h in zip(self.lo, self.hi, strict=True)], tiles.strides
        )

    def slices(self) -> tuple[slice, ...]:
        """Returns the part of the tile that is inside."""
        return tuple(slice(low, high) for low, high in zip(self.lo, self.hi, strict=True))


def report_outside(
    rt: Runtime, tiles: TileView, where: SourceLine, verb: str, index: list[Any]
) -> None:
    """Reports a tile that lies wholly outside its array, which is undefined in cuTile."""
    name = tiles.view.array.name
    if not rt.log.seen("tile-outside", where, name):
        rt.log.add(
            "tile-outside",
            where,
            f"block {rt.block} {verb} tile {tuple(index)} of {name!r}, which lies wholly outside: "
            f"its extents are {tiles.extents} and a tile's {tiles.tile}",
            about=name,
        )


def _report_unchecked(rt: Runtime, tiles: TileView, where: SourceLine, index: list[Any]) -> None:
    name = tiles.view.array.name
    if not rt.log.seen("out-of-bounds", where, name):
        rt.log.add(
            "out-of-bounds",
            where,
            f"block {rt.block} accesses tile {tuple(index)} of {name!r} with check_bounds=False, "
            f"and the tile reaches outside: extents {tiles.extents}, tile {tiles.tile}",
            about=name,
        )


def tainted_index(rt: Runtime, slots: tuple[int, ...], where: SourceLine, what: str) -> None:
    """Reports undetermined values that decide an address or a branch."""
    found = taint.union_any(rt, slots)
    if found:
        report_taint(rt, found, where, what)


def report_taint(
    rt: Runtime, origins: frozenset[taint.Origin], where: SourceLine, what: str, count: int = 1
) -> None:
    """Reports that undetermined values reached what the program is observed by."""
    for origin in origins:
        about = f"{origin.array}>{where[0]}:{where[1]}"
        if rt.log.seen(origin.kind, origin.where, about):
            continue
        source = (
            f"undetermined padding of {origin.array!r}, loaded here, reaches"
            if origin.kind == "undetermined-padding"
            else f"elements of {origin.array!r} that nothing wrote, loaded here, reach"
        )
        rt.log.add(
            origin.kind,
            origin.where,
            f"{source} {what} at {where[0]}:{where[1]} in block {rt.block}"
            + (f" ({count} elements)" if count > 1 else ""),
            about=about,
        )


# ------------------------------------------------------------------------------------ tiles


def _split_sparse(tiles: TileView, starts: list[Any]) -> tuple[list[int], torch.Tensor]:
    """Returns the starts with the sparse axis at 0, and the sparse indices."""
    assert tiles.sparse is not None
    index = starts[tiles.sparse].long()
    dense = [0 if axis == tiles.sparse else s for axis, s in enumerate(starts)]
    return dense, index


def _sparse_offsets(tiles: TileView, starts: list[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns offset and validity of each element of a gathered tile."""
    dense, index = _split_sparse(tiles, starts)
    offset = torch.tensor(tiles.view.offset)
    valid = torch.tensor(True)
    rank = len(tiles.tile)
    for axis in range(rank):
        at = index if axis == tiles.sparse else dense[axis] + torch.arange(tiles.tile[axis])
        shape = [-1 if d == axis else 1 for d in range(rank)]
        offset = offset + (at * tiles.strides[axis]).reshape(shape)
        valid = valid & ((at >= 0) & (at < tiles.extents[axis])).reshape(shape)
    return offset.expand(tiles.tile), valid.expand(tiles.tile)


def within(array: ArrayArg, offsets: torch.Tensor, itemsize: int) -> torch.Tensor:
    """Tells which offsets lie in an array's memory."""
    low, high = limits(array, itemsize)
    return (offsets >= low) & (offsets < high)


def report_out_of_bounds(
    rt: Runtime, array: ArrayArg, where: SourceLine, offsets: torch.Tensor, bad: torch.Tensor
) -> None:
    """Reports accesses outside the memory of an array."""
    if not rt.log.seen("out-of-bounds", where, array.name):
        first = int(offsets[bad].flatten()[0])
        rt.log.add(
            "out-of-bounds",
            where,
            f"block {rt.block} accesses {int(bad.sum())} elements outside {array.name!r}, "
            f"the first at {first - array.start} elements from its start; the array spans "
            f"{array.span} elements",
            about=array.name,
        )


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
    wanted = torch.ones(offsets.shape, dtype=torch.bool) if mask is None else mask
    legal = wanted & within(array, offsets, itemsize)
    bad = wanted & ~legal
    if bool(bad.any()):
        report_out_of_bounds(rt, array, where, offsets, bad)
        out[bad] = poison(rt, dtype)
    index = offsets[legal]
    memory = rt.memory
    traffic = memory.traffic(where)
    traffic.loads += 1
    traffic.bytes_loaded += index.numel() * itemsize
    flat = array.region.typed(memory_dtype(dtype))
    out[legal] = from_memory(flat[index], dtype)
    unwritten = None
    if memory.track and index.numel():
        found = memory.note_load(array, Scattered(index), itemsize, where, ordered)
        if found is not None:
            unwritten = torch.zeros(offsets.shape, dtype=torch.bool)
            unwritten[legal] = found
    return out, unwritten


@handler("tile_load")
def tile_load(op: Any, lo: Lowering) -> Any:
    """A tile of an array, with padding where it reaches outside."""
    view, index, r = lo.slot(op.view), lo.slots(op.index), lo.slot(op.result_vars[0])
    lo.slot(op.result_vars[1])
    where, ordered = line_of(op), strong(op)
    unchecked = any(op.inbounds)
    acquires = op.memory_order is MemoryOrder.ACQUIRE and op.result_vars[0].name in lo.used
    dtype = op.result_vars[0].get_type().dtype
    itemsize = max(1, dtype.bitwidth // 8)
    plain = same_in_memory(dtype)

    def settle(rt: Runtime, mask: torch.Tensor | None, kind: str, name: str) -> None:
        if mask is not None and bool(mask.any()):
            origins = frozenset({taint.Origin(kind, where, name)})
            found = rt.taints.get(r)
            new = taint.Taint(mask, origins)
            rt.taints[r] = new if found is None else found | new

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            rt.taints.pop(r, None)
            tainted_index(rt, index, where, "the index of a load")
        tiles: TileView = env[view]
        memory = rt.memory
        starts = [env[i] * by for i, by in zip(index, tiles.steps, strict=True)]
        array = tiles.view.array
        if tiles.sparse is not None:
            sparse_load(env, rt, tiles, starts)
            return
        box = Box(tiles, starts)
        if box.empty or (unchecked and not box.full):
            at = [env[i] for i in index]
            if box.empty:
                report_outside(rt, tiles, where, "loads", at)
            else:
                _report_unchecked(rt, tiles, where, at)
        if box.empty:
            env[r] = poisoned(rt, tiles.tile, dtype)
            memory.traffic(where).loads += 1
            return
        if not tiles.view.inside and _leaves(tiles, box, starts):
            offsets = box.footprint(starts).offsets()
            out, unwritten = gather(
                rt,
                array,
                offsets,
                None,
                poisoned(rt, tuple(offsets.shape), dtype),
                dtype,
                where,
                ordered,
            )
        else:
            at_memory = box.footprint(starts)
            out = at_memory.of(tiles.view.flat)
            out = (
                (out.clone() if array.region.written else out) if plain else from_memory(out, dtype)
            )
            traffic = memory.traffic(where)
            traffic.loads += 1
            traffic.bytes_loaded += out.numel() * itemsize
            unwritten = (
                memory.note_load(array, at_memory, itemsize, where, ordered)
                if memory.track
                else None
            )
        if acquires:
            memory.acquire(sync_points(array, box.footprint(starts).offsets(), itemsize))
        if not box.full:
            padding = None if unchecked else tiles.padding
            whole = padding_tile(rt, tiles.tile, dtype, padding)
            part = box.slices()
            whole[part] = out
            out = whole
            if padding is None or not (dt.is_float(dtype) or math.isfinite(padding)):
                mask = torch.ones(tiles.tile, dtype=torch.bool)
                mask[part] = False
                settle(rt, mask, "undetermined-padding", array.name)
            if unwritten is not None:
                unwritten = _spread(unwritten, tiles.tile, part)
        settle(rt, unwritten, "uninitialised-read", array.name)
        env[r] = out

    def sparse_load(env: Env, rt: Runtime, tiles: TileView, starts: list[Any]) -> None:
        offsets, valid = _sparse_offsets(tiles, starts)
        array = tiles.view.array
        if not bool(valid.any()):
            report_outside(rt, tiles, where, "gathers", [_short(s) for s in starts])
        whole = padding_tile(rt, tiles.tile, dtype, tiles.padding)
        out, unwritten = gather(rt, array, offsets, valid, whole, dtype, where, ordered)
        if tiles.padding is None:
            settle(rt, ~valid, "undetermined-padding", array.name)
        settle(rt, unwritten, "uninitialised-read", array.name)
        env[r] = out

    return step, taint.own


def _short(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def _spread(mask: torch.Tensor, shape: tuple[int, ...], part: tuple[slice, ...]) -> torch.Tensor:
    whole = torch.zeros(shape, dtype=torch.bool)
    whole[part] = mask
    return whole


def _leaves(tiles: TileView, box: Box, starts: list[int]) -> bool:
    """Tells whether the part inside the view's extents still leaves the argument's memory."""
    at = box.footprint(starts)
    last = at.offset + sum((n - 1) * s for n, s in zip(at.shape, at.strides, strict=True))
    low, high = limits(tiles.view.array, tiles.view.flat.element_size())
    return at.offset < low or last >= high


def sync_points(array: ArrayArg, offsets: torch.Tensor, itemsize: int) -> list[tuple[int, int]]:
    """Returns keys of elements that releases and acquires meet at."""
    key = id(array.region)
    return [(key, int(o) * itemsize) for o in offsets.flatten().tolist()]


@handler("tile_store")
def tile_store(op: Any, lo: Lowering) -> Any:
    """A tile written to an array; elements outside are left out."""
    view, index, tile = lo.slot(op.view), lo.slots(op.index), lo.slot(op.tile)
    lo.slot(op.result_var)
    where, ordered = line_of(op), strong(op)
    unchecked, releases = any(op.inbounds), op.memory_order is MemoryOrder.RELEASE
    dtype = op.tile.get_type().dtype
    itemsize = max(1, dtype.bitwidth // 8)
    plain = same_in_memory(dtype)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            tainted_index(rt, index, where, "the index of a store")
        tiles: TileView = env[view]
        memory, value = rt.memory, env[tile]
        starts = [env[i] * by for i, by in zip(index, tiles.steps, strict=True)]
        array = tiles.view.array
        found = rt.taints.get(tile)
        if tiles.sparse is not None:
            offsets, valid = _sparse_offsets(tiles, starts)
            if not bool(valid.any()):
                report_outside(rt, tiles, where, "scatters", [_short(s) for s in starts])
            scatter(rt, array, offsets, valid, value, dtype, where, ordered, found)
            return
        box = Box(tiles, starts)
        if box.empty or (unchecked and not box.full):
            indices = [env[i] for i in index]
            if box.empty:
                report_outside(rt, tiles, where, "stores", indices)
                memory.traffic(where).stores += 1
                return
            _report_unchecked(rt, tiles, where, indices)
        at = box.footprint(starts)
        part = () if box.full else box.slices()
        if part:
            value = value[part]
        if found is not None:
            mask = found.mask[part] if part else found.mask
            if bool(mask.any()):
                report_taint(
                    rt, found.origins, where, f"a store to {array.name!r}", int(mask.sum())
                )
        if 0 in at.strides or (not tiles.view.inside and _leaves(tiles, box, starts)):
            # Outside the argument, or maybe several elements at one place.
            scatter(rt, array, at.offsets(), None, value, dtype, where, ordered, None)
            return
        at.put(tiles.view.flat, value if plain else to_memory(value, dtype))
        memory.version += 1
        traffic = memory.traffic(where)
        traffic.stores += 1
        traffic.bytes_stored += value.numel() * itemsize
        if memory.track:
            memory.note_store(array, at, itemsize, where, ordered)
        if releases:
            memory.release(sync_points(array, at.offsets(), itemsize))

    return step, taint.own


# --------------------------------------------------------------------------------- pointers


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
    wanted = torch.ones(offsets.shape, dtype=torch.bool) if mask is None else mask
    legal = wanted & within(array, offsets, itemsize)
    bad = wanted & ~legal
    if bool(bad.any()):
        report_out_of_bounds(rt, array, where, offsets, bad)
    if found is not None and bool((found.mask & legal).any()):
        report_taint(
            rt, found.origins, where, f"a store to {array.name!r}", int((found.mask & legal).sum())
        )
    index, new = offsets[legal], value[legal]
    memory = rt.memory
    traffic = memory.traffic(where)
    traffic.stores += 1
    traffic.bytes_stored += index.numel() * itemsize
    if not index.numel():
        return
    _report_collisions(rt, array, index, where)
    array.region.typed(memory_dtype(dtype))[index] = to_memory(new, dtype)
    memory.version += 1
    if memory.track:
        memory.note_store(array, Scattered(index), itemsize, where, ordered)


def _report_collisions(
    rt: Runtime, array: ArrayArg, index: torch.Tensor, where: SourceLine
) -> None:
    """Reports elements that one scatter writes more than once."""
    if index.unique().numel() == index.numel():
        return
    if not rt.log.seen("write-conflict", where, array.name):
        ordered = index.sort().values
        first = int(ordered[:-1][ordered[1:] == ordered[:-1]][0])
        rt.log.add(
            "write-conflict",
            where,
            f"block {rt.block} writes {array.index_of(first)} more than once in one scatter; "
            "which of the values stays is undefined",
            about=array.name,
        )


@handler("load_pointer")
def load_pointer(op: Any, lo: Lowering) -> Any:
    """Elements that a tile of pointers points to; padding where the mask is false."""
    pointer, r = lo.slot(op.pointer), lo.slot(op.result_vars[0])
    lo.slot(op.result_vars[1])
    mask = None if op.mask is None else lo.slot(op.mask)
    pad = None if op.padding_value is None else lo.slot(op.padding_value)
    dtype, where = op.result_vars[0].get_type().dtype, line_of(op)
    scalar = lo.is_scalar(op.result_vars[0])
    addressing = (pointer,) if mask is None else (pointer, mask)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            rt.taints.pop(r, None)
            tainted_index(rt, addressing, where, "the address of a load")
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        allowed = None if mask is None else torch.as_tensor(env[mask]).expand(offsets.shape)
        shape = tuple(offsets.shape)
        if pad is None:
            base = poisoned(rt, shape, dtype)
        else:
            base = to_tensor(env[pad], dtype).expand(shape).clone()
        out, unwritten = gather(rt, at.array, offsets, allowed, base, dtype, where, False)
        env[r] = to_scalar(out, dtype) if scalar else out
        undetermined = ~allowed if pad is None and allowed is not None else None
        for found, kind in (
            (undetermined, "undetermined-padding"),
            (unwritten, "uninitialised-read"),
        ):
            if found is not None and bool(found.any()):
                new = taint.Taint(found, frozenset({taint.Origin(kind, where, at.array.name)}))
                old = rt.taints.get(r)
                rt.taints[r] = new if old is None else old | new

    return step, taint.own


@handler("store_pointer")
def store_pointer(op: Any, lo: Lowering) -> Any:
    """A tile written to where a tile of pointers points."""
    pointer, value = lo.slot(op.pointer), lo.slot(op.value)
    lo.slot(op.result_var)
    mask = None if op.mask is None else lo.slot(op.mask)
    dtype, where = op.value.get_type().dtype, line_of(op)
    addressing = (pointer,) if mask is None else (pointer, mask)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            tainted_index(rt, addressing, where, "the address of a store")
        at: Pointer = env[pointer]
        offsets = offsets_of(at)
        allowed = None if mask is None else torch.as_tensor(env[mask]).expand(offsets.shape)
        new = to_tensor(env[value], dtype).expand(offsets.shape)
        scatter(rt, at.array, offsets, allowed, new, dtype, where, False, rt.taints.get(value))

    return step, taint.own
