"""Loads, stores, atomics: bounds, padding, hazards, traffic, and what nothing wrote."""

from __future__ import annotations

import math
from typing import Annotated, Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import LaunchReport
from mla_var3.interpreter.footprint import Scattered, Strided

from .helpers import assert_points_at, assert_same, line_of, only, refusal, run, run_clean

Int = ct.Constant[int]


def kinds(report: LaunchReport) -> set[str]:
    return {d.kind for d in report.diagnostics}


# ------------------------------------------------------------------------------- footprints


def test_footprints_agree() -> None:
    flat = torch.arange(40)
    at = Strided(3, (2, 4), (10, 2))
    scattered = Scattered(at.offsets().flatten())
    assert torch.equal(at.of(flat), at.offsets())
    assert torch.equal(scattered.of(flat), at.of(flat).flatten())
    fine = torch.zeros(80, dtype=torch.bool)
    at.scaled(2).put(fine, True)
    other = torch.zeros(80, dtype=torch.bool)
    scattered.scaled(2).put(other, True)
    assert torch.equal(fine, other)
    assert fine.sum() == 16
    at.put(flat, torch.zeros(2, 4, dtype=torch.long))
    assert flat[at.offsets()].sum() == 0


# ------------------------------------------------------------------------- tiles and padding


@ct.kernel
def tail(x, y, TILE: Int):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)))


@ct.kernel
def row_sums(x, y, TILE: Int):
    tile = ct.load(x, (ct.bid(0), 0), (1, TILE))  # ragged
    ct.store(y, (ct.bid(0),), ct.sum(tile, axis=1))  # kept


def test_padding_that_is_clipped_again_is_no_finding() -> None:
    x, y = torch.arange(10.0), torch.empty(10)
    run_clean(tail, x, y, 4, grid=(3,))
    assert torch.equal(x, y)


def test_padding_that_reaches_an_output_is_reported_where_it_was_loaded() -> None:
    x, y = torch.ones(2, 5), torch.empty(2)
    report = run(row_sums, x, y, 8, grid=(2,))
    found = only(report, "undetermined-padding")
    assert_points_at(found, row_sums, "ragged")
    assert f"test_memory.py:{line_of(row_sums, 'kept')}" in found.message
    assert (found.severity, found.count) == ("error", 2)
    assert bool(torch.isnan(y).all())
    # Poison of zero shows that the result depends on the padding, though it looks right.
    report = run(row_sums, x, y, 8, grid=(2,), poison=0.0)
    assert y.tolist() == [5.0, 5.0]
    only(report, "undetermined-padding")


@ct.kernel
def laundered(x, y, n, TILE: Int):
    tile = ct.load(x, (0,), (TILE,))
    valid = ct.arange(TILE, dtype=ct.int32) < n
    kept = ct.where(valid, tile, 0.0)
    both = valid & (tile > 0)
    either = ~valid | (tile > 0)
    count = ct.where(both, 1, 0) * ct.where(either, 1, 0)
    ct.store(y, (0,), ct.sum(kept).reshape((1,)))
    ct.store(y, (1,), ct.sum(count).astype(ct.float32).reshape((1,)))


def test_selected_padding_is_no_finding() -> None:
    x, y = torch.ones(5), torch.empty(2)
    run_clean(laundered, x, y, 5, 8)
    assert y.tolist() == [5.0, 5.0]
    assert kinds(run(laundered, x, y, 6, 8)) == {"undetermined-padding"}


@ct.kernel
def products_of_padding(x, v, y, K: Int):
    p = ct.where(ct.arange(K, dtype=ct.int32) < 5, 1.0, 0.0).reshape((1, K))
    tile = ct.load(v, (0, 0), (K, 4))  # values
    out = ct.mma(ct.broadcast_to(p, (2, K)), tile, ct.zeros((2, 4), ct.float32))
    ct.store(y, (0, 0), out)


def test_zero_times_padding_is_not_zero() -> None:
    y = torch.empty(2, 4)
    run_clean(products_of_padding, torch.ones(8), torch.ones(8, 4), y, 8)
    report = run(products_of_padding, torch.ones(8), torch.ones(5, 4), y, 8)
    assert_points_at(only(report, "undetermined-padding"), products_of_padding, "values")


