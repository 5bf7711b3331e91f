"""Interpreter handlers that make pointers, array views and block indices for later accesses."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from cuda.tile import _datatype as dt
from cuda.tile._datatype import DType, PointerInfo
from cuda.tile._ir.type import StridedViewTy
from cuda.tile._numeric_semantics import PaddingMode

from mla_var3.errors import InterpreterError
from mla_var3.interpreter.arrays import Pointer, View
from mla_var3.interpreter.handlers import handler
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.ops.arithmetic import unary_step
from mla_var3.interpreter.program import Env, Runtime, Step, line_of
from mla_var3.interpreter.values import memory_dtype, wrap_int
from mla_var3.interpreter.ways import place_of, turn

_PADDING = {
    PaddingMode.ZERO: 0.0,
    PaddingMode.NEG_ZERO: -0.0,
    PaddingMode.NAN: float("nan"),
    PaddingMode.POS_INF: float("inf"),
    PaddingMode.NEG_INF: float("-inf"),
}


@dataclass(frozen=True)
class TileView:
    """An array cut into tiles; axes are those of the tile, not of the array.

    Attributes:
        view: The array.
        tile: Shape of a tile.
        steps: Elements from one tile's origin to the next one's, by axis.
        extents: Size of the array along each axis.
        strides: Stride of the array along each axis.
        dtype: Element dtype.
        padding: Value outside the array; None if it is undetermined.
        sparse: The axis whose indices are a tile, if any; others then count elements.
    """

    view: View
    tile: tuple[int, ...]
    steps: tuple[int, ...]
    extents: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    padding: float | None
    sparse: int | None = None


def pointee_bytes(pointer: DType) -> int:
    """Returns the bytes of the element that a pointer dtype points to."""
    if dt.is_foreign_pointer_dtype(pointer):
        return int(dt.foreign_pointer_pointee_dtype(pointer).bitwidth) // 8
    return max(1, int(PointerInfo(pointer).pointee_dtype.bitwidth) // 8)


def _same(op: Any, lo: Lowering, var: Any) -> Step:
    return unary_step(lo.slot(var), lo.slot(op.result_var), lambda value: value)


@handler("assign")
def assign(op: Any, lo: Lowering) -> Any:
    """Another name for a value."""
    return _same(op, lo, op.value)


@handler("foreign_pointer_cast")
def foreign_pointer_cast(op: Any, lo: Lowering) -> Any:
    """A pointer as a foreign pointer, or back."""
    return _same(op, lo, op.pointer)


@handler("address_space_cast")
def address_space_cast(op: Any, lo: Lowering) -> Any:
    """A pointer in another address space; there is one here."""
    return _same(op, lo, op.pointer)


@handler("reinterpret_pointer")
def reinterpret_pointer(op: Any, lo: Lowering) -> Any:
    """A pointer to elements of another dtype."""
    size = pointee_bytes(op.result_var.get_type().dtype)

    def recount(pointer: Pointer) -> Pointer:
        return Pointer(pointer.array, pointer.offset * pointer.itemsize // size, size)

    return unary_step(lo.slot(op.pointer), lo.slot(op.result_var), recount)


@handler("pointer_offset")
def pointer_offset(op: Any, lo: Lowering) -> Any:
    """A pointer moved by a number of elements."""
    p, n, r = lo.slot(op.pointer), lo.slot(op.offset), lo.slot(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        pointer, by = env[p], env[n]
        if isinstance(by, int):
            by = wrap_int(by, dt.int64)
        env[r] = Pointer(pointer.array, pointer.offset + by, pointer.itemsize)

    return step


@handler("make_tensor_view")
def make_tensor_view(op: Any, lo: Lowering) -> Any:
    """An array from its base pointer, sizes and strides."""
    base, r = lo.slot(op.base_ptr), lo.slot(op.result_var)
    shape, strides = lo.slots(op.shape), lo.slots(op.strides)
    dtype = memory_dtype(op.result_var.get_type().dtype)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = View(
            env[base], tuple(env[s] for s in shape), tuple(env[s] for s in strides), dtype
        )

    return step


@handler("make_list_view")
def make_list_view(op: Any, lo: Lowering) -> Any:
    """A list of arrays; its base pointer is the Python list itself."""
    return _same(op, lo, op.base_ptr)


@handler("get_array_list_item")
def get_array_list_item(op: Any, lo: Lowering) -> Any:
    """An array of a list, as base pointer, sizes and strides."""
    x, index, results = lo.slot(op.x), lo.slot(op.index), lo.slots(op.result_vars)
    file, line = line_of(op)

    def step(env: Env, rt: Runtime) -> None:
        items, i = env[x], env[index]
        if not 0 <= i < len(items):
            raise InterpreterError(
                f"{file}:{line}: block {rt.block} takes array {i} of a list of {len(items)}; "
                "what that array would be is undefined"
            )
        for r, value in zip(results, items[i], strict=True):
            env[r] = value

    return step


def _tile_view(op: Any, lo: Lowering) -> Any:
    ty, array, r = op.result_var.get_type(), lo.slot(op.array), lo.slot(op.result_var)
    order = getattr(ty, "order", tuple(range(len(ty.tile_shape))))
    sparse = getattr(ty, "sparse_dim", None)
    steps = ty.traversal_steps if isinstance(ty, StridedViewTy) else ty.tile_shape
    if sparse is not None:
        steps = (1,) * len(ty.tile_shape)
    padding = _PADDING.get(ty.padding_mode)
    dtype = ty.array_ty.dtype

    def build(view: View) -> TileView:
        return TileView(
            view,
            tuple(ty.tile_shape),
            tuple(steps),
            tuple(view.shape[axis] for axis in order),
            tuple(view.strides[axis] for axis in order),
            dtype,
            padding,
            sparse,
        )

    return unary_step(array, r, build)


@handler("make_partition_view")
def make_partition_view(op: Any, lo: Lowering) -> Any:
    """An array cut into tiles side by side."""
    return _tile_view(op, lo)


@handler("make_strided_view")
def make_strided_view(op: Any, lo: Lowering) -> Any:
    """An array cut into tiles that overlap or leave gaps."""
    return _tile_view(op, lo)


@handler("make_gather_scatter_view")
def make_gather_scatter_view(op: Any, lo: Lowering) -> Any:
    """An array of which slices are chosen by index along one axis."""
    return _tile_view(op, lo)


@handler("num_tiles")
def num_tiles(op: Any, lo: Lowering) -> Any:
    """The number of tiles along each axis."""
    view, results = lo.slot(op.view), lo.slots(op.result_vars)

    def step(env: Env, rt: Runtime) -> None:
        tiles: TileView = env[view]
        for r, extent, by in zip(results, tiles.extents, tiles.steps, strict=True):
            env[r] = -(-extent // by)

    return step


@handler("tile_bid")
def tile_bid(op: Any, lo: Lowering) -> Any:
    """The block's index along an axis of the grid."""
    axis, r = op.axis, lo.slot(op.result_var)
    place = f"axis {axis} of the grid in {place_of(line_of(op))}"

    def step(env: Env, rt: Runtime) -> None:
        env[r] = rt.block[axis]
        rt.went("block", place, turn(rt.block[axis]))

    return step


@handler("tile_num_blocks")
def tile_num_blocks(op: Any, lo: Lowering) -> Any:
    """The number of blocks along an axis of the grid."""
    axis, r = op.axis, lo.slot(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = rt.grid[axis]

    return step


@handler("make_dummy")
def make_dummy(op: Any, lo: Lowering) -> Any:
    """Stands for a variable that a loop carries before anything assigned it: nobody reads it."""
    r = lo.slot(op.result_var)

    def step(env: Env, rt: Runtime) -> None:
        env[r] = None

    return step


def _nothing(op: Any, lo: Lowering) -> None:
    """Operations run in program order, so nothing need order them."""
    for result in op.result_vars:
        lo.slot(result)


handler("make_token")(_nothing)
handler("join_tokens")(_nothing)
handler("grid_dependency_control_wait")(_nothing)
handler("grid_dependency_control_launch_dependents")(_nothing)


def offsets_of(pointer: Pointer) -> torch.Tensor:
    """Returns a pointer tile's element offsets as an int64 tensor."""
    return torch.as_tensor(pointer.offset, dtype=torch.int64)
