"""Memory operations of cuTile, one cell per operation."""

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% load store
@ct.kernel
def scale(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (TILE,), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (i,), 2 * tile)  # A store clips at the end of the array.


x, y = torch.arange(100.0), torch.empty(100)
ct.launch(stream, (4,), scale, (x, y, 32))
assert torch.equal(y, 2 * x)


# %% gather scatter
@ct.kernel
def shift(x, y):
    i = ct.arange(8, dtype=ct.int32)
    tile = ct.gather(x, i + 1, mask=i != 3, padding_value=-1)  # Element 8 is outside: padded.
    ct.scatter(y, i, tile)


x, y = torch.arange(8), torch.zeros(8, dtype=torch.int64)
ct.launch(stream, (1,), shift, (x, y))
assert y.tolist() == [1, 2, 3, -1, 5, 6, 7, -1]


@ct.kernel
def gather_rows(x, rows, y):
    chosen = ct.load(rows, (0,), (4,))
    columns = ct.arange(8, dtype=ct.int32)
    ct.store(y, (0, 0), ct.gather(x, (chosen[:, None], columns[None, :])))


x, rows = torch.arange(64).reshape(8, 8), torch.tensor([6, 9, -1, 3], dtype=torch.int32)
y = torch.empty(4, 8, dtype=torch.int64)
ct.launch(stream, (1,), gather_rows, (x, rows, y))
assert torch.equal(y[[0, 3]], x[[6, 3]])
assert not y[1:3].any()  # Rows 9 and -1 are outside: padded.


# %% load_advanced_indexing store_advanced_indexing Slice
@ct.kernel
def take_rows(x, rows, y):
    chosen = ct.load(rows, (0,), (4,))
    tile = ct.load_advanced_indexing(x, (chosen, ct.Slice(0, 8)), padding_mode=ct.PaddingMode.ZERO)
    ct.store_advanced_indexing(y, (3 - ct.arange(4, dtype=ct.int32), ct.Slice(0, 8)), tile)


x, rows = torch.arange(64).reshape(8, 8), torch.tensor([6, 0, 3, 3], dtype=torch.int32)
y = torch.empty(4, 8, dtype=torch.int64)
ct.launch(stream, (1,), take_rows, (x, rows, y))
assert torch.equal(y, x[[3, 3, 0, 6]])

rows[1:3] = torch.tensor([8, -1])  # Both outside: padded, as the mode says.
ct.launch(stream, (1,), take_rows, (x, rows, y))
assert torch.equal(y[[0, 3]], x[[3, 6]])
assert not y[1:3].any()