@ct.kernel
def moved(x, y, OP: Int):
    tile = ct.load(x, (0,), (8,))  # ragged
    if OP == 0:
        out = ct.extract(tile, (0,), (4,))  # the part inside
    elif OP == 1:
        out = ct.extract(tile, (1,), (4,))
    elif OP == 2:
        out = ct.insert(tile, (1,), ct.zeros((4,), ct.float32))
    elif OP == 3:
        out = ct.insert(ct.zeros((8,), ct.float32), (0,), tile)
    elif OP == 4:
        out = ct.cat((ct.zeros((8,), ct.float32), tile), 0)
    elif OP == 5:
        out = ct.extract(ct.cumsum(tile, 0), (0,), (4,))
    elif OP == 6:
        out = ct.extract(ct.cumsum(tile, 0, reverse=True), (0,), (4,))
    elif OP == 7:
        out = ct.unpack_from_bytes(ct.pack_to_bytes(tile), ct.float32)
    elif OP == 8:
        out = ct.transpose(tile.reshape((2, 4))).reshape((8,))
    elif OP == 9:
        out = ct.cat((ct.zeros((4,), ct.float32), ct.zeros((4,), ct.float32)), 0)
    else:
        out = ct.unpack_from_bytes(
            ct.extract(ct.pack_to_bytes(tile), (0,), (16,)), ct.int32
        ).astype(ct.float32)
    ct.store(y, (0,), out)


@pytest.mark.parametrize(
    ("op", "tainted"),
    list(enumerate([False, True, False, True, True, False, True, True, True, False, False])),
)
def test_taints_move_as_elements_do(op: int, tainted: bool) -> None:
    x, y = torch.ones(4), torch.empty(16)
    found = kinds(run(moved, x, y, op)) - {"never-written"}
    assert found == ({"undetermined-padding"} if tainted else set())


@ct.kernel
def taint_in_a_loop(x, y):
    total = ct.zeros((4,), ct.float32)
    last = ct.load(x, (0,), (4,))
    for i in range(3):
        total = total + last
        last = ct.load(x, (i,), (4,))
    if ct.bid(0) >= 0:  # noqa: SIM108
        total = total + 1
    else:
        total = total + last
    ct.store(y, (0,), total)


def test_taints_are_carried_by_loops_and_branches() -> None:
    run_clean(taint_in_a_loop, torch.ones(12), torch.empty(4))
    run_clean(taint_in_a_loop, torch.ones(10), torch.empty(4))  # the last load is not used
    assert kinds(run(taint_in_a_loop, torch.ones(6), torch.empty(4))) >= {"undetermined-padding"}


@ct.kernel
def decides(x, i, y, OP: Int):
    at = ct.extract(ct.load(i, (0,), (4,)), (3,), (1,)).item()  # ragged
    if OP == 0:
        if at > 0:
            ct.store(y, (0,), ct.zeros((4,), ct.float32))
    elif OP == 1:
        ct.store(y, (0,), ct.load(x, (at * 0 + 0 * ct.bid(0),), (4,)))
    elif OP == 2:
        ct.store(y, (at & 0,), ct.load(x, (0,), (4,)))
    elif OP == 3:
        ct.store(y, (0,), ct.gather(x, ct.arange(4, dtype=ct.int32) + at - at))
    elif OP == 4:
        ct.scatter(y, ct.arange(4, dtype=ct.int32) + at - at, 1.0)
    elif OP == 5:
        for _ in range(at - at, 1):
            ct.store(y, (0,), ct.zeros((4,), ct.float32))
    elif OP == 6:
        ct.assert_(at == at)  # noqa: PT009
        ct.store(y, (0,), ct.zeros((4,), ct.float32))
    elif OP == 7:
        ct.atomic_add(y, ct.arange(4, dtype=ct.int32) + at - at, 1.0)
    else:
        ct.atomic_add(y, ct.arange(4, dtype=ct.int32), (at - at).astype(ct.float32))


@pytest.mark.parametrize("op", [0, 3, 4, 5, 6, 7, 8])
def test_padding_that_decides_something_is_reported(op: int) -> None:
    i = torch.zeros(3, dtype=torch.int32)
    report = run(decides, torch.ones(8), i, torch.zeros(4), op)
    assert "undetermined-padding" in kinds(report)
    found = next(d for d in report.diagnostics if d.kind == "undetermined-padding")
    assert_points_at(found, decides, "ragged")
    assert kinds(
        run(decides, torch.ones(8), torch.zeros(4, dtype=torch.int32), torch.zeros(4), op)
    ) <= {"never-written"}


@pytest.mark.parametrize("op", [1, 2])
def test_what_is_multiplied_by_zero_decides_nothing(op: int) -> None:
    i = torch.zeros(3, dtype=torch.int32)
    run_clean(decides, torch.ones(8), i, torch.zeros(4), op)


