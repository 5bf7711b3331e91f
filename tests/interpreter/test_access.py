"""Tiles and elements that are read and written: what is counted, said, and ordered."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from .helpers import line_of, run

Int = ct.Constant[int]
ZERO = ct.PaddingMode.ZERO


@ct.kernel
def moved(x, y, at, to, TILE: Int):
    tile = ct.load(x, (at,), (TILE,), padding_mode=ZERO)  # load
    ct.store(y, (to,), tile)  # store


@settings(max_examples=60, deadline=None)
@given(
    size=st.integers(1, 20), tile=st.sampled_from([1, 2, 8]),
    at=st.integers(0, 9), to=st.integers(0, 9), blocks=st.integers(1, 3),
)  # fmt: skip
def test_a_tile_is_one_access_and_its_part_inside_are_its_bytes(
    size: int, tile: int, at: int, to: int, blocks: int
) -> None:
    """Also where none of it is inside, which is reported besides."""
    x, y = torch.arange(1.0, 1.0 + size), torch.zeros(size)
    report = run(moved, x, y, at, to, tile, grid=(blocks,))
    lines = {line: t for (_, line), t in report.bytes_by_line.items()}

    def inside(index: int) -> int:
        return max(0, min(size - index * tile, tile))

    load, store = (lines[line_of(moved, mark)] for mark in ("load", "store"))
    assert (load.loads, load.bytes_loaded) == (blocks, 4 * blocks * inside(at))
    assert (store.stores, store.bytes_stored) == (blocks, 4 * blocks * inside(to))
    assert (load.stores, load.bytes_stored, store.loads, store.bytes_loaded) == (0,) * 4
    outside = sum(d.kind == "tile-outside" for d in report.diagnostics)
    assert outside == (inside(at) == 0) + (inside(to) == 0)


@ct.kernel
def rows(x, index, y, STORE: Int):
    at = ct.load(index, (0,), (4,))
    if STORE:
        tile = ct.load(x, (0, 0), (4, 4))
        ct.store_advanced_indexing(y, (at, ct.Slice(0, 4)), tile)  # store
    else:
        tile = ct.load_advanced_indexing(x, (at, ct.Slice(0, 4)), padding_mode=ZERO)  # load
        ct.store(y, (0, 0), tile)


@pytest.mark.parametrize(("store", "verb"), [(1, "scatters"), (0, "gathers")])
def test_rows_that_all_lie_outside_are_named(store: int, verb: str) -> None:
    outside = [9, -1, 7, 4]
    x, y = torch.ones(4, 4), torch.zeros(4, 4)
    report = run(rows, x, torch.tensor(outside, dtype=torch.int32), y, store)
    [found] = [d for d in report.diagnostics if d.kind == "tile-outside"]
    assert f"block (0, 0, 0) {verb} tile ({outside}, 0) of {'xy'[store]!r}" in found.message
    assert found.line == line_of(rows, "store" if store else "load")
    for inside in range(4):
        some = torch.tensor([*outside[:inside], 2, *outside[inside + 1 :]], dtype=torch.int32)
        assert "tile-outside" not in {d.kind for d in run(rows, x, some, y, store).diagnostics}


@pytest.mark.parametrize("shape", [(1,), (2,), (7,)])
def test_an_output_is_written_whole_or_named(shape: tuple[int, ...]) -> None:
    """Also one of a single element."""
    y = torch.zeros(shape)
    report = run(moved, torch.ones(4), y, 0, 9, 1)
    missing = [d.message for d in report.diagnostics if d.kind == "never-written"]
    assert missing == [
        f"{y.numel()} of {y.numel()} elements of 'y' are never written; the first is y[0]"
    ]
    assert report.arrays["y"].unique_bytes_stored == 0
    report = run(moved, torch.ones(4), y, 0, 0, 1)
    missing = [d.message for d in report.diagnostics if d.kind == "never-written"]
    assert len(missing) == (y.numel() > 1)
    assert report.arrays["y"].unique_bytes_stored == 4


@ct.kernel
def signals(data, flag, y, ORDER: Int, SCOPE: Int):
    """The first block stores a value and a flag of some order; the second waits for the flag."""
    i = ct.bid(0)
    order = ct.MemoryOrder.RELEASE if ORDER == 1 else ct.MemoryOrder.RELAXED
    scope = ct.MemoryScope.DEVICE if SCOPE == 1 else ct.MemoryScope.BLOCK
    one = ct.full((1,), 1, flag.dtype)
    if i == 0:
        ct.store(data, (0,), ct.ones((4,), ct.float32))
        if ORDER == 2:
            ct.store(flag, (0,), one)
        else:
            ct.store(flag, (0,), one, memory_order=order, memory_scope=scope)
    else:
        seen = ct.load(
            flag, (0,), (1,),
            memory_order=ct.MemoryOrder.ACQUIRE, memory_scope=ct.MemoryScope.DEVICE,
        )  # fmt: skip
        if seen.item() != 0:
            ct.store(y, (0,), ct.load(data, (0,), (4,)))


@pytest.mark.parametrize("order", [0, 1, 2])
@pytest.mark.parametrize("scope", [0, 1])
def test_a_flag_orders_where_it_is_released_to_all_blocks(order: int, scope: int) -> None:
    """Relaxed, released and plain stores, for a block or the device."""
    data, y = torch.zeros(4), torch.zeros(4)
    report = run(signals, data, torch.zeros(1, dtype=torch.int32), y, order, scope, grid=(2,))
    on_data = [d for d in report.errors if "'data'" in d.message or "data[" in d.message]
    assert bool(on_data) is not (order == 1 and scope == 1)