# %% Array.slice load_advanced_indexing Slice gather
@ct.kernel
def from_token(x, y, start, N: ct.Constant[int]):
    zero = ct.PaddingMode.ZERO
    rows = start + ct.arange(N, dtype=ct.int32)
    columns = ct.arange(8, dtype=ct.int32)
    view = x.slice(axis=0, start=start, stop=x.shape[0])  # 1: tile 0 begins at the start.
    ct.store(y, (0, 0), ct.load(view, (0, 0), (N, 8), padding_mode=zero))
    ct.store(
        y, (1, 0), ct.load_advanced_indexing(x, (rows, ct.Slice(0, 8)), padding_mode=zero)
    )  # 2
    ct.store(y, (2, 0), ct.gather(x, (rows[:, None], columns[None, :])))  # 3
    tile = ct.load(x, (start // N, 0), (N, 8), padding_mode=zero)  # 4: from 768, first 9 hidden.
    seen = start // N * N + ct.arange(N, dtype=ct.int32) >= start
    ct.store(y, (3, 0), ct.where(seen[:, None], tile, 0.0))


x, y = torch.randn(1000, 8), torch.empty(4 * 64, 8)
ct.launch(stream, (1,), from_token, (x, y, 777, 64))
for tile in y.split(64)[:3]:
    assert torch.equal(tile, x[777:841])
assert torch.equal(y[201:], x[777:832])  # 55 rows.
assert not y[192:201].any()


# %% Array.slice Array.shape Array.ndim Array.dtype
@ct.kernel
def ragged(x, ends, y):
    ct.static_assert(x.ndim == 2 and x.dtype == ct.float32)  # Constants.
    row = ct.bid(0)
    length = ct.load(ends, (row,), ()).item()
    part = x.slice(
        axis=-1, start=0, stop=min(length, x.shape[1])
    )  # A view: what lies beyond is outside.
    tile = ct.load(part, (row, 0), (1, 8), padding_mode=ct.PaddingMode.ZERO)
    ct.store(y, (row,), ct.sum(tile, axis=1))


x, ends, y = torch.ones(3, 8), torch.tensor([2, 8, 5], dtype=torch.int32), torch.empty(3)
ct.launch(stream, (3,), ragged, (x, ends, y))
assert y.tolist() == [2, 8, 5]


# %% Array.tiled_view TiledView.load TiledView.store TiledView.num_tiles TiledView.tile_shape
# %% TiledView.traversal_steps TiledView.dtype
@ct.kernel
def windows(x, y):
    # Tiles of 4 that start 2 elements apart: they overlap.
    view = x.tiled_view((4,), traversal_steps=(2,), padding_mode=ct.PaddingMode.ZERO)
    sums = y.tiled_view(1)
    zeros = ct.zeros(view.tile_shape, view.dtype)
    for i in range(view.num_tiles(0)):
        sums.store(i, ct.sum(ct.maximum(view.load(i), zeros), axis=0, keepdims=True))


x, y = torch.arange(8.0), torch.empty(4)
ct.launch(stream, (1,), windows, (x, y))
assert y.tolist() == [6, 14, 22, 13]


# %% Array.get_raw_memory RawArrayMemory.load_offset RawArrayMemory.store_offset
# %% RawArrayMemory.dtype Array.strides
@ct.kernel
def diagonal(x, y):
    i = ct.arange(4, dtype=ct.int32)
    tile = x.get_raw_memory().load_offset(i * (x.strides[0] + x.strides[1]))
    y.get_raw_memory().store_offset(i, tile)


x, y = torch.arange(16).reshape(4, 4), torch.empty(4, dtype=torch.int64)
ct.launch(stream, (1,), diagonal, (x, y))
assert torch.equal(y, x.diagonal())


# %% Array.foreign_pointer Array.from_foreign foreign_pointer_dtype
@ct.kernel
def as_row(x, y):
    base = x.foreign_pointer
    ct.static_assert(base.dtype == ct.foreign_pointer_dtype(x.dtype))
    row = ct.Array.from_foreign(base, (16,), (1,))
    ct.store(y, (0,), ct.load(row, (0,), (16,)))


x, y = torch.arange(16).reshape(4, 4), torch.empty(16, dtype=torch.int64)
ct.launch(stream, (1,), as_row, (x, y))
assert torch.equal(y, x.flatten())


# %% MemoryOrder MemoryScope
@ct.kernel
def hand_over(data, flag, out):
    if ct.bid(0) == 0:
        ct.store(data, (0,), ct.full((4,), 7, ct.int32))
        ct.store(flag, (0,), 1, memory_order=ct.MemoryOrder.RELEASE,
                 memory_scope=ct.MemoryScope.DEVICE)  # fmt: skip
    else:
        seen = ct.load(flag, (0,), (), memory_order=ct.MemoryOrder.ACQUIRE,
                       memory_scope=ct.MemoryScope.DEVICE)  # fmt: skip
        while seen.item() == 0:
            seen = ct.load(flag, (0,), (), memory_order=ct.MemoryOrder.ACQUIRE,
                           memory_scope=ct.MemoryScope.DEVICE)  # fmt: skip
        ct.store(out, (0,), ct.load(data, (0,), (4,)))


data, flag, out = (torch.zeros(n, dtype=torch.int32) for n in (4, 1, 4))
ct.launch(stream, (2,), hand_over, (data, flag, out))
assert out.tolist() == [7, 7, 7, 7]


# %% PaddingMode
@ct.kernel
def row_maximum(x, y):
    tile = ct.load(x, (0,), (8,), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(y, (0,), ct.max(tile, axis=0, keepdims=True))


x, y = -torch.arange(1.0, 6.0), torch.empty(1)  # 5 elements in a tile of 8
ct.launch(stream, (1,), row_maximum, (x, y))
assert y.item() == -1