@ct.kernel
def outside(x, y, i, STORE: Int):
    if STORE:
        ct.store(y, (i,), ct.zeros((4,), ct.float32))  # store
    else:
        ct.store(y, (0,), ct.load(x, (i,), (4,)))  # load


@pytest.mark.parametrize("i", [-1, 3, 1 << 20])
def test_tiles_wholly_outside(i: int) -> None:
    report = run(outside, torch.ones(10), torch.zeros(4), i, 0)
    found = only(report, "tile-outside")
    assert_points_at(found, outside, "load")
    assert f"tile ({i},) of 'x'" in found.message
    report = run(outside, torch.ones(10), torch.zeros(4), i, 1)
    found = next(d for d in report.errors if d.kind == "tile-outside")
    assert_points_at(found, outside, "store")


@ct.kernel
def unchecked(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,), check_bounds=False), check_bounds=False)


def test_bounds_that_are_promised() -> None:
    run_clean(unchecked, torch.ones(4), torch.zeros(4))
    assert kinds(run(unchecked, torch.ones(3), torch.zeros(4))) == {
        "out-of-bounds",
        "undetermined-padding",
    }
    report = run(unchecked, torch.ones(4), torch.zeros(3))
    assert only(report, "out-of-bounds").severity == "error"


@ct.kernel
def steps(x, y, STEP: Int):
    view = x.tiled_view((4,), padding_mode=ct.PaddingMode.ZERO, traversal_steps=(STEP,))
    for i in range(view.num_tiles(0)):
        ct.store(y, (i, 0), view.load((i,)).reshape((1, 4)))


