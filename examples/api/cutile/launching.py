"""Kernels, launches, grids, compile time and debugging in cuTile, one cell per group."""

from typing import Annotated

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% kernel launch bid num_blocks num_tiles Constant ByTarget
@ct.kernel(occupancy=2, num_ctas=ct.ByTarget(sm_100=2, default=1))
def copy(x, y, TILE: ct.Constant[int]):
    # A persistent loop: block i takes tiles i, i + blocks, ...
    for i in range(ct.bid(0), ct.num_tiles(x, 0, (TILE,)), ct.num_blocks(0)):
        ct.store(y, (i,), ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO))


x, y = torch.arange(100.0), torch.empty(100)
ct.launch(stream, (3,), copy, (x, y, 16))
assert torch.equal(x, y)
faster = copy.replace_hints(occupancy=4)  # Other hints, and a cache of its own.


# %% function
@ct.function(host=True)
def padded(n, to):
    return (n + to - 1) // to * to


@ct.kernel
def rounded(out, N: ct.Constant[int]):
    ct.store(out, (0,), ct.full((1,), padded(N, 8), ct.int32))


out = torch.empty(1, dtype=torch.int32)
ct.launch(stream, (1,), rounded, (out, 13))
assert out.item() == padded(13, 8) == 16


# %% Array ArrayAnnotation IndexedWithInt64 ScalarInt64 ListAnnotation Scalar ConstantAnnotation
@ct.kernel
def typed(
    x: Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(0,))],
    out: ct.IndexedWithInt64,
    factor: ct.ScalarInt64,
    WIDTH: Annotated[int, ct.ConstantAnnotation()],  # What ct.Constant[int] stands for.
    shift: ct.Scalar,
):
    ct.static_assert(x.shape[0] == 8)  # Part of the compiled kernel: 16 compiles anew.
    ct.store(out, (0,), ct.load(x, (0,), (WIDTH,)) * factor + shift)


@ct.kernel
def listed(parts: Annotated[list, ct.ListAnnotation(element=ct.ArrayAnnotation())], out):
    i = ct.bid(0)
    ct.store(out, (i, 0), ct.load(parts[i], (0,), (8,)).reshape((1, 8)))


x, out = torch.arange(8), torch.empty(8, dtype=torch.int64)
ct.launch(stream, (1,), typed, (x, out, 2**40, 8, 1))
assert torch.equal(out, x * 2**40 + 1)
out = torch.empty(2, 8, dtype=torch.int64)
ct.launch(stream, (2,), listed, ([x, x + 1], out))
assert torch.equal(out, torch.stack([x, x + 1]))


# %% static_assert static_eval static_iter static_exception ensure_constant
@ct.kernel
def unrolled(x, out, WIDTHS: ct.Constant):
    ct.static_assert(len(WIDTHS) > 0, "no width")
    if len(WIDTHS) > 3:  # A condition of constants: the branch is compiled only where it holds.
        raise ct.static_exception(ValueError("at most three widths"))
    total = ct.zeros((1,), ct.float32)
    for width in ct.static_iter(WIDTHS):  # Python's loop: each width is a constant.
        total += ct.sum(ct.load(x, (0,), (ct.ensure_constant(width),)), keepdims=True)
    ct.store(out, (0,), ct.static_eval(total if len(WIDTHS) % 2 == 0 else total + 1))


x, out = torch.arange(8.0), torch.empty(1)
ct.launch(stream, (1,), unrolled, (x, out, (2, 8)))
assert out.item() == 1 + 28


# %% assume_divisible_by
@ct.kernel
def aligned(x, start, out):
    start = ct.assume_divisible_by(start, 8)  # A promise: undefined where it does not hold.
    part = x.slice(0, start, start + 8)
    ct.store(out, (0,), ct.load(part, (0,), (8,)))


x, out = torch.arange(32.0), torch.empty(8)
ct.launch(stream, (1,), aligned, (x, 16, out))
assert torch.equal(out, x[16:24])


# %% print printf assert_
@ct.kernel
def told(x):
    tile = ct.load(x, (0,), (4,))
    ct.assert_(tile >= 0, "negative input")
    ct.print(f"tile = {tile}")
    ct.printf("%f\n", tile)


ct.launch(stream, (1,), told, (torch.arange(4.0),))


# %% grid_dependency_control_wait grid_dependency_control_launch_dependents
@ct.kernel
def second(x, y):
    ct.grid_dependency_control_wait()  # Until the kernel before is done with its memory.
    ct.store(y, (0,), ct.load(x, (0,), (4,)))
    ct.grid_dependency_control_launch_dependents()  # The kernel after may start.


x, y = torch.arange(4.0), torch.empty(4)
ct.launch(stream, (1,), second, (x, y))
assert torch.equal(x, y)


# %% bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 bfloat16 float32 float64
# %% tfloat32 float8_e4m3fn float8_e5m2
@ct.kernel
def through(x, out):
    tile = ct.load(x, (0,), (4,))
    for dtype in ct.static_iter(
        (ct.int8, ct.int16, ct.int32, ct.int64, ct.uint8, ct.uint16, ct.uint32, ct.uint64,
         ct.float16, ct.bfloat16, ct.float32, ct.float64, ct.tfloat32, ct.float8_e4m3fn,
         ct.float8_e5m2, x.dtype)
    ):  # fmt: skip
        tile = ct.astype(tile, dtype)
    ct.store(out, (0,), ct.where(ct.astype(tile, ct.bool_), tile, -1))


x, out = torch.arange(4.0), torch.empty(4)
ct.launch(stream, (1,), through, (x, out))
assert out.tolist() == [-1, 1, 2, 3]  # Small integers fit each of them.
