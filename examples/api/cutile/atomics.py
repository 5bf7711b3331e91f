"""Atomic operations of cuTile, one cell per operation."""

import cuda.tile as ct
import torch

torch.set_default_device("cuda")
stream = torch.cuda.current_stream()


# %% atomic_add
@ct.kernel
def add_rows(x, sums):  # Floats into one row of a matrix: an index per axis.
    row = ct.load(x, (ct.bid(0), 0), (1, 8)).reshape((8,))
    ct.atomic_add(sums, (0, ct.arange(8, dtype=ct.int32)), row)


x, sums = torch.arange(32.0).reshape(4, 8), torch.zeros(1, 8)
ct.launch(stream, (4,), add_rows, (x, sums))
assert torch.equal(sums[0], x.sum(0))


@ct.kernel
def histogram(x, counts):
    values = ct.load(x, (ct.bid(0),), (8,))
    ct.atomic_add(counts, values, 1)


x, counts = torch.arange(32, dtype=torch.int32) % 4, torch.zeros(4, dtype=torch.int32)
ct.launch(stream, (4,), histogram, (x, counts))
assert counts.tolist() == [8, 8, 8, 8]


# The block of a row that ends last adds up what all have left there: no second launch.
@ct.kernel
def split_sum(x, parts, ended, y, SPLITS: ct.Constant[int]):
    split, row = ct.bid(0), ct.bid(1)
    ct.store(parts, (row, split), ct.sum(ct.load(x, (row, split), (1, 8)), axis=1, keepdims=True))
    before = ct.atomic_add(ended, row, 1, memory_order=ct.MemoryOrder.ACQ_REL,
                           memory_scope=ct.MemoryScope.DEVICE)  # fmt: skip
    if before.item() == SPLITS - 1:  # All others of this row have counted.
        total = ct.sum(ct.load(parts, (row, 0), (1, SPLITS)), axis=1, keepdims=True)
        ct.store(y, (row, 0), total)
        ct.store(ended, (row,), 0)  # For the next launch.


x, ended = torch.arange(64.0).reshape(2, 32), torch.zeros(2, dtype=torch.int32)
parts, y = torch.empty(2, 4), torch.empty(2, 1)
for _ in range(2):
    ct.launch(stream, (4, 2), split_sum, (x, parts, ended, y, 4))
    assert torch.equal(y[:, 0], x.sum(1))


# %% atomic_max atomic_min
@ct.kernel
def extremes(x, top, low):
    tile = ct.load(x, (ct.bid(0),), (8,))
    ct.atomic_max(top, 0, ct.max(tile, axis=0))
    ct.atomic_min(low, 0, ct.min(tile, axis=0))


x = torch.randperm(32).to(torch.int32)
top, low = (torch.full((1,), value, dtype=torch.int32) for value in (-1, 99))
ct.launch(stream, (4,), extremes, (x, top, low))
assert (top.item(), low.item()) == (31, 0)


# %% atomic_and atomic_or atomic_xor
@ct.kernel
def flags(both, any_of, odd):
    bit = 1 << ct.bid(0)
    ct.atomic_and(both, 0, 7 - bit)
    ct.atomic_or(any_of, 0, bit)
    ct.atomic_xor(odd, 0, 5)


both, any_of, odd = (torch.full((1,), value, dtype=torch.int32) for value in (7, 0, 0))
ct.launch(stream, (2,), flags, (both, any_of, odd))
assert (both.item(), any_of.item(), odd.item()) == (4, 3, 0)


# %% atomic_cas atomic_xchg
@ct.kernel
def locked(lock, total):
    while ct.atomic_cas(lock, 0, 0, 1).item() == 1:  # 0 is free, 1 is taken.
        pass
    ct.store(total, (0,), ct.load(total, (0,), ()) + 1)
    ct.atomic_xchg(lock, 0, 0)


lock, total = torch.zeros(1, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
ct.launch(stream, (8,), locked, (lock, total))
assert total.item() == 8


# %% TiledView.atomic_store_add TiledView.atomic_store_max TiledView.atomic_store_min
# %% TiledView.atomic_store_and TiledView.atomic_store_or TiledView.atomic_store_xor
@ct.kernel
def column_sums(x, y):
    y.tiled_view((1, 8)).atomic_store_add((0, 0), ct.load(x, (ct.bid(0), 0), (1, 8)))


@ct.kernel
def others(a, b, c, d, e):
    three = ct.full((1, 8), 3, ct.int32)
    a.tiled_view((1, 8)).atomic_store_max((0, 0), three)
    b.tiled_view((1, 8)).atomic_store_min((0, 0), three)
    c.tiled_view((1, 8)).atomic_store_and((0, 0), three)
    d.tiled_view((1, 8)).atomic_store_or((0, 0), three)
    e.tiled_view((1, 8)).atomic_store_xor((0, 0), three)


x, y = torch.arange(32, dtype=torch.int32).reshape(4, 8), torch.zeros(1, 8, dtype=torch.int32)
ct.launch(stream, (4,), column_sums, (x, y))
assert torch.equal(y[0], x.sum(0, dtype=torch.int32))
five = [torch.full((1, 8), 5, dtype=torch.int32) for _ in range(5)]
ct.launch(stream, (1,), others, tuple(five))
assert [tensor[0, 0].item() for tensor in five] == [5, 3, 1, 7, 6]


# %% RawArrayMemory.atomic_add_offset RawArrayMemory.atomic_max_offset
# %% RawArrayMemory.atomic_min_offset RawArrayMemory.atomic_and_offset
# %% RawArrayMemory.atomic_or_offset RawArrayMemory.atomic_xor_offset
# %% RawArrayMemory.atomic_xchg_offset RawArrayMemory.atomic_cas_offset
@ct.kernel
def by_offset(x):
    memory = x.get_raw_memory()
    memory.atomic_add_offset(0, 1)
    memory.atomic_max_offset(1, 9)
    memory.atomic_min_offset(2, 1)
    memory.atomic_and_offset(3, 4)
    memory.atomic_or_offset(4, 2)
    memory.atomic_xor_offset(5, 1)
    memory.atomic_xchg_offset(6, 8)
    memory.atomic_cas_offset(7, 5, 0)


x = torch.full((8,), 5, dtype=torch.int32)
ct.launch(stream, (1,), by_offset, (x,))
assert x.tolist() == [6, 9, 1, 4, 7, 4, 8, 0]
