"""Layouts of the CuTe DSL, each fact checked while it is traced; runs without a GPU."""

import cutlass
from cutlass import cute


# %% cute.make_layout cute.make_ordered_layout cute.shape cute.rank cute.size cute.cosize
# %% cute.crd2idx cute.size_in_bytes cutlass.Layout
@cute.jit
def shapes():
    column = cute.make_layout((4, 8))  # (4,8):(1,4): the first mode is contiguous
    row = cute.make_ordered_layout((4, 8), order=(1, 0))  # (4,8):(8,1)
    assert (column((1, 2)), row((1, 2))) == (9, 10)
    assert cute.crd2idx((1, 2), row) == 10
    assert (cute.size(row), cute.rank(row), cute.shape(row)) == (32, 2, (4, 8))
    gap = cute.make_layout((4, 8), stride=(16, 1))
    assert cute.cosize(gap) == 56  # One more than the largest offset.
    assert cute.size_in_bytes(cutlass.Float16, row) == 64
    cutlass.Layout  # noqa: B018 - its type


# %% cute.logical_divide cute.zipped_divide cute.tiled_divide cute.flat_divide
@cute.jit
def divided():
    matrix = cute.make_layout((8, 12))
    tiler = (4, 6)
    logical = cute.logical_divide(matrix, tiler)
    assert cute.shape(logical) == ((4, 2), (6, 2))  # Per mode: (within the tile, which tile).
    zipped = cute.zipped_divide(matrix, tiler)
    assert cute.shape(zipped) == ((4, 6), (2, 2))  # All insides, then all tiles.
    assert cute.shape(cute.tiled_divide(matrix, tiler)) == ((4, 6), 2, 2)
    assert cute.shape(cute.flat_divide(matrix, tiler)) == (4, 6, 2, 2)
    assert zipped(((1, 2), (1, 1))) == matrix((5, 8))  # Element (1, 2) of tile (1, 1).


# %% cute.local_tile cute.local_partition cute.make_identity_tensor
@cute.jit
def tile_and_part():
    whole = cute.make_identity_tensor((8, 12))  # Each element is its own coordinate.
    tile = cute.local_tile(whole, (4, 6), (1, 1))  # A block's: neighbors, in one piece.
    assert cute.shape(tile) == (4, 6)
    assert (tile[0, 0], tile[3, 5]) == ((4, 6), (7, 11))
    a = cute.make_identity_tensor((256, 64))  # An operand [M, K] of a product with one tiler.
    tiler, block = (128, 256, 32), (1, 0, None)  # Of M, N and K; the block's place, all of K.
    steps = cute.local_tile(a, tiler, block, proj=(1, None, 1))  # N is left out of both.
    assert cute.shape(steps) == (128, 32, 2)
    assert steps[0, 0, 1] == (128, 32)
    threads = cute.make_layout((2, 3))
    mine = cute.local_partition(tile, threads, cutlass.Int32(5))  # Thread 5 is at (1, 2) of them.
    assert cute.shape(mine) == (2, 2)
    assert (mine[0, 0], mine[1, 0], mine[0, 1]) == ((5, 8), (7, 8), (5, 11))  # 2 and 3 apart.


# %% cute.composition cute.coalesce cute.flatten cute.group_modes cute.select cute.get cute.slice_
# %% cute.dice cute.append cute.prepend cute.filter_zeros
@cute.jit
def algebra():
    by_twos = cute.make_layout(4, stride=2)
    picked = cute.composition(cute.make_layout((2, 4), stride=(4, 1)), by_twos)
    assert picked(3) == cute.make_layout((2, 4), stride=(4, 1))(by_twos(3))
    assert cute.shape(cute.coalesce(cute.make_layout((2, (1, 6))))) == 12
    nested = cute.make_layout(((2, 3), 4))
    assert cute.shape(cute.flatten(nested)) == (2, 3, 4)
    assert cute.shape(cute.group_modes(cute.flatten(nested), 0, 2)) == ((2, 3), 4)
    assert cute.shape(cute.select(nested, mode=[1, 0])) == (4, (2, 3))
    assert cute.shape(cute.get(nested, mode=[0])) == (2, 3)
    assert cute.size(cute.slice_(nested, (None, 0))) == 6  # One column.
    assert cute.size(cute.dice(nested, (None, 0))) == 4
    assert cute.rank(cute.append(by_twos, by_twos)) == cute.rank(cute.prepend(by_twos, by_twos))
    repeated = cute.make_layout((4, 8), stride=(1, 0))
    assert cute.size(cute.filter_zeros(repeated)) == 4


# %% cute.make_swizzle cute.make_composed_layout cute.tile_to_shape cutlass.ComposedLayout
# %% cute.recast_layout
@cute.jit
def swizzled():
    rows = cute.make_layout((8, 64), stride=(64, 1))  # 8 rows of 128 bytes, 16-bit elements
    atom = cute.make_composed_layout(cute.make_swizzle(3, 3, 3), 0, rows)
    offsets = [atom((row, 0)) for row in range(8)]
    assert [offset // 8 % 8 for offset in offsets] == list(range(8))  # 8 groups of banks, not 1
    sw128 = cute.make_composed_layout(cute.make_swizzle(3, 4, 3), 0, cute.make_layout(1024))
    assert all(sw128(x) == x ^ ((x >> 3) & (7 << 4)) for x in range(1024))  # b, m, s; over bytes
    tile = cute.tile_to_shape(atom, (64, 128), order=(0, 1))
    assert cute.size(tile) == 64 * 128
    assert isinstance(tile, cutlass.ComposedLayout)
    assert cute.size(cute.recast_layout(32, 16, rows)) == 256  # The same bytes, as 32-bit words.


# %% cute.make_layout_tv cute.make_identity_layout cute.ceil_div cute.round_up cute.shape_div
# %% cute.product_each cute.repeat_like
@cute.jit
def threads_and_values():
    threads, values = cute.make_layout((4, 8), stride=(8, 1)), cute.make_layout((2, 4))
    tile, tv = cute.make_layout_tv(threads, values)
    assert tile == (8, 32)  # 32 threads of 2 x 4 values cover it.
    assert cute.shape(tv) == ((8, 4), (2, 4)) or cute.size(tv) == 256
    assert cute.make_identity_layout((4, 8))((3, 5)) == (3, 5)
    assert (cute.ceil_div(100, 32), cute.round_up(100, 32)) == (4, 128)
    assert cute.shape_div((8, 32), (2, 4)) == (4, 8)
    assert cute.product_each(((2, 3), 4)) == (6, 4)
    assert cute.repeat_like(1, ((2, 3), 4)) == ((1, 1), 1)


for check in (shapes, divided, tile_and_part, algebra, swizzled, threads_and_values):
    check()