@pytest.mark.parametrize("step", [1, 3, 4, 6])
def test_overlapping_and_spaced_tiles(step: int) -> None:
    x = torch.arange(10.0)
    n = -(-10 // step)
    y = torch.full((n, 4), -1.0)
    run_clean(steps, x, y, step)
    padded = torch.cat((x, torch.zeros(8)))
    assert torch.equal(y, torch.stack([padded[i * step : i * step + 4] for i in range(n)]))


@ct.kernel
def rows(x, index, y):
    at = ct.load(index, (0,), (4,))
    tile = ct.load_advanced_indexing(x, (at, ct.Slice(2, 4)), padding_mode=ct.PaddingMode.ZERO)
    ct.store_advanced_indexing(y, (at, ct.Slice(0, 4)), tile + 1)


@ct.kernel
def padded_rows(x, index, y):
    at = ct.load(index, (0,), (4,))
    zero = ct.PaddingMode.ZERO
    ct.store(y, (0, 0), ct.load_advanced_indexing(x, (at, ct.Slice(2, 4)), padding_mode=zero))


@ct.kernel
def undetermined_rows(x, index, y):
    at = ct.load(index, (0,), (4,))
    ct.store(y, (0, 0), ct.load_advanced_indexing(x, (at, ct.Slice(2, 4))))


def test_rows_by_index() -> None:
    x = torch.arange(30.0).reshape(5, 6)
    y = torch.zeros(5, 4)
    index = torch.tensor([3, 0, 9, -1], dtype=torch.int32)
    report = run(rows, x, index, y)
    expected = torch.zeros(5, 4)
    expected[[3, 0]] = x[[3, 0], 2:] + 1
    assert torch.equal(y, expected)
    only(report, "never-written")
    picked = torch.full((4, 4), 7.0)
    run_clean(padded_rows, x, index, picked)
    assert torch.equal(picked[:2], x[[3, 0], 2:])
    assert not picked[2:].any()  # Beyond the end and negative: neither counts from the end.
    outside_rows = torch.tensor([9, -1, 7, 8], dtype=torch.int32)
    assert "tile-outside" in kinds(run(rows, x, outside_rows, y))
    assert "undetermined-padding" in kinds(run(undetermined_rows, x, index, y[:4]))


# ---------------------------------------------------------------------------- pointers


@ct.kernel
def gathers(x, index, y, N: Int):
    at = ct.load(index, (0,), (N,))
    ct.store(y, (0,), ct.gather(x, at, padding_value=-5))


@ct.kernel
def raw(x, y, start):
    at = ct.arange(4, dtype=ct.int32) + start
    memory = x.get_raw_memory()
    value = memory.load_offset(at, mask=at < 8)
    y.get_raw_memory().store_offset(ct.arange(4, dtype=ct.int32), value, mask=at < 8)


@ct.kernel
def raw_sum(x, y, start):
    at = ct.arange(4, dtype=ct.int32) + start
    ct.store(y, (0,), x.get_raw_memory().load_offset(at, mask=at < 8, padding_value=None))


def test_gathers() -> None:
    x, y = torch.arange(6, dtype=torch.int64), torch.zeros(4, dtype=torch.int64)
    run_clean(gathers, x, torch.tensor([5, -1, 0, 6], dtype=torch.int32), y, 4)
    assert y.tolist() == [5, -5, 0, -5]


def test_raw_memory() -> None:
    x, y = torch.arange(8.0), torch.zeros(4)
    run_clean(raw, x, y, 4)
    assert y.tolist() == [4.0, 5.0, 6.0, 7.0]
    report = run(raw, x, y, -1)
    assert "out-of-bounds" in kinds(report)
    assert "the first at -1 elements from its start" in report.errors[0].message
    report = run(raw, x, torch.zeros(4), 6)
    assert kinds(report) == {"never-written"}
    assert kinds(run(raw_sum, x, y, 6)) == {"undetermined-padding"}


@ct.kernel
def scatter_twice(x, y):
    ct.scatter(y, ct.load(x, (0,), (4,)), ct.arange(4, dtype=ct.float32))


def test_a_scatter_to_one_place_twice() -> None:
    y = torch.zeros(4)
    run_clean(scatter_twice, torch.tensor([3, 1, 0, 2], dtype=torch.int32), y)
    assert y.tolist() == [2.0, 1.0, 3.0, 0.0]
    report = run(scatter_twice, torch.tensor([3, 1, 3, 2], dtype=torch.int32), y)
    found = next(d for d in report.errors if d.kind == "write-conflict")
    assert "writes y[3] more than once" in found.message
    outside_index = torch.tensor([3, 1, 9, -2], dtype=torch.int32)
    assert kinds(run(scatter_twice, outside_index, y)) == {"never-written"}


@ct.kernel
def sliced(x, y, start, stop):
    part = x.slice(axis=0, start=start, stop=stop)
    ct.store(y, (0,), ct.load(part, (0,), (4,), padding_mode=ct.PaddingMode.ZERO))


@ct.kernel
def store_sliced(y, start, stop):
    ct.store(y.slice(axis=0, start=start, stop=stop), (0,), ct.ones((4,), ct.float32))


def test_slices() -> None:
    x, y = torch.arange(10.0), torch.zeros(4)
    run_clean(sliced, x, y, 3, 5)
    assert y.tolist() == [3.0, 4.0, 0.0, 0.0]
    report = run(sliced, x, y, 8, 12)
    assert only(report, "out-of-bounds").severity == "error"
    assert_same(y, [8.0, 9.0, math.nan, math.nan])
    storage = torch.zeros(20)
    assert "out-of-bounds" in kinds(run(store_sliced, storage[:10], 8, 12))
    assert storage.tolist() == [0.0] * 8 + [1.0, 1.0] + [0.0] * 10


@ct.kernel
def through_foreign(x, y, other):
    p = ct.where(other > 0, x.foreign_pointer, x.foreign_pointer)
    view = ct.Array.from_foreign(p, x.shape, x.strides)
    ct.store(y, (0,), ct.load(view, (0,), (4,)))


def test_foreign_pointers() -> None:
    y = torch.zeros(4)
    run_clean(through_foreign, torch.arange(4.0), y, 1)
    assert y.tolist() == [0.0, 1.0, 2.0, 3.0]


@ct.kernel
def either_array(x, z, y, n):
    p = ct.where(ct.arange(2, dtype=ct.int32) < n, x.foreign_pointer, z.foreign_pointer)
    view = ct.Array.from_foreign(ct.extract(p, (0,), ()), x.shape, x.strides)
    ct.store(y, (0,), ct.load(view, (0,), (4,)))


def test_tiles_of_pointers_into_one_array_only() -> None:
    x, y = torch.arange(4.0), torch.zeros(4)
    error = refusal(either_array, x, torch.ones(4), y, 1)
    assert isinstance(error, InterpreterError)


@ct.kernel
def from_list(xs, y, i):
    ct.store(y, (0,), ct.load(xs[i], (0,), (4,)))


def test_lists_of_arrays() -> None:
    xs, y = [torch.zeros(4), torch.arange(4.0)], torch.empty(4)
    report = run(from_list, xs, y, 1)
    assert report.diagnostics == []
    assert torch.equal(y, xs[1])
    assert report.arrays["xs[1]"].unique_bytes_loaded == 16
    assert report.arrays["xs[0]"].unique_bytes_loaded == 0
    error = refusal(from_list, xs, y, 2)
    assert "takes array 2 of a list of 2" in str(error)


@ct.kernel
def into_list(ys, x):
    for i in range(len(ys)):
        ct.store(ys[i], (0,), ct.load(x, (0,), (4,)) + i)


def test_stores_to_arrays_of_a_list() -> None:
    ys = [torch.empty(4), torch.empty(4)]
    run_clean(into_list, ys, torch.zeros(4))
    assert [y[0].item() for y in ys] == [0.0, 1.0]


# ------------------------------------------------------------------------------- hazards


@ct.kernel
def same_place(y):
    ct.store(y, (0,), ct.full((4,), ct.bid(0), ct.float32))  # stores


@ct.kernel
def neighbours(x):
    i = ct.bid(0)
    tile = ct.load(x, (i + 1,), (4,), padding_mode=ct.PaddingMode.ZERO)  # reads ahead
    ct.store(x, (i,), tile)


@ct.kernel
def chain(x):
    i = ct.bid(0)
    ct.store(x, (i + 1,), ct.load(x, (i,), (4,)) + 1)


def test_two_blocks_that_write_one_element() -> None:
    report = run(same_place, torch.zeros(4), grid=(3,))
    found = only(report, "write-conflict")
    assert_points_at(found, same_place, "stores")
    assert found.count == 2
    assert "block (1, 0, 0) writes y[0], which (0, 0, 0) wrote" in found.message
    run_clean(same_place, torch.zeros(4))


def test_blocks_that_read_what_others_write() -> None:
    x = torch.zeros(16)
    report = run(neighbours, x, grid=(3,))  # each writes what the one before it has read
    assert "read-write-hazard" in kinds(report)
    report = run(chain, torch.zeros(16), grid=(3,))
    assert "read-write-hazard" in kinds(report)
    for order in ("forward", "reverse", 7):
        assert "read-write-hazard" in kinds(run(chain, torch.zeros(16), grid=(3,), order=order))


@ct.kernel
def last_block_sums(x, work, counter, y, n):
    i = ct.bid(0)
    ct.store(work, (i,), ct.sum(ct.load(x, (i,), (4,))).reshape((1,)))
    if ct.atomic_add(counter, 0, 1, memory_order=ct.MemoryOrder.ACQ_REL) == n - 1:
        ct.store(y, (0,), ct.sum(ct.load(work, (0,), (4,))).reshape((1,)))


@ct.kernel
def last_block_sums_relaxed(x, work, counter, y, n):
    i = ct.bid(0)
    ct.store(work, (i,), ct.sum(ct.load(x, (i,), (4,))).reshape((1,)))
    if ct.atomic_add(counter, 0, 1, memory_order=ct.MemoryOrder.RELAXED) == n - 1:
        ct.store(y, (0,), ct.sum(ct.load(work, (0,), (4,))).reshape((1,)))  # too early


def counters() -> tuple[torch.Tensor, ...]:
    return torch.arange(16.0), torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(1)


def test_release_and_acquire_order_blocks() -> None:
    x, work, counter, y = counters()
    run_clean(last_block_sums, x, work, counter, y, 4, grid=(4,))
    assert y[0] == 120.0
    x, work, counter, y = counters()
    report = run(last_block_sums_relaxed, x, work, counter, y, 4, grid=(4,))
    assert_points_at(only(report, "read-write-hazard"), last_block_sums_relaxed, "too early")


@ct.kernel
def flag_stores(data, flag, y, TOLD: ct.Constant[int], HEARD: ct.Constant[int]):
    i = ct.bid(0)
    order, scope = ct.MemoryOrder, ct.MemoryScope
    if i == 0:
        ct.store(data, (0,), ct.ones((4,), ct.float32))
        ct.store(
            flag,
            (TOLD,),
            ct.full((1,), 1, flag.dtype),
            memory_order=order.RELEASE,
            memory_scope=scope.DEVICE,
        )
    else:
        while (
            ct.load(
                flag, (HEARD,), (1,), memory_order=order.ACQUIRE, memory_scope=scope.DEVICE
            ).item()
            == 0
        ):
            pass
        ct.store(y, (0,), ct.load(data, (0,), (4,)))


@pytest.mark.parametrize("order", ["forward", "reverse"])
@pytest.mark.parametrize("at", [0, 1, 5])
@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.int64])
def test_ordered_stores_and_loads(dtype: torch.dtype, at: int, order: str) -> None:
    data, flag, y = torch.zeros(4), torch.zeros(6, dtype=dtype), torch.zeros(4)
    report = run(flag_stores, data, flag, y, at, at, grid=(2,), order=order)
    assert {d.kind for d in report.diagnostics} <= {"never-written"}  # The flags beside it.
    assert y.tolist() == [1.0] * 4


