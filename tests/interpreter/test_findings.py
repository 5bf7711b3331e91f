"""Findings that were missed, false, or blamed on the wrong line."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import pytest
import torch

from tests.interpreter.helpers import assert_points_at, line_of, only, run, run_clean

Int = ct.Constant[int]

# ------------------------------------------------------------------ what is never used is no error


@ct.kernel
def leaves_early(x, y, n: int):
    if n == 0:
        return
    ct.store(y, (0,), ct.load(x, (4 // n,), (4,)) + (1 << (n - 1)))


@ct.kernel
def divides_in_a_loop(x, y, n: int, trips: int):
    for _ in range(trips):
        ct.store(y, (0,), ct.full((4,), 7 // n, ct.int32))  # quotient


@ct.kernel
def selects_around(x, y):
    tile = ct.load(x, (0,), (4,))
    ct.store(y, (0,), ct.where(tile == 0, -1, 12 // tile))


@ct.kernel
def counts_floats(x, y, n: int):
    if ct.bid(0) >= n:
        return
    ct.store(y, (0,), ct.full((4,), ct.exp(ct.full((4,), 0.0, ct.float32)), ct.float32))


def test_a_division_that_no_block_reaches_is_no_error() -> None:
    y = torch.zeros(4)
    run_clean(leaves_early, torch.zeros(4), y, 8)
    report = run(leaves_early, torch.zeros(4), torch.zeros(4), 0)
    assert report.errors == []
    report = run(divides_in_a_loop, y, y.int(), 0, 0)
    assert report.errors == []
    report = run(divides_in_a_loop, y, y.int(), 0, 1)
    assert_points_at(only(report, "division-by-zero"), divides_in_a_loop, "quotient")


def test_a_quotient_that_is_not_selected_is_no_error() -> None:
    x, y = torch.tensor([0, 1, 0, 5], dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    run_clean(selects_around, x, y)
    assert y.tolist() == [-1, 12, -1, 2]


@ct.kernel
def reads_through(x, y, TILE: Int):
    part = x.slice(0, 2, 2)
    ct.store(y.slice(0, 2, 2), (0,), ct.load(part, (0,), (TILE,)))


@ct.kernel
def ragged(x, ends, y, TILE: Int):
    i = ct.bid(0)
    start = ct.load(ends, i, shape=())
    stop = ct.load(ends, i + 1, shape=())
    rows = x.slice(0, start, stop)
    total = ct.sum(ct.load(rows, (0,), (TILE,), padding_mode=ct.PaddingMode.ZERO))
    ct.store(y, (i,), total)


def test_an_empty_slice_is_a_part_without_elements() -> None:
    y = torch.zeros(8)
    report = run(reads_through, torch.ones(8), y, 4)
    assert report.errors == []
    assert y.tolist() == [0.0] * 8
    ends, sums = torch.tensor([0, 3, 3, 8], dtype=torch.int32), torch.zeros(3)
    run_clean(ragged, torch.ones(8), ends, sums, 8, grid=(3,))
    assert sums.tolist() == [3.0, 0.0, 5.0]


# ------------------------------------------------------------------------------ what was missed


@ct.kernel
def unchecked(x, y, column: int):
    rows = ct.arange(4, dtype=ct.int32)
    tile = ct.gather(x, (rows, column), check_bounds=False)  # read
    ct.scatter(y, (rows, column), tile, check_bounds=False)  # write


@pytest.mark.parametrize("column", [0, 4, 5, 7])
def test_gaps_of_a_strided_argument(column: int) -> None:
    x, y = torch.ones(4, 8)[:, :5], torch.zeros(4, 8)[:, :5]
    report = run(unchecked, x, y, column)
    found = [d for d in report.errors if d.kind == "out-of-bounds"]
    lines = [line_of(unchecked, mark) for mark in ("read", "write")]
    assert [d.line for d in found] == ([] if column < 5 else lines)
    assert all(("gap" in d.message) == (column > 4) for d in found)


@ct.kernel
def writes_one_tile(x, y):
    ct.store(y, (0, 0), ct.load(x, (0, 0), (4, 4)))  # collides


@ct.kernel
def writes_rows(x, y):
    i = ct.bid(0)
    ct.store(y, (i, 0), ct.load(x, (i, 0), (1, 4)))  # rows


def test_stores_to_an_output_that_overlaps_itself() -> None:
    storage, x = torch.zeros(8), torch.arange(16.0).reshape(4, 4)
    windows = storage.as_strided((4, 4), (1, 1))
    found = run(writes_one_tile, x, windows).errors
    assert [d.kind for d in found] == ["write-conflict"]
    assert_points_at(found[0], writes_one_tile, "collides")
    found = run(writes_rows, x, windows, grid=(4,)).errors
    assert [d.kind for d in found] == ["write-conflict"]
    report = run(writes_rows, x, windows, grid=(1,))
    assert [(d.kind, d.severity) for d in report.diagnostics if d.kind != "never-written"] == [
        ("overlapping-arguments", "warning")
    ]
    run_clean(writes_one_tile, windows, torch.zeros(4, 4))
    interleaved = torch.zeros(40).as_strided((4, 4), (3, 4))  # 3i + 4j never meets itself
    run_clean(writes_one_tile, x, interleaved)


@ct.kernel
def wraps_into_an_index(x, y, big: int, hashed: int):
    at = big * 65536  # wraps
    ct.store(y, (0,), ct.load(x, (at // 65536,), (1,)) + hashed * 65537)


def test_an_index_that_wrapped() -> None:
    x, y = torch.zeros(4), torch.zeros(1)
    run_clean(wraps_into_an_index, x, y, 3, 2**30)
    report = run(wraps_into_an_index, x, y, 65536 + 3, 0)
    found = only(report, "index-overflow")
    assert_points_at(found, wraps_into_an_index, "wraps")
    assert found.severity == "warning"
    assert "the index of a load" in found.message


@ct.kernel
def counts_in_16_bits(x, y, TILE: Int, GROWS: ct.Constant[bool]):
    lane = ct.arange(TILE, dtype=ct.int32)
    for j in range(ct.cdiv(x.shape[0], TILE)):
        col = j % 8 * TILE + lane if GROWS else lane  # Of 8 tiles, an extent perhaps.
        small = col.astype(ct.int16)  # narrow
        tile = ct.where(small < x.shape[0], ct.load(x, (j,), (TILE,)), 0.0)
        ct.store(y, (j,), tile)


def test_an_index_of_fewer_bits_than_extents_may_have() -> None:
    x, y = torch.zeros(16), torch.zeros(16)
    run_clean(counts_in_16_bits, x, y, 8, False)  # No more than a tile has.
    found = only(run(counts_in_16_bits, x, y, 8, True), "narrow-index")
    assert_points_at(found, counts_in_16_bits, "narrow")
    assert found.severity == "warning"
    assert "int16, which holds 32767" in found.message


@ct.kernel
def packs_values(x, y, TILE: Int):
    ct.store(y, (ct.bid(0),), ct.load(x, (ct.bid(0),), (TILE,)).astype(ct.int8))


def test_values_of_few_bits_are_no_indices() -> None:
    x, y = torch.zeros(16, dtype=torch.int32), torch.zeros(16, dtype=torch.int8)
    run_clean(packs_values, x, y, 8, grid=(2,))


# ---------------------------------------------------------------------------------------- blame


@ct.kernel
def five_loads(a, b, c, d, e, out, GUILTY: Int):
    ta = ct.load(a, (0,), (8,))  # load 0
    tb = ct.load(b, (0,), (8,))  # load 1
    tc = ct.load(c, (0,), (8,))  # load 2
    td = ct.load(d, (0,), (8,))  # load 3
    te = ct.load(e, (0,), (8,))  # load 4
    at = ct.arange(8, dtype=ct.int32)
    if GUILTY == 0:
        keep = ct.where(at < 4, ta + tb, 0.0)
        ct.store(out, (0,), keep + ct.where(at < 5, tc, 0.0) + ct.where(at < 5, td * te, 0.0))
    else:
        keep = ct.where(at < 4, ta + tb, 0.0) + ct.where(at < 5, tc, 0.0)
        ct.store(out, (0,), ct.where(at < 5, keep + td, 0.0) + ct.where(at < 4, te, te * 0.0))


def test_the_one_load_that_is_guilty() -> None:
    """All five tiles reach outside; one of them, or none, matters."""

    def problem(size: int) -> list[torch.Tensor]:
        sizes = [5, 5, 5, 5, 5]
        return [torch.ones(n) for n in sizes] + [torch.zeros(size)]

    run_clean(five_loads, *problem(5), 0)
    report = run(five_loads, *problem(8), 1)
    assert_points_at(only(report, "undetermined-padding"), five_loads, "load 4")


@ct.kernel
def mixes_rows(x, w, y, OP: Int):
    a = ct.load(x, (0, 0), (4, 4))  # ragged rows
    b = ct.load(w, (0, 0), (4, 4))  # ragged columns
    if OP == 0:
        out = ct.mma(a, b, ct.zeros((4, 4), ct.float32))
    elif OP == 1:
        out = ct.cat((a, b), axis=0)
    else:
        out = a + ct.broadcast_to(ct.sum(b, axis=0, keepdims=True), (4, 4))
    ct.store(y, (0, 0), out)


@pytest.mark.parametrize(
    ("op", "shape", "marks"),
    [
        (0, (3, 4), ["ragged columns"]),
        (0, (4, 3), ["ragged rows"]),
        (0, (3, 3), []),
        (1, (4, 4), ["ragged rows"]),
        (1, (8, 3), ["ragged rows"]),
        (2, (3, 4), ["ragged columns"]),
        (2, (4, 3), ["ragged rows"]),
        (2, (3, 3), []),
    ],
)
def test_each_element_has_its_own_origins(op: int, shape: tuple[int, int], marks: Any) -> None:
    """Row 3 of x and column 3 of w are undetermined."""
    x, w = torch.ones(3, 4), torch.ones(4, 3)
    report = run(mixes_rows, x, w, torch.zeros(shape), op)
    lines = sorted({d.line for d in report.errors if d.kind == "undetermined-padding"})
    assert lines == sorted(line_of(mixes_rows, mark) for mark in marks)


@ct.kernel
def scans(x, w, y, REDUCE: Int):
    a = ct.load(x, (0,), (8,))  # first
    b = ct.load(w, (0,), (8,))  # second
    at = ct.arange(8, dtype=ct.int32)
    joined = ct.where(at < 4, a, b)
    if REDUCE:
        ct.store(y, (0,), ct.max(joined, axis=0, keepdims=True))
    else:
        ct.store(y, (0,), ct.cumsum(joined, axis=0))


def test_scans_and_reductions_keep_each_origin() -> None:
    first, second = (line_of(scans, mark) for mark in ("first", "second"))

    def guilty(x: int, w: int, out: int, reduce: int) -> set[int]:
        report = run(scans, torch.ones(x), torch.ones(w), torch.zeros(out), reduce)
        return {d.line for d in report.errors}

    assert guilty(3, 8, 8, 0) == {first}
    assert guilty(3, 8, 3, 0) == set()
    assert guilty(8, 6, 8, 0) == {second}
    assert guilty(3, 6, 5, 0) == {first}
    assert guilty(3, 6, 8, 0) == {first, second}
    assert guilty(5, 7, 1, 1) == {second}
    assert guilty(3, 8, 1, 1) == {first}
    assert guilty(4, 8, 1, 1) == set()


@ct.kernel
def masked_pointers(x, index, y, n: int):
    at = ct.load(index, (0,), (8,))  # ragged index
    tile = ct.gather(x, at, mask=ct.arange(8, dtype=ct.int32) < n, padding_value=0.0)
    ct.store(y, (0,), tile)


def test_an_undetermined_pointer_that_is_masked_off_is_no_error() -> None:
    index = torch.arange(5, dtype=torch.int32)
    run_clean(masked_pointers, torch.ones(8), index, torch.zeros(8), 5)
    report = run(masked_pointers, torch.ones(8), index, torch.zeros(8), 6)
    lines = {d.line for d in report.errors if d.kind == "undetermined-padding"}
    assert lines == {line_of(masked_pointers, "ragged index")}


# -------------------------------------------------------------------------- padding of hardware


@ct.kernel
def past_the_end(x, y, MODE: Int):
    if MODE == 0:
        tile = ct.load(x, (1,), (4,), padding_mode=ct.PaddingMode.ZERO)  # outside
    elif MODE == 1:
        tile = ct.load(x, (1,), (4,), padding_mode=ct.PaddingMode.NEG_INF)
    elif MODE == 2:
        tile = ct.load(x, (1,), (4,))
    else:
        tile = ct.load(x, (0,), (8,)).reshape((2, 4))
        tile = ct.extract(tile, (1, 0), (1, 4)).reshape((4,))
    ct.store(y, (0,), tile)
    ct.store(y, (1,), tile)


@pytest.mark.parametrize(("mode", "value"), list(enumerate([0.0, float("-inf"), 0.0, 0.0])))
def test_hardware_padding(mode: int, value: float) -> None:
    x, y = torch.ones(4), torch.ones(4)
    report = run(past_the_end, x, y, mode, padding="hardware")
    assert y.tolist() == [value] * 4
    assert report.errors == []
    assert {d.severity for d in report.diagnostics} == {"info"}
    assert run(past_the_end, x, y, mode).errors != []
    assert y.isnan().all()
