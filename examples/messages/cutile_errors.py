"""Kernels that cuTile refuses to compile, each beside its mended twin.

``nox -s run -- examples/messages/cutile_errors.py`` prints what cuTile's compiler says of each,
without a GPU. docs/messages/cutile-errors.md explains them.
"""

import cuda.tile as ct
import torch


# "Dimension #1 of shape (64, 576) is not a power of two": keys of 512 + 64 numbers per token.
@ct.kernel
def whole_row(q, k, s):
    """One tile for all 576 columns."""
    queries, keys = ct.load(q, (0, 0), (64, 576)), ct.load(k, (0, 0), (64, 576))
    zeros = ct.zeros((64, 64), ct.float32)
    ct.store(s, (0, 0), ct.mma(queries, keys.transpose(), zeros))


@ct.kernel
def two_parts(q, k, s):
    """A tile of 512 columns, then one of the last 64, which is tile 8 of that width."""
    left = ct.load(q, (0, 0), (64, 512)), ct.load(k, (0, 0), (64, 512))
    right = ct.load(q, (0, 8), (64, 64)), ct.load(k, (0, 8), (64, 64))
    scores = ct.mma(left[0], left[1].transpose(), ct.zeros((64, 64), ct.float32))
    ct.store(s, (0, 0), ct.mma(right[0], right[1].transpose(), scores))


# "Expected a constant integer tuple, but given value is not constant".
@ct.kernel
def plain_size(x, y, size):
    """An ordinary argument is known at launch only."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (size, size)))


@ct.kernel
def constant_size(x, y, size: ct.Constant[int]):
    """A constant is compiled in: one kernel per value."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (size, size)))


# "x and y must have the same dtype".
@ct.kernel
def two_dtypes(a, b, y):
    """Operands of bfloat16 and of float32."""
    zeros = ct.zeros((64, 64), ct.float32)
    ct.store(y, (0, 0), ct.mma(ct.load(a, (0, 0), (64, 64)), ct.load(b, (0, 0), (64, 64)), zeros))


@ct.kernel
def one_dtype(a, b, y):
    """The weights are rounded to the type of the other operand first."""
    left, right = ct.load(a, (0, 0), (64, 64)), ct.load(b, (0, 0), (64, 64))
    zeros = ct.zeros((64, 64), ct.float32)
    ct.store(y, (0, 0), ct.mma(left, right.astype(a.dtype), zeros))


# "Unsupported acc dtype bfloat16".
@ct.kernel
def narrow_sum(a, y):
    """Products of bfloat16 summed in bfloat16."""
    tile = ct.load(a, (0, 0), (64, 64))
    ct.store(y, (0, 0), ct.mma(tile, tile, ct.zeros((64, 64), ct.bfloat16)))


@ct.kernel
def wide_sum(a, y):
    """Sums in float32, rounded once at the end."""
    tile = ct.load(a, (0, 0), (64, 64))
    total = ct.mma(tile, tile, ct.zeros((64, 64), ct.float32))
    ct.store(y, (0, 0), total.astype(y.dtype))


# "Incompatible shapes for matrix mul on tiles".
@ct.kernel
def rows_by_rows(a, b, y):
    """Both operands have the inner dimension last, as keys lie in memory."""
    zeros = ct.zeros((64, 64), ct.float32)
    ct.store(y, (0, 0), ct.mma(ct.load(a, (0, 0), (64, 32)), ct.load(b, (0, 0), (64, 32)), zeros))


@ct.kernel
def rows_by_columns(a, b, y):
    """The second operand is transposed: [m, k] times [k, n]."""
    left, right = ct.load(a, (0, 0), (64, 32)), ct.load(b, (0, 0), (64, 32))
    ct.store(y, (0, 0), ct.mma(left, right.transpose(), ct.zeros((64, 64), ct.float32)))


# "Shapes are not broadcastable".
@ct.kernel
def flat_maximum(x, y):
    """A maximum per row has 32 elements, which would lie along the 64 columns."""
    tile = ct.load(x, (0, 0), (32, 64))
    ct.store(y, (0, 0), tile - ct.max(tile, axis=1))