def test_an_acquire_hears_of_its_own_element_alone() -> None:
    data, flag, y = torch.zeros(4), torch.tensor([0, 0, 1], dtype=torch.int32), torch.zeros(4)
    report = run(flag_stores, data, flag, y, 0, 2, grid=(2,))
    assert [d.kind for d in report.errors] == ["read-write-hazard"]


@ct.kernel
def zero_and_add(y):
    if ct.bid(0) == 0:
        ct.store(y, (0,), ct.zeros((4,), ct.float32))
    ct.atomic_add(y, ct.arange(4, dtype=ct.int32), 1.0)


@ct.kernel
def add_and_read(y, z):
    ct.atomic_add(y, 0, 1.0, memory_order=ct.MemoryOrder.RELAXED)
    ct.store(z, (ct.bid(0),), ct.load(y, (0,), (1,)))


@ct.kernel
def add_then_store(y):
    ct.atomic_add(y, 0, 1.0, memory_order=ct.MemoryOrder.RELAXED)
    if ct.bid(0) == 1:
        ct.store(y, (0,), ct.zeros((1,), ct.float32))


def test_atomics_and_plain_accesses_of_several_blocks() -> None:
    assert kinds(run(zero_and_add, torch.zeros(4), grid=(2,))) == {"write-conflict"}
    assert "read-write-hazard" in kinds(
        run(add_and_read, torch.zeros(1), torch.zeros(2), grid=(2,))
    )
    assert "read-write-hazard" in kinds(run(add_then_store, torch.zeros(1), grid=(2,)))
    run_clean(add_then_store, torch.zeros(1))
    y = torch.zeros(4)
    run_clean(zero_and_add, y, uninitialised=(y,))  # it stores before it adds
    assert y.tolist() == [1.0] * 4


