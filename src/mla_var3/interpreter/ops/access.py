"""Interpreter handlers of tile loads and stores through array views; they check bounds."""

from __future__ import annotations

from typing import Any

import torch
from cuda.tile._datatype import DType
from cuda.tile._memory_model import MemoryOrder, MemoryScope

from mla_var3.interpreter import taint
from mla_var3.interpreter.arrays import ArrayArg
from mla_var3.interpreter.footprint import Strided
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.pointers import gather, scatter
from mla_var3.interpreter.ops.undetermined import (
    determined,
    enter,
    in_decision,
    in_value,
    outside_tile,
    padding_tile,
    poisoned,
)
from mla_var3.interpreter.ops.views import TileView
from mla_var3.interpreter.program import Env, Runtime, line_of
from mla_var3.interpreter.values import from_memory, same_in_memory, to_memory
from mla_var3.interpreter.ways import place_of, turn


def across_blocks(op: Any) -> bool:
    """Tells whether other blocks take part in the order of an access."""
    return op.memory_scope is not MemoryScope.BLOCK


def strong(op: Any) -> bool:
    """Tells whether an access is ordered (relaxed or stronger) with those of other blocks."""
    return op.memory_order is not MemoryOrder.WEAK and across_blocks(op)


def _moving(op: Any, lo: Lowering) -> list[tuple[int, int]]:
    """Axis and slot of each index of an access that is not a constant."""
    return [(n, lo.slot(i)) for n, i in enumerate(op.index) if lo.constant(i) is None]


def _noted(
    env: Env, rt: Runtime, tiles: TileView, box: Box, moving: list[tuple[int, int]], place: str
) -> None:
    """Notes which tiles an access took along its moving axes, and whether they met the edge."""
    for axis, slot in moving:
        where = f"axis {axis} of {tiles.view.array.name} in {place}"
        rt.went("tile", where, turn(env[slot]))
        if (width := tiles.tile[axis]) > 1:
            whole = box.lo[axis] == 0 and box.hi[axis] == width
            rt.went("edge", where, "whole" if whole else "ragged")