@ct.kernel
def kept_maximum(x, y):
    """It keeps its dimension, of size 1."""
    tile = ct.load(x, (0, 0), (32, 64))
    ct.store(y, (0, 0), tile - ct.max(tile, axis=1, keepdims=True))


# "Index size 1 does not match the array rank 2".
@ct.kernel
def short_index(x, y):
    """One index for an array of two dimensions."""
    ct.store(y, (0, 0), ct.load(x, (0,), (64,)).reshape((1, 64)))


@ct.kernel
def full_index(x, y):
    """An index and an extent per dimension."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (1, 64)))


# "Type of `total` depends on path taken".
@ct.kernel
def changing(x, y):
    """The loop makes a float32 tile of one of bfloat16."""
    total = ct.load(x, (0, 0), (64, 64))
    for _ in range(ct.bid(0) + 2):
        total = total + ct.ones((64, 64), ct.float32)
    ct.store(y, (0, 0), total)


@ct.kernel
def steady(x, y):
    """It starts with the type and the shape that the loop gives it."""
    total = ct.load(x, (0, 0), (64, 64)).astype(ct.float32)
    for _ in range(ct.bid(0) + 2):
        total = total + ct.ones((64, 64), ct.float32)
    ct.store(y, (0, 0), total)


# "Use of potentially undefined variable `tile`".
@ct.kernel
def one_side(x, y):
    """Only one side of the branch defines it."""
    if ct.bid(0) == 0:
        tile = ct.load(x, (0, 0), (64, 64))
    ct.store(y, (0, 0), tile)


@ct.kernel
def both_sides(x, y):
    """A value from before stands on the other side."""
    tile = ct.zeros((64, 64), x.dtype)
    if ct.bid(0) == 0:
        tile = ct.load(x, (0, 0), (64, 64))
    ct.store(y, (0, 0), tile)


# "Expected a scalar value, but given value has type".
@ct.kernel
def branch_on_tile(x, y):
    """An `if` over 64 times 64 conditions."""
    tile = ct.load(x, (0, 0), (64, 64))
    if tile > 0:
        ct.store(y, (0, 0), tile)


@ct.kernel
def select(x, y):
    """A choice per element."""
    tile = ct.load(x, (0, 0), (64, 64))
    ct.store(y, (0, 0), ct.where(tile > 0, tile, 0.0))


# "cannot implicitly cast float32 to bfloat16".
@ct.kernel
def stored_wide(x, y):
    """A float32 tile into an array of bfloat16."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)))


@ct.kernel
def stored_narrow(x, y):
    """Rounded by name."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)).astype(y.dtype))


# "Implicit promotion of bfloat16 and float16 is not supported".
@ct.kernel
def two_halves(a, b, y):
    """Neither type holds the values of the other."""
    ct.store(y, (0, 0), ct.load(a, (0, 0), (64, 64)) + ct.load(b, (0, 0), (64, 64)))


@ct.kernel
def in_float32(a, b, y):
    """Both hold in float32."""
    left, right = ct.load(a, (0, 0), (64, 64)), ct.load(b, (0, 0), (64, 64))
    ct.store(y, (0, 0), left.astype(ct.float32) + right.astype(ct.float32))


# "Directly indexing a tile is not supported".
@ct.kernel
def sliced(x, y):
    """Python's slice of a tile."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64))[:32])