@ct.kernel
def adds(y):
    ct.atomic_add(y, 0, 1.0)


def test_an_update_of_what_nothing_wrote() -> None:
    y = torch.zeros(1)
    found = only(run(adds, y, grid=(2,), uninitialised=(y,)), "uninitialised-read")
    assert "block (0, 0, 0) updates y[0], which nothing has written" in found.message
    assert found.count == 1


# ------------------------------------------------------------------------------- atomics


@ct.kernel
def updates(x, u, old, OP: Int):
    at, by = ct.arange(4, dtype=ct.int32), ct.load(u, (0,), (4,))
    if OP == 0:
        r = ct.atomic_add(x, at, by)
    elif OP == 1:
        r = ct.atomic_max(x, at, by)
    elif OP == 2:
        r = ct.atomic_min(x, at, by)
    elif OP == 3:
        r = ct.atomic_and(x, at, by)
    elif OP == 4:
        r = ct.atomic_or(x, at, by)
    elif OP == 5:
        r = ct.atomic_xor(x, at, by)
    else:
        r = ct.atomic_xchg(x, at, by)
    ct.store(old, (0,), r)


@pytest.mark.parametrize("op", range(7))
@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64], ids=str)
def test_atomics_return_what_was_there(op: int, dtype: torch.dtype) -> None:
    bits = dtype.itemsize * 8
    big = (1 << bits) - 1 if "uint" in str(dtype) else -1
    before, by = [5, big, 12, 0], [3, 1, big, 7]
    x, u = torch.tensor(before, dtype=dtype), torch.tensor(by, dtype=dtype)
    old = torch.zeros(4, dtype=dtype)
    run_clean(updates, x, u, old, op)
    assert old.tolist() == before
    fn = [
        lambda a, b: (a + b) & ((1 << bits) - 1) if big > 0 else a + b,
        max,
        min,
        lambda a, b: a & b,
        lambda a, b: a | b,
        lambda a, b: a ^ b,
        lambda a, b: b,
    ][op]
    assert x.tolist() == [fn(a, b) for a, b in zip(before, by, strict=True)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_float_atomics(dtype: torch.dtype) -> None:
    x, old = torch.ones(4, dtype=dtype), torch.zeros(4, dtype=dtype)
    report = run(updates, x, torch.full((4,), 0.5, dtype=dtype), old, 0)
    assert x.tolist() == [1.5] * 4
    assert report.flops == {"atomic_add": 4}


@ct.kernel
def histogram(x, counts, N: Int):
    i = ct.bid(0)
    ct.atomic_add(counts, ct.load(x, (i,), (N,)), 1)


def test_atomics_on_one_place_add_up() -> None:
    x = torch.tensor([0, 1, 1, 3, 3, 3, 3, -1], dtype=torch.int32)
    counts = torch.zeros(5, dtype=torch.int32)
    report = run(histogram, x, counts, 4, grid=(2,))
    assert counts.tolist() == [1, 2, 0, 4, 0]
    only(report, "never-written")


@ct.kernel
def swaps(x, y):
    at = ct.arange(4, dtype=ct.int32)
    ct.store(y, (0,), ct.atomic_cas(x, at, ct.full((4,), 0.0, ct.float32), 9.0))
    ct.store(y, (1,), ct.full((4,), ct.atomic_cas(x, 2, 1.0, 5.0), ct.float32))


def test_compare_and_swap_compares_bits() -> None:
    x, y = torch.tensor([0.0, -0.0, 1.0]), torch.zeros(8)
    run_clean(swaps, x, y)
    assert_same(x, [9.0, -0.0, 5.0])
    # Outside, nothing happens and the expected value comes back.
    assert_same(y[:4], [0.0, -0.0, 1.0, 0.0])
    assert y[4:].tolist() == [1.0] * 4


@ct.kernel
def view_updates(x, i, N: Int):
    view = x.tiled_view((N,))
    view.atomic_store_add((i,), ct.full((N,), 2, ct.int32))
    view.atomic_store_max((0,), ct.full((N,), 1, ct.int32))


@ct.kernel
def tainted_view_update(x, y):
    y.tiled_view((8,)).atomic_store_add((0,), ct.load(x, (0,), (8,)))


def test_updates_of_a_tile() -> None:
    x = torch.zeros(6, dtype=torch.int32)
    run_clean(view_updates, x, 1, 4)
    assert x.tolist() == [1, 1, 1, 1, 2, 2]
    assert "tile-outside" in kinds(run(view_updates, x, 2, 4))
    assert kinds(run(tainted_view_update, torch.ones(6), torch.zeros(8))) == {
        "undetermined-padding"
    }
    run_clean(tainted_view_update, torch.ones(6), torch.zeros(6))


@ct.kernel
def unmasked_atomic(x, i):
    ct.atomic_add(x, i, 1, check_bounds=False)


def test_atomics_outside_the_array() -> None:
    x = torch.zeros(4, dtype=torch.int32)
    report = run(unmasked_atomic, x, 4)
    assert [d.kind for d in report.errors] == ["out-of-bounds"]
    assert x.tolist() == [0] * 4


# -------------------------------------------------------------------- never written, traffic


@ct.kernel
def sometimes(x, y, flag):
    if flag > 0:
        ct.store(y, (0,), ct.load(x, (0,), (4,)))  # may store


def test_elements_that_nothing_writes() -> None:
    y = torch.zeros(3, 4)
    report = run(tail, torch.ones(8), y.flatten(), 4, grid=(2,))
    found = only(report, "never-written")
    assert "4 of 12 elements of 'y'" in found.message
    assert "the first is y[8]" in found.message
    assert found.severity == "warning"
    found = only(run(sometimes, torch.ones(4), torch.zeros(4), 0), "never-written")
    assert_points_at(found, sometimes, "may store")


def test_reads_of_what_nothing_wrote() -> None:
    x, y = torch.zeros(8), torch.zeros(8)
    report = run(tail, x, y, 4, grid=(2,), uninitialised=(x[4:],))
    found = only(report, "uninitialised-read")
    assert "elements of 'x' that nothing wrote" in found.message
    assert_same(y, [0.0] * 4 + [math.nan] * 4)
    run_clean(tail, torch.zeros(8), y, 4, grid=(2,), uninitialised=(y,))
    n = torch.zeros(8, dtype=torch.int32)
    report = run(tail, n, torch.zeros(8, dtype=torch.int32), 4, grid=(2,), uninitialised=(n,))
    only(report, "uninitialised-read")
    assert n[0] != 0
    ragged = torch.zeros(6)
    assert "uninitialised-read" in kinds(
        run(row_sums, ragged.reshape(2, 3), torch.zeros(2), 4, grid=(2,), uninitialised=(ragged,))
    )


@ct.kernel
def workspace(x, w, y):
    ct.store(w, (0,), ct.load(x, (0,), (4,)))
    ct.store(y, (0,), ct.load(w, (0,), (4,)) + ct.gather(w, ct.arange(4, dtype=ct.int32) + 1))


def test_a_workspace_that_is_read_further_than_it_was_written() -> None:
    x, w, y = torch.ones(4), torch.zeros(5), torch.zeros(4)
    report = run(workspace, x, w, y, uninitialised=(w,))
    assert kinds(report) == {"uninitialised-read", "never-written"}
    run_clean(workspace, x, torch.zeros(4), y, uninitialised=(w,))


@ct.kernel
def reuse(x, y):
    tile = ct.load(x, (0,), (4,))
    ct.store(y, (ct.bid(0),), tile)


def test_reuse_shows_as_loaded_against_distinct_bytes() -> None:
    report = run(reuse, torch.ones(4).bfloat16(), torch.empty(12).bfloat16(), grid=(3,))
    assert report.bytes_loaded == 24
    assert report.arrays["x"].unique_bytes_loaded == 8
    assert report.unique_bytes_stored == report.bytes_stored == 24


def test_without_tracking_only_bytes_are_counted() -> None:
    report = run(reuse, torch.ones(4), torch.empty(12), grid=(2,), track=False)
    assert (report.bytes_loaded, report.arrays, report.diagnostics) == (32, {}, [])


@ct.kernel
def two_widths(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,)).astype(y.dtype) + ct.load(y, (0,), (4,)))