class Box:
    """Where a tile meets its array: a box of the tile, and the footprint of that box.

    Attributes:
        lo: First element inside, by axis of the tile.
        hi: Past the last element inside.
        full: Whether the whole tile is inside.
        empty: Whether the tile lies outside. The first tile of an axis without elements does not:
            it is a part that has none, as the end of a ragged batch does.
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
                    self.empty = self.empty or start != 0 or extent != 0
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
            "info" if rt.hardware_padding else "error",
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


# ----------------------------------------------------------------------------- sparse tiles


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


def _short(value: Any) -> Any:
    return value.tolist() if isinstance(value, torch.Tensor) else value


# ------------------------------------------------------------------------------ dense tiles


def _leaves(tiles: TileView, box: Box, starts: list[int]) -> bool:
    """Tells whether the part inside the view's extents still leaves the argument's memory."""
    return not bool(
        tiles.view.array.has(box.footprint(starts).offsets(), tiles.view.flat.element_size()).all()
    )


def sync_points(array: ArrayArg, offsets: torch.Tensor, itemsize: int) -> list[tuple[int, int]]:
    """Returns keys of elements that releases and acquires meet at."""
    key = id(array.region)
    return [(key, int(o) * itemsize) for o in offsets.flatten().tolist()]


def _spread(mask: torch.Tensor, shape: tuple[int, ...], part: tuple[slice, ...]) -> torch.Tensor:
    whole = torch.zeros(shape, dtype=torch.bool)
    whole[part] = mask
    return whole


def _load_part(
    rt: Runtime,
    tiles: TileView,
    box: Box,
    starts: list[int],
    dtype: DType,
    where: SourceLine,
    ordered: bool,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Reads the part of a tile that is inside; also which elements nothing ever wrote."""
    array, memory, at = tiles.view.array, rt.memory, box.footprint(starts)
    if not tiles.view.inside and _leaves(tiles, box, starts):
        offsets = at.offsets()
        base = poisoned(rt, tuple(offsets.shape), dtype)
        return gather(rt, array, offsets, None, base, dtype, where, ordered)
    out = at.of(tiles.view.flat)
    if same_in_memory(dtype):
        out = out.clone() if array.region.written else out
    else:
        out = from_memory(out, dtype)
    memory.looks += array.region.written
    itemsize = max(1, dtype.bitwidth // 8)
    traffic = memory.traffic(where)
    traffic.loads += 1
    traffic.bytes_loaded += out.numel() * itemsize
    if not memory.track:
        return out, None
    return out, memory.note_load(array, at, itemsize, where, ordered)


@handler("tile_load")
def tile_load(op: Any, lo: Lowering) -> Any:
    """A tile of an array, with padding where it reaches outside."""
    view, index, r = lo.slot(op.view), lo.slots(op.index), lo.slot(op.result_vars[0])
    where, ordered = line_of(op), strong(op)
    place, moving = place_of(where), _moving(op, lo)
    unchecked = any(op.inbounds)
    acquires = op.memory_order is MemoryOrder.ACQUIRE and op.result_vars[0].name in lo.used
    acquires = acquires and across_blocks(op)
    dtype = op.result_vars[0].get_type().dtype
    itemsize = max(1, dtype.bitwidth // 8)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            rt.taints.pop(r, None)
            in_decision(rt, index, where, "the index of a load", address=True)
        tiles: TileView = env[view]
        starts = [env[i] * by for i, by in zip(index, tiles.steps, strict=True)]
        array = tiles.view.array
        if tiles.sparse is not None:
            sparse_load(env, rt, tiles, starts)
            return
        box = Box(tiles, starts)
        _noted(env, rt, tiles, box, moving, place)
        if box.empty:
            report_outside(rt, tiles, where, "loads", [env[i] for i in index])
            env[r] = outside_tile(rt, tiles.tile, dtype, tiles.padding)
            rt.memory.traffic(where).loads += 1
            return
        if unchecked and not box.full:
            _report_unchecked(rt, tiles, where, [env[i] for i in index])
        out, unwritten = _load_part(rt, tiles, box, starts, dtype, where, ordered)
        if acquires:
            points = sync_points(array, box.footprint(starts).offsets(), itemsize)
            rt.memory.hazards.acquire(points)
        if not box.full:
            out, unwritten = padded(rt, tiles, box, out, unwritten)
        enter(rt, r, unwritten, taint.Origin("uninitialised-read", where, array.name))
        env[r] = out

    def padded(
        rt: Runtime, tiles: TileView, box: Box, out: torch.Tensor, unwritten: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        padding = None if unchecked else tiles.padding
        whole = padding_tile(rt, tiles.tile, dtype, padding)
        part = box.slices()
        whole[part] = out
        if not determined(padding, dtype):
            mask = torch.ones(tiles.tile, dtype=torch.bool)
            mask[part] = False
            enter(rt, r, mask, taint.Origin("undetermined-padding", where, tiles.view.array.name))
        return whole, None if unwritten is None else _spread(unwritten, tiles.tile, part)

    def sparse_load(env: Env, rt: Runtime, tiles: TileView, starts: list[Any]) -> None:
        offsets, valid = _sparse_offsets(tiles, starts)
        array = tiles.view.array
        if not bool(valid.any()):
            report_outside(rt, tiles, where, "gathers", [_short(s) for s in starts])
        whole = padding_tile(rt, tiles.tile, dtype, tiles.padding)
        out, unwritten = gather(rt, array, offsets, valid, whole, dtype, where, ordered)
        if not determined(tiles.padding, dtype):
            enter(rt, r, ~valid, taint.Origin("undetermined-padding", where, array.name))
        enter(rt, r, unwritten, taint.Origin("uninitialised-read", where, array.name))
        env[r] = out

    return step, taint.own


@handler("tile_store")
def tile_store(op: Any, lo: Lowering) -> Any:
    """A tile written to an array; elements outside are left out."""
    view, index, tile = lo.slot(op.view), lo.slots(op.index), lo.slot(op.tile)
    where, ordered = line_of(op), strong(op)
    place, moving = place_of(where), _moving(op, lo)
    unchecked = any(op.inbounds)
    releases = op.memory_order is MemoryOrder.RELEASE and across_blocks(op)
    dtype = op.tile.get_type().dtype
    itemsize = max(1, dtype.bitwidth // 8)
    plain = same_in_memory(dtype)

    def step(env: Env, rt: Runtime) -> None:
        if rt.taints:
            in_decision(rt, index, where, "the index of a store", address=True)
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
        _noted(env, rt, tiles, box, moving, place)
        if box.empty:
            report_outside(rt, tiles, where, "stores", [env[i] for i in index])
            memory.traffic(where).stores += 1
            return
        if unchecked and not box.full:
            _report_unchecked(rt, tiles, where, [env[i] for i in index])
        at = box.footprint(starts)
        part = () if box.full else box.slices()
        value = value[part] if part else value
        if array.overlaps or (not tiles.view.inside and _leaves(tiles, box, starts)):
            # Outside the argument, or maybe several elements at one place.
            inner = None if found is None else found.map(lambda labels: labels[part])
            scatter(rt, array, at.offsets(), None, value, dtype, where, ordered, inner)
            return
        in_value(rt, found, part or None, where, f"a store to {array.name!r}")
        at.put(tiles.view.flat, value if plain else to_memory(value, dtype))
        memory.version += 1
        traffic = memory.traffic(where)
        traffic.stores += 1
        traffic.bytes_stored += value.numel() * itemsize
        if memory.track:
            memory.note_store(array, at, itemsize, where, ordered)
        if releases:
            memory.hazards.release(sync_points(array, at.offsets(), itemsize))

    return step, taint.own