@ct.kernel
def extracted(x, y):
    """The first of two tiles of 32 rows in it."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)).extract((0, 0), (32, 64)))


# "exp() is not supported in device code".
@ct.kernel
def by_torch(x, y):
    """A function of torch, which a block cannot call."""
    ct.store(y, (0, 0), torch.exp(ct.load(x, (0, 0), (64, 64))))


@ct.kernel
def by_cutile(x, y):
    """The one of cuTile."""
    ct.store(y, (0, 0), ct.exp(ct.load(x, (0, 0), (64, 64))))


# "Unsupported syntax".
@ct.kernel
def listed(x, y):
    """A list that Python would build."""
    parts = [ct.load(x, (0, j), (64, 32)) for j in range(2)]
    ct.store(y, (0, 0), ct.cat((parts[0], parts[1]), 1))


@ct.kernel
def tupled(x, y):
    """A tuple written out."""
    parts = ct.load(x, (0, 0), (64, 32)), ct.load(x, (0, 1), (64, 32))
    ct.store(y, (0, 0), ct.cat(parts, 1))


BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32


def square(*dtypes: torch.dtype) -> list:
    """Shapes and dtypes of arrays of 64 times 64."""
    return [((64, 64), dtype) for dtype in dtypes]


def rows(*shapes: tuple[int, int], dtype: torch.dtype = FP32) -> list:
    """Shapes and dtypes of other arrays."""
    return [(shape, dtype) for shape in shapes]


#: Values from outside of a kernel, as two kernels use them.
FACTORS, TWICE = [2.0, 4.0], 2.0


# "Cannot create constant from value of type list".
@ct.kernel
def outer_list(x, y):
    """A list from outside of the kernel; so is a tensor or an array."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)) * FACTORS[0])


@ct.kernel
def outer_number(x, y):
    """A number from outside of the kernel becomes a constant of it."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)) * TWICE)


# "Undefined variable twice used".
@ct.kernel
def unknown_name(x, y):
    """A name that is nowhere when the kernel is compiled."""
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)) * twice)  # noqa: F821


@ct.kernel
def known_name(x, y):
    """A name of the kernel itself."""
    twice = 2.0
    ct.store(y, (0, 0), ct.load(x, (0, 0), (64, 64)) * twice)


#: What the compiler says, the refused kernel, the mended one, and the arguments of both.
CASES = {
    "is not a power of two": (
        whole_row, two_parts, [*rows((64, 576), (64, 576), dtype=BF16), *square(FP32)],
    ),
    "Expected a constant integer tuple": (plain_size, constant_size, square(FP32, FP32)),
    "x and y must have the same dtype": (two_dtypes, one_dtype, square(BF16, FP32, FP32)),
    "Unsupported acc dtype": (narrow_sum, wide_sum, square(BF16, BF16)),
    "Incompatible shapes for matrix mul": (
        rows_by_rows, rows_by_columns, square(BF16, BF16, FP32),
    ),
    "Shapes are not broadcastable": (flat_maximum, kept_maximum, rows((32, 64), (32, 64))),
    "does not match the array rank": (short_index, full_index, rows((1, 64), (1, 64))),
    "depends on path taken": (changing, steady, square(BF16, FP32)),
    "Use of potentially undefined variable": (one_side, both_sides, square(FP32, FP32)),
    "Expected a scalar value": (branch_on_tile, select, square(FP32, FP32)),
    "cannot implicitly cast": (stored_wide, stored_narrow, square(FP32, BF16)),
    "Implicit promotion of": (two_halves, in_float32, square(BF16, FP16, FP32)),
    "Directly indexing a tile is not supported": (sliced, extracted, rows((64, 64), (32, 64))),
    "is not supported in device code": (by_torch, by_cutile, square(FP32, FP32)),
    "Cannot create constant from value of type": (outer_list, outer_number, square(FP32, FP32)),
    "Undefined variable": (unknown_name, known_name, square(FP32, FP32)),
    "Unsupported syntax": (listed, tupled, square(FP32, FP32)),
}  # fmt: skip


def said(kernel, arguments) -> str:
    """What cuTile says of a kernel; empty where it runs.

    Args:
        kernel: A kernel of this file.
        arguments: Shapes and dtypes of its arrays: no message here depends on values.
    """
    arrays = [torch.zeros(shape, dtype=dtype, device="cuda") for shape, dtype in arguments]
    sizes = [64] if kernel in (plain_size, constant_size) else []
    try:
        ct.launch(torch.cuda.current_stream(), (1,), kernel, (*arrays, *sizes))
    except Exception as error:  # noqa: BLE001 (the compiler raises several classes)
        return str(error)
    return ""


def main() -> None:
    """Print what is said of each refused form, and of its mended one."""
    for refused, mended, arguments in CASES.values():
        print((said(refused, arguments) or "runs").splitlines()[0])
        print(f"    mended: {said(mended, arguments) or 'runs'}")


if __name__ == "__main__":
    main()