def test_arguments_of_two_widths_in_one_storage() -> None:
    storage = torch.zeros(48, dtype=torch.uint8)
    x, y = storage[:32].view(torch.int64), storage[32:].view(torch.int32)
    x += 5
    report = run(two_widths, x, y, uninitialised=(y,))
    assert kinds(report) == {"uninitialised-read"}
    assert report.arrays["x"].unique_bytes_loaded == 32
    assert report.arrays["y"].unique_bytes_stored == 16
    partly = run(two_widths, x, storage[24:].view(torch.int32))
    assert "overlapping-arguments" in kinds(partly)
    assert "2 of 6 elements of 'y'" in next(
        d.message for d in partly.diagnostics if d.kind == "never-written"
    )


@ct.kernel
def shifted(x, y):
    ct.store(y, (0,), ct.load(x, (0,), (4,)))


def test_arguments_that_share_memory() -> None:
    storage = torch.arange(8.0)
    assert "overlapping-arguments" in kinds(run(shifted, storage[:4], storage[2:6]))
    run_clean(shifted, storage[:4], storage[4:])
    interleaved = torch.arange(8.0).reshape(4, 2)
    run_clean(shifted, interleaved[:, 0], interleaved[:, 1])


def test_empty_and_expanded_arguments() -> None:
    report = run(shifted, torch.zeros(0), torch.zeros(4))
    assert kinds(report) == {"undetermined-padding"}
    y = torch.zeros(4)
    report = run(shifted, torch.ones(1).expand(4), y)
    assert y.tolist() == [1.0] * 4
    assert report.arrays["x"].unique_bytes_loaded == 4
    assert kinds(run(shifted, torch.ones(4), torch.zeros(1).expand(4))) == {
        "write-conflict",
        "overlapping-arguments",
    }


@ct.kernel
def promises(x: Annotated[Any, None], n):
    m = ct.assume_divisible_by(n, 8)
    ct.store(x, (0,), ct.full((4,), m, ct.int32))


def test_assumptions() -> None:
    run_clean(promises, torch.zeros(4, dtype=torch.int32), 16)
    found = only(run(promises, torch.zeros(4, dtype=torch.int32), 12), "assumption")
    assert "12 is assumed to be divisible by 8" in found.message


@ct.kernel
def promises_behind_a_way_out(x: Annotated[Any, None], n, first):
    if ct.bid(0) < first:
        return
    m = ct.assume_divisible_by(n, 8)
    ct.store(x, (0,), ct.full((4,), m, ct.int32))


def test_an_assumption_that_is_the_same_for_all_blocks_counts_once() -> None:
    """Where a block may return before it, each block that gets there is one to blame."""
    x = torch.zeros(4, dtype=torch.int32)
    found = [d for d in run(promises, x, 12, grid=(3,)).diagnostics if d.kind == "assumption"]
    assert [d.count for d in found] == [1]
    for first in (0, 1, 3):
        report = run(promises_behind_a_way_out, x, 12, first, grid=(3,))
        found = [d for d in report.diagnostics if d.kind == "assumption"]
        assert [d.count for d in found] == [3 - first] * (first < 3)
