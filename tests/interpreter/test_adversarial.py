"""Adversarial micro-kernels: memory, aliasing, blocks, control flow, arguments, refusals.

Each has the right answer, computed here without the interpreter, or the right diagnostic on the
right line, or the right refusal. Arithmetic is in ``test_adversarial_values.py``.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from typing import Annotated, Any

import cuda.tile as ct
import numpy as np
import pytest
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import launch

from .helpers import (
    assert_points_at,
    assert_same,
    line_of,
    only,
    refusal,
    refusal_by_cutile,
    run,
    run_clean,
)

Int = ct.Constant[int]
ZERO, NAN_PAD = ct.PaddingMode.ZERO, ct.PaddingMode.NAN
INF = math.inf


# ---------------------------------------------------------------- ragged edges and padding


@ct.kernel
def padded_load(x, out, MODE: Int):
    if MODE == 0:
        tile = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.ZERO)
    elif MODE == 1:
        tile = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.NEG_ZERO)
    elif MODE == 2:
        tile = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.NAN)
    elif MODE == 3:
        tile = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.POS_INF)
    else:
        tile = ct.load(x, (1,), (8,), padding_mode=ct.PaddingMode.NEG_INF)
    ct.store(out, (0,), tile)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("mode", "padding"), list(enumerate([0.0, -0.0, math.nan, INF, -INF])), ids=str
)
def test_every_padding_mode(mode: int, padding: float, dtype: torch.dtype) -> None:
    out = torch.zeros(8, dtype=dtype)
    run_clean(padded_load, torch.arange(11).to(dtype), out, mode)
    assert_same(out.float(), [8.0, 9.0, 10.0] + [padding] * 5)


@ct.kernel
def undetermined_sum(x, out):
    tile = ct.load(x, (1,), (8,))  # the ragged load
    ct.store(out, (0,), ct.sum(tile).reshape((1,)))


def test_undetermined_padding_that_reaches_the_result_is_poison() -> None:
    x, out = torch.ones(11), torch.zeros(1)
    report = run(undetermined_sum, x, out)
    assert math.isnan(out.item())
    diagnostic = only(report, "undetermined-padding")
    assert_points_at(diagnostic, undetermined_sum, "the ragged load")
    assert diagnostic.severity in ("error", "warning")


def test_the_poison_can_be_chosen() -> None:
    x, out = torch.ones(11), torch.zeros(1)
    run(undetermined_sum, x, out, poison=0.0)
    assert out.item() == 3.0


def test_no_poison_where_the_tile_fits() -> None:
    out = torch.zeros(1)
    run_clean(undetermined_sum, torch.ones(16), out)
    assert out.item() == 8.0


@ct.kernel
def masked_sum(x, out, n):
    tile = ct.load(x, (1,), (8,))
    inside = ct.arange(8, dtype=ct.int32) + 8 < n
    ct.store(out, (0,), ct.sum(ct.where(inside, tile, 0.0)).reshape((1,)))


def test_padding_that_is_masked_away_does_no_harm() -> None:
    out = torch.zeros(1)
    run_clean(masked_sum, torch.ones(11), out, 11)
    assert out.item() == 3.0


@ct.kernel
def multiplied_by_zero(x, out, n):
    tile = ct.load(x, (1,), (8,))  # ragged
    inside = ct.astype(ct.arange(8, dtype=ct.int32) + 8 < n, ct.float32)
    ct.store(out, (0,), ct.sum(tile * inside).reshape((1,)))


def test_a_mask_that_multiplies_does_not_remove_poison() -> None:
    out = torch.zeros(1)
    report = run(multiplied_by_zero, torch.ones(11), out, 11)
    assert math.isnan(out.item())
    assert_points_at(only(report, "undetermined-padding"), multiplied_by_zero, "ragged")


@ct.kernel
def undetermined_integers(x, out):
    ct.store(out, (0,), ct.load(x, (1,), (8,)) * 2)  # ragged


@pytest.mark.parametrize("dtype", [torch.int8, torch.int32, torch.uint64], ids=str)
def test_undetermined_integers_are_reported_too(dtype: torch.dtype) -> None:
    out = torch.zeros(8, dtype=dtype)
    report = run(undetermined_integers, torch.ones(9).to(dtype), out)
    assert_points_at(only(report, "undetermined-padding"), undetermined_integers, "ragged")
    assert out[0].item() == 2


@ct.kernel
def copy_ragged(x, out):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (i, j), ct.load(x, (i, j), (4, 8)) + 1)


def test_padding_that_no_store_keeps_is_fine() -> None:
    x, out = torch.arange(42.0).reshape(6, 7), torch.zeros(6, 7)
    guard = torch.cat([out.new_full((3,), 7.0), out.flatten(), out.new_full((3,), 7.0)])
    view = guard[3:-3].view(6, 7)
    run_clean(copy_ragged, x, view, grid=(2, 1))
    assert torch.equal(view, x + 1)
    assert guard[:3].tolist() == guard[-3:].tolist() == [7.0] * 3


@ct.kernel
def shifted_copy(x, out, at):
    ct.store(out, (0,), ct.load(x, (at,), (8,), padding_mode=ZERO))  # wholly outside


@pytest.mark.parametrize("at", [2, 100, -1])
def test_a_load_wholly_outside_is_reported(at: int) -> None:
    report = run(shifted_copy, torch.ones(16), torch.zeros(8), at)
    assert_points_at(only(report, "tile-outside"), shifted_copy, "wholly outside")


@ct.kernel
def shifted_store(out, at):
    ct.store(out, (at,), ct.ones((8,), out.dtype))  # wholly outside


def test_a_store_wholly_outside_is_reported_and_changes_nothing() -> None:
    storage = torch.zeros(64)
    report = run(shifted_store, storage[:16], 3)
    kinds = {d.kind for d in report.diagnostics}
    assert "tile-outside" in kinds
    outside = next(d for d in report.diagnostics if d.kind == "tile-outside")
    assert_points_at(outside, shifted_store, "wholly outside")
    assert storage.sum() == 0


@ct.kernel
def unchecked(x, out, at):
    ct.store(out, (0,), ct.load(x, (at,), (8,), check_bounds=False))  # unchecked


def test_unchecked_loads_inside_the_array_are_plain_loads() -> None:
    x, out = torch.arange(16.0), torch.zeros(8)
    run_clean(unchecked, x, out, 1)
    assert torch.equal(out, x[8:])


def test_an_unchecked_load_beyond_the_array_is_reported() -> None:
    report = run(unchecked, torch.arange(12.0), torch.zeros(8), 1)
    found = [d for d in report.diagnostics if d.kind in ("out-of-bounds", "tile-outside")]
    assert found
    assert_points_at(found[0], unchecked, "unchecked")
    assert found[0].severity == "error"


@ct.kernel
def uses_only_what_is_inside(x, out):
    tile = ct.load(x, (0, 0), (4, 8))  # 3 of 4 rows, 5 of 8 columns
    inside = ct.arange(8, dtype=ct.int32)[None, :] < x.shape[1]
    scores = ct.where(inside, tile, -1e30)
    weights = ct.exp2(scores - ct.max(scores, 1, keepdims=True))
    weights = weights / ct.sum(weights, 1, keepdims=True)
    doubled = ct.cat((weights, weights), 1)
    back = ct.extract(doubled, (0, 1), (4, 8)).reshape((2, 2, 8)).permute((1, 0, 2))
    ct.store(out, (0, 0), back.permute((1, 0, 2)).reshape((4, 8)))


def test_a_masked_softmax_of_a_ragged_tile_is_clean() -> None:
    x, out = torch.arange(15.0).reshape(3, 5), torch.zeros(3, 8)
    run_clean(uses_only_what_is_inside, x, out)
    expected = torch.softmax(x * math.log(2), 1)
    torch.testing.assert_close(out[:, :5], expected)
    assert (out[:, 5:] == 0).all()


@ct.kernel
def padded_product(x, y, out, PAD_X: ct.Constant[bool]):
    mode = ZERO if PAD_X else ct.PaddingMode.UNDETERMINED
    a = ct.load(x, (0, 0), (4, 8), padding_mode=mode)  # x is ragged
    b = ct.load(y, (0, 0), (8, 4), padding_mode=ZERO)
    ct.store(out, (0, 0), ct.mma(a, b, ct.zeros((4, 4), ct.float32)))


def test_padding_along_k_poisons_a_product_and_padding_of_rows_does_not() -> None:
    x, y, out = torch.ones(3, 8).half(), torch.ones(8, 4).half(), torch.zeros(3, 4)
    run_clean(padded_product, x, y, out, False)
    assert_same(out, [8.0] * 12)
    ragged = torch.ones(3, 5).half(), torch.ones(5, 4).half()
    run_clean(padded_product, *ragged, out, True)
    assert_same(out, [5.0] * 12)
    report = run(padded_product, *ragged, out, False)  # NaN times the zeros of y is NaN
    assert_points_at(only(report, "undetermined-padding"), padded_product, "x is ragged")
    assert out.isnan().all()


@ct.kernel
def scans_a_ragged_tile(x, out, REVERSE: ct.Constant[bool]):
    tile = ct.load(x, (0,), (8,))  # ragged
    ct.store(out, (0,), ct.cumsum(tile, 0, reverse=REVERSE))


def test_a_scan_is_poisoned_from_the_padding_on() -> None:
    x, out = torch.ones(5), torch.zeros(5)
    run_clean(scans_a_ragged_tile, x, out, False)
    assert_same(out, [1.0, 2.0, 3.0, 4.0, 5.0])
    report = run(scans_a_ragged_tile, x, out, True)
    assert_points_at(only(report, "undetermined-padding"), scans_a_ragged_tile, "ragged")
    assert out.isnan().all()


@ct.kernel
def scans_padding_in_front(x, index, out, REVERSE: ct.Constant[bool]):
    rows = ct.load(index, (0,), (2,))
    tile = ct.load_advanced_indexing(x, (rows, ct.Slice(-2, 4)))  # two columns in front
    sums = ct.cumsum(tile, 1, reverse=REVERSE)
    ct.store(out, (0, 0), ct.extract(sums, (0, 1), (2, 2)))


def test_a_reversed_scan_meets_padding_in_front_last() -> None:
    x, out = torch.arange(1.0, 13.0).reshape(3, 4), torch.zeros(2, 2)
    index = torch.tensor([2, 0], dtype=torch.int32)
    run_clean(scans_padding_in_front, x, index, out, True)
    assert out.tolist() == [[19.0, 10.0], [3.0, 2.0]]
    report = run(scans_padding_in_front, x, index, out, False)
    diagnostic = only(report, "undetermined-padding")
    assert_points_at(diagnostic, scans_padding_in_front, "two columns in front")


@ct.kernel
def selects_by_padding(x, out):
    tile = ct.load(x, (0,), (4,))  # ragged
    ct.store(out, (0,), ct.where(tile > 0, ct.ones((4,), ct.int32), ct.zeros((4,), ct.int32)))


def test_a_selection_by_padding_is_undetermined() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    report = run(selects_by_padding, torch.ones(3), out)
    assert_points_at(only(report, "undetermined-padding"), selects_by_padding, "ragged")
    assert out[:3].tolist() == [1] * 3


@ct.kernel
def taints_one_block(x, out):
    i = ct.bid(0)
    tile = ct.zeros((4,), ct.float32)
    if i == 0:
        tile = ct.load(x, (0,), (4,))  # ragged
    ct.store(out, (i,), tile)


def test_poison_of_one_block_does_not_reach_the_next() -> None:
    report = run(taints_one_block, torch.ones(3), torch.zeros(12), grid=(3,))
    assert only(report, "undetermined-padding").count == 1


@ct.kernel
def decides_by_padding(x, out, HOW: Int):
    tile = ct.load(x, (0,), (4,))  # ragged
    last = ct.extract(tile, (3,), (1,)).item()
    if HOW == 0:
        if last > 5:
            ct.store(out, (0,), ct.full((1,), 1, ct.int32))
        else:
            ct.store(out, (0,), ct.full((1,), 2, ct.int32))
    elif HOW == 1:
        ct.store(out, (0,), ct.full((1,), 1, ct.int32))
        ct.scatter(out, last, 3)
    else:
        total = 0
        for i in range(last % 4):
            total = total + i
        ct.store(out, (0,), ct.full((1,), total, ct.int32))


@pytest.mark.parametrize("how", [0, 1, 2], ids=["branch", "address", "loop"])
def test_padding_that_decides_something_is_reported(how: int) -> None:
    x, out = torch.arange(3, dtype=torch.int32), torch.zeros(1, dtype=torch.int32)
    report = run(decides_by_padding, x, out, how)
    found = [d for d in report.diagnostics if d.kind == "undetermined-padding"]
    assert len(found) == 1
    assert_points_at(found[0], decides_by_padding, "ragged")


@ct.kernel
def carried_by_a_loop(x, out, rounds):
    tile = ct.load(x, (0,), (4,))  # ragged
    acc = ct.zeros((4,), ct.int32)
    for _ in range(rounds):
        acc, tile = tile, acc
    ct.store(out, (0,), acc)


def test_a_loop_hands_poison_on() -> None:
    x, out = torch.arange(3, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    for rounds in (0, 2):
        run_clean(carried_by_a_loop, x, out, rounds)
        assert out.tolist() == [0] * 4
    for rounds in (1, 3):
        report = run(carried_by_a_loop, x, out, rounds)
        assert_points_at(only(report, "undetermined-padding"), carried_by_a_loop, "ragged")


@ct.kernel
def removes_padding_from_integers(x, out):
    tile = ct.load(x, (0,), (4,))
    inside = ct.astype(ct.arange(4, dtype=ct.int32) < 3, ct.int32)
    replaced = ct.insert(tile, (3,), ct.zeros((1,), ct.int32))
    ct.store(out, (0,), tile * inside)
    ct.store(out, (1,), tile & -inside)
    ct.store(out, (2,), replaced)


def test_integer_padding_times_zero_is_zero() -> None:
    x, out = torch.arange(5, 8, dtype=torch.int32), torch.zeros(12, dtype=torch.int32)
    run_clean(removes_padding_from_integers, x, out)
    assert out.tolist() == [5, 6, 7, 0] * 3


# ---------------------------------------------------------------- views, strides, aliasing


@ct.kernel
def copy_2d(x, out, R: Int, C: Int):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (i, j), ct.load(x, (i, j), (R, C), padding_mode=ZERO))


def _grid(shape: torch.Size, rows: int, columns: int) -> tuple[int, int]:
    return -(-shape[0] // rows), -(-shape[1] // columns)


@pytest.mark.parametrize(
    "view",
    [
        lambda t: t.t(),
        lambda t: t[::2, ::3],
        lambda t: t[3:, 5:],
        lambda t: t[1:2].expand(7, -1),
        lambda t: t[:, 2:3].expand(-1, 9),
        lambda t: torch.as_strided(t, (6, 5), (4, 2), 1),  # rows overlap
    ],
    ids=["transposed", "stepped", "offset", "stride-0-rows", "stride-0-columns", "overlapping"],
)
def test_loads_follow_strides(view: Any) -> None:
    x = view(torch.arange(120.0).reshape(10, 12))
    out = torch.zeros(x.shape)
    run_clean(copy_2d, x, out, 4, 4, grid=_grid(x.shape, 4, 4))
    assert torch.equal(out, x)


@pytest.mark.parametrize(
    "view", [lambda t: t.t(), lambda t: t[::2, 1::3]], ids=["transposed", "stepped"]
)
def test_stores_follow_strides_and_touch_nothing_between(view: Any) -> None:
    base = torch.full((10, 12), -1.0)
    expected = base.clone()
    out = view(base)
    x = torch.arange(float(out.numel())).reshape(out.shape)
    run_clean(copy_2d, x, out, 2, 8, grid=_grid(x.shape, 2, 8))
    view(expected).copy_(x)
    assert torch.equal(base, expected)


@ct.kernel
def reordered(x, out):
    i = ct.bid(0)
    tile = ct.load(x, (0, i, 0), (8, 2, 4), order=(2, 0, 1), padding_mode=ZERO)
    ct.store(out, (i, 0, 0), tile.permute((1, 2, 0)))


def test_order_maps_tile_axes_to_array_axes() -> None:
    x = torch.arange(105.0).reshape(5, 3, 7)
    out = torch.zeros(6, 4, 8)
    run_clean(reordered, x, out, grid=(3,))
    expected = torch.zeros(6, 4, 8)
    expected[:5, :3, :7] = x
    assert torch.equal(out, expected)


@ct.kernel
def stored_in_fortran_order(x, out):
    ct.store(out, (ct.bid(0), 0), ct.load(x, (ct.bid(0), 0), (4, 8)), order="F")


def test_fortran_order_stores_the_transpose() -> None:
    x, out = torch.arange(64.0).reshape(8, 8), torch.zeros(8, 8)
    run_clean(stored_in_fortran_order, x, out, grid=(2,))
    assert torch.equal(out, x.t())


@ct.kernel
def through_an_alias(a, b, out):
    ct.store(a, (0,), ct.full((8,), 5.0, ct.float32))
    ct.store(out, (0,), ct.load(b, (0,), (8,)))


def test_two_views_of_one_tensor_are_reported_and_share_memory() -> None:
    storage, out = torch.arange(12.0), torch.zeros(8)
    report = run(through_an_alias, storage[:8], storage[4:], out)
    assert "overlapping-arguments" in {d.kind for d in report.diagnostics}
    assert_same(storage, [5.0] * 8 + [8.0, 9.0, 10.0, 11.0])
    assert_same(out, [5.0] * 4 + [8.0, 9.0, 10.0, 11.0])


@ct.kernel
def add_arrays(a, b, out):
    ct.store(out, (0,), ct.load(a, (0,), (8,)) + ct.load(b, (0,), (8,)))


def test_two_inputs_may_share_memory() -> None:
    x, out = torch.arange(12.0), torch.zeros(8)
    run_clean(add_arrays, x[:8], x[4:], out)
    assert torch.equal(out, x[:8] + x[4:])


@ct.kernel
def in_place(x):
    i = ct.bid(0)
    ct.store(x, (i,), ct.load(x, (i,), (8,)) * 2)


def test_in_place_update_is_no_hazard() -> None:
    x = torch.arange(20.0)
    run_clean(in_place, x, grid=(3,))
    assert torch.equal(x, torch.arange(20.0) * 2)


@ct.kernel
def write_then_read(x, out):
    i = ct.bid(0)
    ct.store(x, (i,), ct.full((4,), 3, ct.int32))
    ct.store(out, (i,), ct.load(x, (i,), (4,)))


def test_a_block_sees_its_own_writes() -> None:
    x, out = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    run_clean(write_then_read, x, out, grid=(2,))
    assert out.tolist() == [3] * 8


@ct.kernel
def sliced(x, out, start, length):
    part = x.slice(axis=1, start=start, stop=start + length)
    ct.store(out, (0, 0), ct.load(part, (0, 1), (4, 4), padding_mode=ZERO))


def test_a_slice_ends_where_it_says_and_not_where_the_array_does() -> None:
    x, out = torch.arange(48.0).reshape(4, 12), torch.zeros(4, 4)
    run_clean(sliced, x, out, 2, 6)
    expected = torch.zeros(4, 4)
    expected[:, :2] = x[:, 6:8]
    assert torch.equal(out, expected)


@ct.kernel
def sliding_windows(x, out):
    windows = x.tiled_view((4,), traversal_steps=(2,), padding_mode=ZERO)
    for i in range(windows.num_tiles(0)):
        ct.store(out, (i, 0), windows.load(i).reshape((1, 4)))


def test_a_tiled_view_with_overlapping_tiles() -> None:
    x, out = torch.arange(1.0, 10.0), torch.full((8, 4), -1.0)
    run(sliding_windows, x, out)
    padded = [*x.tolist(), 0.0, 0.0, 0.0, 0.0]
    steps = -(-9 // 2)
    for i in range(steps):
        assert out[i].tolist() == padded[2 * i : 2 * i + 4]
    assert (out[steps:] == -1).all()


@ct.kernel
def scalar_array(x, out):
    ct.store(out, (), ct.load(x, (), ()) + 1)


def test_arrays_without_dimensions() -> None:
    x, out = torch.tensor(41), torch.tensor(0)
    run_clean(scalar_array, x, out)
    assert out.item() == 42


@ct.kernel
def raw_memory(x, out, shift):
    memory = x.get_raw_memory()
    offsets = ct.arange(8, dtype=ct.int32) + shift
    tile = memory.load_offset(offsets, mask=offsets < 6, padding_value=-1.0)  # raw load
    ct.store(out, (0,), tile)


def test_raw_memory_ignores_shape_and_strides() -> None:
    storage, out = torch.arange(16.0), torch.zeros(8)
    run_clean(raw_memory, storage.reshape(2, 8).T, out, 1)
    assert_same(out, [1.0, 2.0, 3.0, 4.0, 5.0, -1.0, -1.0, -1.0])


def test_raw_memory_between_the_elements_of_an_array_is_reported() -> None:
    report = run(raw_memory, torch.arange(16.0)[::2], torch.zeros(8), 1)
    found = only(report, "out-of-bounds")
    assert_points_at(found, raw_memory, "raw load")
    assert "3 elements" in found.message
    assert "gap" in found.message


def test_raw_memory_outside_the_storage_is_reported() -> None:
    report = run(raw_memory, torch.arange(6.0), torch.zeros(8), -2)
    found = [d for d in report.diagnostics if d.kind == "out-of-bounds"]
    assert len(found) == 1
    assert_points_at(found[0], raw_memory, "raw load")
    assert found[0].severity == "error"


@ct.kernel
def increment_and_keep(x, alias, kept):
    before = ct.load(alias, (0,), (8,))
    ct.store(x, (0,), before + 1.0)
    ct.store(kept, (0,), before)


def _as_one(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, x


def _as_separate_storages(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, torch.from_numpy(x.numpy())


def _as_overlapping_storages(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    memory = np.zeros(12, np.float32)
    memory[4:] = x.numpy()
    return torch.from_numpy(memory[4:]), torch.from_numpy(memory[:12])[4:]


@pytest.mark.parametrize(
    "pair", [_as_one, _as_separate_storages, _as_overlapping_storages], ids=lambda f: f.__name__
)
def test_a_tile_keeps_its_values_when_memory_changes(pair: Any) -> None:
    x, alias = pair(torch.arange(8.0))
    kept = torch.zeros(8)
    report = run(increment_and_keep, x, alias, kept)
    assert torch.equal(x, torch.arange(1.0, 9.0))
    assert torch.equal(kept, torch.arange(8.0))
    assert {d.kind for d in report.diagnostics} == {"overlapping-arguments"}


@ct.kernel
def changes_memory_in_every_way(arrays, raw, foreign, part, kept):
    a, b = ct.load(arrays[0], (0,), (4,)), ct.load(raw, (0,), (4,))
    c, d = ct.load(foreign, (0,), (4,)), ct.load(part, (1,), (4,))
    ct.store(arrays[0], (0,), a + 10.0)
    raw.get_raw_memory().store_offset(ct.arange(4, dtype=ct.int32), b + 20.0)
    view = ct.Array.from_foreign(foreign.foreign_pointer, foreign.shape, foreign.strides)
    ct.store(view, (0,), c + 30.0)
    ct.store(part.slice(axis=0, start=4, stop=8), (0,), d + 40.0)
    ct.store(kept, (0,), a)
    ct.store(kept, (1,), b)
    ct.store(kept, (2,), c)
    ct.store(kept, (3,), d)


def test_a_tile_keeps_its_values_whichever_way_memory_is_written() -> None:
    arrays, kept = [torch.arange(4.0) for _ in range(3)], torch.zeros(16)
    part = torch.arange(8.0)
    run(changes_memory_in_every_way, [arrays[0]], arrays[1], arrays[2], part, kept)
    for i, array in enumerate(arrays):
        assert torch.equal(array, torch.arange(4.0) + 10 * (i + 1))
    assert torch.equal(part, torch.cat([torch.arange(4.0), torch.arange(44.0, 48.0)]))
    assert torch.equal(kept, torch.cat([torch.arange(4.0)] * 3 + [torch.arange(4.0, 8.0)]))


def test_a_store_through_an_expanded_view_is_reported() -> None:
    storage = torch.zeros(1, 4)
    report = run(copy_2d, torch.ones(4, 4), storage.expand(4, 4), 4, 4)
    assert "write-conflict" in {d.kind for d in report.diagnostics}
    assert torch.equal(storage, torch.ones(1, 4))


def test_arrays_without_elements() -> None:
    """The first tile of an axis without elements is a part that has none."""
    run_clean(copy_2d, torch.zeros(0, 4), torch.zeros(0, 4), 4, 4)
    run_clean(never_stores, torch.zeros(0), torch.zeros(0), 0)


# ---------------------------------------------------------------- gather and scatter


@ct.kernel
def gather_1d(x, index, out):
    ct.store(out, (0,), ct.gather(x, ct.load(index, (0,), (8,)), padding_value=-7.0))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8], ids=str)
def test_gather_pads_indices_outside_and_does_not_count_from_the_end(dtype: torch.dtype) -> None:
    index = [0, -1, 3, 4, 5, -5, 100, 2]
    x, out = torch.arange(5.0), torch.zeros(8)
    run_clean(gather_1d, x, torch.tensor(index, dtype=dtype), out)
    assert_same(out, [float(i) if 0 <= i < 5 else -7.0 for i in index])


@ct.kernel
def gather_2d(x, out, n):
    row = ct.arange(4, dtype=ct.int32)[:, None] - 1
    column = ct.arange(8, dtype=ct.int32)[None, :] * 2
    tile = ct.gather(x, (row, column), mask=row + column < n, padding_value=9)
    ct.store(out, (0, 0), tile)


def test_gather_broadcasts_indices_and_obeys_mask_and_bounds() -> None:
    x = torch.arange(33, dtype=torch.int32).reshape(3, 11)
    out = torch.zeros(4, 8, dtype=torch.int32)
    run_clean(gather_2d, x.t().contiguous().t(), out, 9)  # a column-major array
    expected = [
        [x[r, c].item() if 0 <= r < 3 and c < 11 and r + c < 9 else 9 for c in range(0, 16, 2)]
        for r in range(-1, 3)
    ]
    assert out.tolist() == expected


@ct.kernel
def scatter_1d(out, index, values):
    ct.scatter(out, ct.load(index, (0,), (8,)), ct.load(values, (0,), (8,)))  # scatter


def test_scatter_drops_indices_outside() -> None:
    index = [0, -1, 3, 4, 5, 7, 100, 2]
    out = torch.full((6,), -1.0)
    run(scatter_1d, out, torch.tensor(index, dtype=torch.int32), torch.arange(8.0))
    expected = [-1.0] * 6
    for value, i in enumerate(index):
        if 0 <= i < 6:
            expected[i] = float(value)
    assert_same(out, expected)


def test_a_scatter_that_writes_one_value_twice_is_a_warning() -> None:
    index = torch.tensor([0, 1, 2, 3, 4, 5, 2, 2], dtype=torch.int32)
    values = torch.arange(8.0)
    values[6:] = values[2]
    report = run(scatter_1d, torch.full((6,), -1.0), index, values)
    found = only(report, "write-conflict")
    assert found.severity == "warning"
    assert "each time the same value" in found.message


def test_a_scatter_that_collides_is_reported() -> None:
    index = [0, 1, 2, 3, 4, 5, 2, 2]
    out = torch.full((6,), -1.0)
    report = run(scatter_1d, out, torch.tensor(index, dtype=torch.int32), torch.arange(8.0))
    assert_points_at(only(report, "write-conflict"), scatter_1d, "scatter")
    assert out[2].item() in (2.0, 6.0, 7.0)
    assert_same(out[[0, 1, 3, 4, 5]], [0.0, 1.0, 3.0, 4.0, 5.0])


@ct.kernel
def unchecked_gather(x, out, shift):
    index = ct.arange(8, dtype=ct.int32) + shift
    ct.store(out, (0,), ct.gather(x, index, check_bounds=False))  # gather


def test_unchecked_gathers_are_held_against_the_storage() -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    run_clean(unchecked_gather, x, out, 0)
    assert torch.equal(out, x)
    report = run(unchecked_gather, x, out, -1)
    assert_points_at(only(report, "out-of-bounds"), unchecked_gather, "gather")


@ct.kernel
def sparse_rows(x, index, out):
    rows = ct.load(index, (0,), (4,))
    tile = ct.load_advanced_indexing(x, (rows, ct.Slice(3, 4)), padding_mode=ZERO)
    ct.store_advanced_indexing(out, (3 - rows, ct.Slice(1, 4)), tile)


def test_advanced_indexing_pads_on_load_and_clips_on_store() -> None:
    x, out = torch.arange(30.0).reshape(5, 6), torch.full((4, 4), -1.0)
    rows = [3, 0, 4, 2]
    run(sparse_rows, x, torch.tensor(rows, dtype=torch.int32), out)
    expected = torch.full((4, 4), -1.0)
    padded = torch.cat([x, torch.zeros(5, 4)], dim=1)
    for r in rows:
        if 0 <= 3 - r < 4:
            expected[3 - r, 1:4] = padded[r, 3:6]
    assert torch.equal(out, expected)


@ct.kernel
def columns_before_the_start(x, index, out):
    rows = ct.load(index, (0,), (2,))
    tile = ct.load_advanced_indexing(x, (rows, ct.Slice(-2, 4)), padding_mode=ZERO)
    ct.store(out, (0, 0), tile)


def test_a_slice_that_starts_before_the_array_is_padded_in_front() -> None:
    x, out = torch.arange(1.0, 13.0).reshape(3, 4), torch.zeros(2, 4)
    run_clean(columns_before_the_start, x, torch.tensor([2, 0], dtype=torch.int32), out)
    assert out.tolist() == [[0.0, 0.0, 9.0, 10.0], [0.0, 0.0, 1.0, 2.0]]


# ---------------------------------------------------------------- atomics


@ct.kernel
def histogram(x, counts):
    ct.atomic_add(counts, ct.load(x, (ct.bid(0),), (8,)), 1)


def test_atomic_additions_to_one_element_all_count() -> None:
    values = [0, 1, 1, 2, 2, 2, 3, 9] * 3  # 9 is outside
    counts = torch.zeros(4, dtype=torch.int32)
    run_clean(histogram, torch.tensor(values, dtype=torch.int32), counts, grid=(3,))
    assert counts.tolist() == [values.count(i) for i in range(4)]


@ct.kernel
def tickets(counter, out):
    zeros = ct.zeros((8,), ct.int32)
    ct.store(out, (ct.bid(0),), ct.atomic_add(counter, zeros, 1))


def test_atomics_return_each_old_value_once() -> None:
    counter, out = torch.tensor([5], dtype=torch.int32), torch.zeros(16, dtype=torch.int32)
    run_clean(tickets, counter, out, grid=(2,))
    assert counter.item() == 21
    assert sorted(out.tolist()) == list(range(5, 21))


@ct.kernel
def atomic_extremes(low, high, bits, values):
    v = ct.load(values, (0,), (8,))
    at = ct.zeros((8,), ct.int32)
    ct.atomic_min(low, at, v)
    ct.atomic_max(high, at, v)
    ct.atomic_or(bits, at, v)
    ct.atomic_xor(bits, at + 1, v)
    ct.atomic_and(bits, at + 2, v)


@pytest.mark.parametrize("dtype", [torch.int32, torch.uint32, torch.int64, torch.uint64], ids=str)
def test_atomic_extremes_know_signedness(dtype: torch.dtype) -> None:
    info = torch.iinfo(dtype)
    values = [info.max, info.min, 5, 12, info.max // 2 + 1, 7, 7, 3]
    low, high = torch.tensor([6], dtype=dtype), torch.tensor([6], dtype=dtype)
    bits = torch.tensor([0, 1, info.max], dtype=dtype)
    run_clean(atomic_extremes, low, high, bits, torch.tensor(values, dtype=dtype))
    assert (low.item(), high.item()) == (info.min, info.max)
    either, odd, all_of = 0, 1, info.max
    for v in values:
        either, odd, all_of = either | v, odd ^ v, all_of & v
    assert bits.tolist() == [either, odd, all_of]


@ct.kernel
def claim(owner, out):
    me = ct.bid(0) + 1
    old = ct.atomic_cas(owner, ct.zeros((1,), ct.int32), 0, me)
    ct.store(out, (ct.bid(0),), old)


def test_only_one_block_wins_a_compare_and_swap() -> None:
    owner, out = torch.zeros(1, dtype=torch.int32), torch.full((4,), -1, dtype=torch.int32)
    run_clean(claim, owner, out, grid=(4,))
    winner = owner.item()
    assert winner in (1, 2, 3, 4)
    assert sorted(out.tolist()) == sorted([0] + [winner] * 3)


@ct.kernel
def reduce_across_blocks(x, total):
    part = ct.sum(ct.load(x, (ct.bid(0),), (8,), padding_mode=ZERO))
    ct.atomic_add(total, 0, part)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_atomic_float_sums(dtype: torch.dtype) -> None:
    total = torch.zeros(1, dtype=dtype)
    run_clean(reduce_across_blocks, torch.arange(30).to(dtype), total, grid=(4,))
    assert total.item() == sum(range(30))


@ct.kernel
def atomic_tiles(out):
    view = out.tiled_view((4,))
    view.atomic_store_add(ct.bid(0) % 2, ct.full((4,), 2.0, ct.float32))


def test_atomic_tile_stores_add_up_across_blocks_and_clip() -> None:
    out = torch.zeros(6)
    run_clean(atomic_tiles, out, grid=(5,))
    assert_same(out, [6.0] * 4 + [4.0] * 2)


# ---------------------------------------------------------------- between blocks


@ct.kernel
def overlapping_stores(out):
    ct.store(out, (ct.bid(0) // 2,), ct.full((4,), ct.bid(0), ct.int32))  # conflict


def test_two_blocks_that_write_one_element_are_reported() -> None:
    report = run(overlapping_stores, torch.zeros(8, dtype=torch.int32), grid=(4,))
    diagnostic = only(report, "write-conflict")
    assert_points_at(diagnostic, overlapping_stores, "conflict")
    assert diagnostic.severity == "error"


@ct.kernel
def neighbour(x, out):
    i = ct.bid(0)
    left = ct.load(x, (ct.maximum(i - 1, 0),), (4,))
    ct.store(x, (i,), left + 1.0)
    ct.store(out, (i,), left)


def test_reading_what_another_block_writes_is_reported() -> None:
    report = run(neighbour, torch.zeros(16), torch.zeros(16), grid=(4,))
    found = [d for d in report.diagnostics if d.kind == "read-write-hazard"]
    assert found
    assert all(d.severity == "error" for d in found)


@ct.kernel
def read_later_block(x, out):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(x, (i + 1,), (4,), padding_mode=ZERO))
    ct.store(x, (i,), ct.full((4,), 1.0, ct.float32))


def test_a_hazard_is_seen_whichever_block_comes_first() -> None:
    report = run(read_later_block, torch.zeros(16), torch.zeros(12), grid=(3,))
    assert "read-write-hazard" in {d.kind for d in report.diagnostics}


@ct.kernel
def forgets_the_tail(out, N: Int):
    ct.store(out, (ct.bid(0),), ct.ones((N,), out.dtype))


def test_output_elements_that_nobody_writes_are_reported() -> None:
    out = torch.zeros(10)
    report = run(forgets_the_tail, out, 4, grid=(2,))
    assert only(report, "never-written").severity in ("warning", "info", "error")
    run_clean(forgets_the_tail, out, 4, grid=(3,))


@ct.kernel
def never_stores(x, out, flag):
    if flag > 0:
        ct.store(out, (0,), ct.load(x, (0,), (4,)))


def test_an_output_that_no_path_writes_is_reported() -> None:
    report = run(never_stores, torch.ones(4), torch.zeros(4), 0)
    only(report, "never-written")
    run_clean(never_stores, torch.ones(4), torch.zeros(4), 1)


@ct.kernel
def lock_in_order(turn, log):
    me = ct.bid(0)
    while ct.atomic_cas(turn, 0, me, me) != me:
        pass
    ct.scatter(log, me, me * 10)
    ct.atomic_xchg(turn, 0, me + 1)


def test_waiting_for_an_earlier_block_works() -> None:
    turn, log = torch.zeros(1, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    run_clean(lock_in_order, turn, log, grid=(4,))
    assert log.tolist() == [0, 10, 20, 30]


@ct.kernel
def pass_a_message(data, flag, out, RELAXED: ct.Constant[bool]):
    order = ct.MemoryOrder.RELAXED if RELAXED else ct.MemoryOrder.ACQ_REL
    if ct.bid(0) == 0:
        ct.store(data, (0,), ct.full((4,), 7.0, ct.float32))
        ct.atomic_xchg(flag, 0, 1, memory_order=order)
    else:
        while ct.atomic_add(flag, 0, 0, memory_order=order) == 0:
            pass
        ct.store(out, (0,), ct.load(data, (0,), (4,)))  # the message


def test_a_release_and_an_acquire_order_two_blocks() -> None:
    data, flag, out = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    run_clean(pass_a_message, data, flag, out, False, grid=(2,))
    assert out.tolist() == [7.0] * 4


def test_a_relaxed_flag_orders_nothing() -> None:
    data, flag, out = torch.zeros(4), torch.zeros(1, dtype=torch.int32), torch.zeros(4)
    report = run(pass_a_message, data, flag, out, True, grid=(2,))
    assert_points_at(only(report, "read-write-hazard"), pass_a_message, "the message")


@ct.kernel
def hand_on(data, flags, out, LAST_WAITS: ct.Constant[bool]):
    i = ct.bid(0)
    zero = ct.zeros((1,), ct.int32)
    if i == 0:
        ct.store(data, (0,), ct.full((4,), 7.0, ct.float32))
        ct.atomic_xchg(flags, zero, 1)
    elif i == 1:
        while ct.atomic_add(flags, 0, 0) == 0:
            pass
        ct.atomic_xchg(flags, zero + 1, 1)
    else:
        if LAST_WAITS:
            while ct.atomic_add(flags, 1, 0) == 0:
                pass
        ct.store(out, (0,), ct.load(data, (0,), (4,)))  # the last one reads


def test_order_is_handed_on_from_block_to_block() -> None:
    data, flags, out = torch.zeros(4), torch.zeros(2, dtype=torch.int32), torch.zeros(4)
    run_clean(hand_on, data, flags, out, True, grid=(3,))
    assert out.tolist() == [7.0] * 4


def test_a_block_that_does_not_wait_is_ordered_after_nothing() -> None:
    data, flags, out = torch.zeros(4), torch.zeros(2, dtype=torch.int32), torch.zeros(4)
    report = run(hand_on, data, flags, out, False, grid=(3,))
    assert_points_at(only(report, "read-write-hazard"), hand_on, "the last one reads")


@ct.kernel
def wait_for_a_later_block(flag):
    if ct.bid(0) == 0:
        while ct.atomic_add(flag, 0, 0) == 0:  # waits
            pass
    ct.atomic_xchg(flag, 0, 1)


def test_waiting_for_a_later_block_works() -> None:
    flag = torch.zeros(1, dtype=torch.int32)
    run_clean(wait_for_a_later_block, flag, grid=(2,))
    assert flag.item() == 1


@ct.kernel
def never_ends(out):
    i = 0
    while i >= 0:  # endless
        i = i * 2
    ct.store(out, (0,), ct.full((1,), i, ct.int32))


def test_an_infinite_loop_ends_with_an_error_that_says_where() -> None:
    error = refusal(never_ends, torch.zeros(1, dtype=torch.int32))
    assert f"test_adversarial.py:{line_of(never_ends, 'endless')}:" in str(error)


@ct.kernel
def hardly_ends(out):
    i = 1
    while i != 0:  # odd for ever
        i = i + 2
    ct.store(out, (0,), ct.full((1,), i, ct.int32))


def test_a_loop_that_changes_something_for_ever_meets_the_limit() -> None:
    error = refusal(hardly_ends, torch.zeros(1, dtype=torch.int32), max_steps=1000)
    assert f"test_adversarial.py:{line_of(hardly_ends, 'odd for ever')}:" in str(error)
    assert "max_steps" in str(error)


@ct.kernel
def flips_the_sign_of_zero(out):
    x = ct.full((1,), 0.0, ct.float32)
    while (1.0 / x).item() > 0:
        x = -x
    ct.store(out, (0,), x)


def test_a_loop_that_changes_only_the_sign_of_zero_makes_progress() -> None:
    out = torch.ones(1)
    run_clean(flips_the_sign_of_zero, out)
    assert_same(out, [-0.0])


# ---------------------------------------------------------------- control flow


@ct.kernel
def branches(x, out):
    i = ct.bid(0)
    tile = ct.load(x, (i,), (4,))
    if ct.sum(tile) > 10:
        scale = 2
        tile = tile - 1
    elif i == 0:
        scale = 3
    else:
        scale = -1 if ct.max(tile) < 0 else 1
    ct.store(out, (i,), tile * scale)


def test_branches_on_tile_values_merge() -> None:
    x = torch.tensor([[1, 1, 1, 1], [5, 5, 5, 5], [-1, -2, -3, -4], [0, 0, 0, 1]])
    out = torch.zeros(16, dtype=torch.int64)
    run_clean(branches, x.flatten(), out, grid=(4,))
    expected = []
    for i, row in enumerate(x.tolist()):
        if sum(row) > 10:
            expected += [(v - 1) * 2 for v in row]
        else:
            scale = 3 if i == 0 else (-1 if max(row) < 0 else 1)
            expected += [v * scale for v in row]
    assert out.tolist() == expected


@ct.kernel
def loops(out, start, stop, step):
    total = 0
    count = 0
    last = -99
    for i in range(start, stop, step):
        if i % 5 == 3:
            continue
        if i > 40:
            break
        total = total + i
        count = count + 1
        last = i
    ct.scatter(out, 0, total)
    ct.scatter(out, 1, count)
    ct.scatter(out, 2, last)


@pytest.mark.parametrize(
    ("start", "stop", "step"), [(0, 10, 1), (0, 0, 1), (5, 3, 1), (-7, 100, 3), (39, 60, 1)]
)
def test_for_with_break_and_continue(start: int, stop: int, step: int) -> None:
    out = torch.zeros(3, dtype=torch.int32)
    run_clean(loops, out, start, stop, step)
    total, count, last = 0, 0, -99
    for i in range(start, stop, step):
        if i % 5 == 3:
            continue
        if i > 40:
            break
        total, count, last = total + i, count + 1, i
    assert out.tolist() == [total, count, last]


@ct.kernel
def collatz(out, n):
    steps = 0
    while True:
        if n == 1:
            break
        steps = steps + 1
        if n % 2 == 0:
            n = n // 2
            continue
        n = 3 * n + 1
    ct.scatter(out, 0, steps)


def test_while_with_break_and_continue() -> None:
    out = torch.zeros(1, dtype=torch.int32)
    run_clean(collatz, out, 27)
    n, steps = 27, 0
    while n != 1:
        n, steps = (n // 2 if n % 2 == 0 else 3 * n + 1), steps + 1
    assert out.item() == steps == 111


@ct.kernel
def nested_loops(x, out, rows):
    best = ct.full((4,), -1000, ct.int32)
    for i in range(rows):
        tile = ct.load(x, (i, 0), (1, 4)).reshape((4,))
        for j in range(i):
            if j == 2:
                break
            tile = tile + j * 10
        best = ct.maximum(best, tile)
    ct.store(out, (0,), best)


def test_a_break_leaves_only_the_inner_loop() -> None:
    x = torch.arange(20, dtype=torch.int32).reshape(5, 4)
    out = torch.zeros(4, dtype=torch.int32)
    run_clean(nested_loops, x, out, 5)
    rows = [row + sum(j * 10 for j in range(min(i, 2))) for i, row in enumerate(x.numpy())]
    assert out.tolist() == np.max(rows, axis=0).tolist()
    run_clean(nested_loops, x, out, 0)
    assert out.tolist() == [-1000] * 4


@ct.kernel
def early_return(x, out):
    i = ct.bid(0)
    if i % 2 == 1:
        return
    tile = ct.load(x, (i,), (2,))
    if ct.min(tile) < 0:
        ct.store(out, (i,), -tile)
        return
    ct.store(out, (i,), tile)


def test_early_returns_end_only_their_block() -> None:
    x = torch.tensor([1.0, 2.0, 3.0, 4.0, -5.0, 6.0, 7.0, 8.0, 9.0, 10.0])
    out = torch.zeros(10)
    run(early_return, x, out, grid=(5,))
    assert_same(out, [1.0, 2.0, 0.0, 0.0, 5.0, -6.0, 0.0, 0.0, 9.0, 10.0])


@ct.kernel
def return_from_a_nested_loop(x, out, wanted):
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            if ct.gather(x, (i, j)) == wanted:
                ct.scatter(out, ct.bid(0), i * 10 + j)
                return
    ct.scatter(out, ct.bid(0), -1)


def test_a_return_leaves_every_loop() -> None:
    x = torch.tensor([[5, 6, 7], [8, 6, 9]])
    for wanted, expected in ((6, 1), (9, 12), (4, -1)):
        out = torch.zeros(2, dtype=torch.int64)
        run_clean(return_from_a_nested_loop, x, out, wanted, grid=(2,))
        assert out.tolist() == [expected] * 2


@ct.kernel
def branches_on_nan(x, out):
    value = ct.load(x, (ct.bid(0),), (1,)).item()
    if value > 0:
        ct.scatter(out, ct.bid(0), 1)
    elif not (value <= 0):
        ct.scatter(out, ct.bid(0), 2)
    else:
        ct.scatter(out, ct.bid(0), 3)


def test_every_comparison_with_nan_is_false() -> None:
    out = torch.zeros(4, dtype=torch.int32)
    run_clean(branches_on_nan, torch.tensor([1.0, math.nan, -1.0, -0.0]), out, grid=(4,))
    assert out.tolist() == [1, 2, 3, 3]


def _helper(tile: Any, scale: Any = None, *rest: Any, shift: int = 1) -> Any:
    if scale is None:
        return tile + shift
    for extra in ct.static_iter(rest):
        scale = scale * extra
    return tile * scale + shift


@ct.kernel
def calls_helpers(x, out):
    tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), _helper(tile))
    ct.store(out, (1,), _helper(tile, 2, 3, shift=0))
    ct.store(out, (2,), _helper(_helper(tile, shift=5), None))


def test_helpers_with_optional_and_variadic_parameters() -> None:
    x, out = torch.arange(4), torch.zeros(12, dtype=torch.int64)
    run_clean(calls_helpers, x, out)
    assert torch.equal(out, torch.cat([x + 1, x * 6, x + 6]))


@dataclasses.dataclass(frozen=True)
class Pair:
    first: Any
    second: Any

    def swapped(self) -> Pair:
        return Pair(self.second, self.first)


@ct.kernel
def uses_a_dataclass(x, out):
    tile = ct.load(x, (0,), (4,))
    pair = Pair(tile, tile * 2)
    for _ in range(3):
        pair = pair.swapped()
    ct.store(out, (0,), pair.first - pair.second)


def test_dataclasses_can_be_carried_by_a_loop() -> None:
    x, out = torch.arange(4.0), torch.zeros(4)
    run_clean(uses_a_dataclass, x, out)
    assert torch.equal(out, x)


@ct.kernel
def unrolled(x, out, SIZES: ct.Constant[tuple[int, ...]]):
    tiles = ()
    for i, size in ct.static_iter(enumerate(SIZES)):
        tiles += (ct.load(x, (i,), (size,)),)
    for i in ct.static_iter(range(len(SIZES))):
        ct.store(out, (i,), tiles[len(SIZES) - 1 - i])


def test_tuples_of_tiles_and_static_loops() -> None:
    x, out = torch.arange(12.0), torch.zeros(12)
    run_clean(unrolled, x, out, (4, 4, 4))
    assert torch.equal(out, torch.cat([x[8:], x[4:8], x[:4]]))


# ---------------------------------------------------------------- options


@ct.kernel
def accumulate(x, out):
    i = ct.bid(0)
    ct.store(out, (i,), ct.load(out, (i,), (4,)) + ct.load(x, (i,), (4,)))  # reads out


def test_reading_an_output_before_writing_it_is_reported() -> None:
    x, out = torch.ones(8), torch.zeros(8)
    run_clean(accumulate, x, out, grid=(2,))
    report = run(accumulate, x, out, grid=(2,), uninitialised=(out,))
    assert_points_at(only(report, "uninitialised-read"), accumulate, "reads out")
    assert out.isnan().all()


def test_writing_first_makes_memory_determined() -> None:
    x, out = torch.zeros(8, dtype=torch.int32), torch.zeros(8, dtype=torch.int32)
    run_clean(write_then_read, x, out, grid=(2,), uninitialised=(x, out))
    assert out.tolist() == [3] * 8


@ct.kernel
def last_writer(out):
    ct.store(out, (0,), ct.full((1,), ct.bid(0), ct.int32))


def test_the_order_of_blocks_can_be_chosen() -> None:
    seen = set()
    for order in ("forward", "reverse", *range(8)):
        out = torch.zeros(1, dtype=torch.int32)
        run(last_writer, out, grid=(5,), order=order)
        seen.add(out.item())
        assert order != "forward" or out.item() == 4
        assert order != "reverse" or out.item() == 0
    assert len(seen) > 2
    assert "order" in str(refusal(last_writer, out, order="sideways"))


def test_without_tracking_only_what_a_launch_costs_nothing_is_found() -> None:
    out = torch.zeros(8, dtype=torch.int32)
    run_clean(overlapping_stores, out, grid=(4,), track=False)
    assert out.tolist() == [1] * 4 + [3] * 4


# ---------------------------------------------------------------- arguments


@ct.kernel
def takes_a_tuple(pair, out):
    arrays, (scale, shift) = pair
    tile = ct.load(arrays[0], (0,), (4,)) + ct.load(arrays[1], (0,), (4,))
    ct.store(out, (0,), tile * scale + shift)


def test_nested_tuples_of_arrays_and_scalars() -> None:
    a, b, out = torch.arange(4.0), torch.ones(4), torch.zeros(4)
    run_clean(takes_a_tuple, ((a, b), (3.0, -1.0)), out)
    assert torch.equal(out, (a + b) * 3 - 1)


@ct.kernel
def takes_a_list(arrays, order, out):
    for i in range(len(arrays)):
        which = ct.load(order, (i,), ()).item()
        ct.store(out, (i,), ct.load(arrays[which], (0,), (4,), padding_mode=ZERO))


def test_a_list_of_arrays_is_indexed_at_run_time() -> None:
    arrays = [torch.arange(4.0) + 10 * i for i in range(3)]
    arrays[1] = arrays[1][:3]
    order, out = torch.tensor([2, 0, 1], dtype=torch.int32), torch.zeros(12)
    run_clean(takes_a_list, arrays, order, out)
    assert_same(out, [20.0, 21.0, 22.0, 23.0, 0.0, 1.0, 2.0, 3.0, 10.0, 11.0, 12.0, 0.0])


@ct.kernel
def takes_wide_indices(x: ct.IndexedWithInt64, out: ct.IndexedWithInt64, offset: ct.ScalarInt64):
    ct.store(out, (0,), ct.gather(x, ct.arange(4, dtype=ct.int64) + offset))
    ct.scatter(out, 4, ct.astype(x.shape[0], ct.float32))


def test_arrays_indexed_with_64_bits() -> None:
    x, out = torch.arange(8.0), torch.full((5,), -1.0)
    run(takes_wide_indices, x, out, 2)
    assert_same(out, [2.0, 3.0, 4.0, 5.0, 8.0])
    run(takes_wide_indices, x, out, 2**40)
    assert_same(out, [0.0, 0.0, 0.0, 0.0, 8.0])


StaticRows = Annotated[ct.Array, ct.ArrayAnnotation(static_shape_dims=(0,))]


@ct.kernel
def static_shape(x: StaticRows, out):
    total = ct.zeros((4,), ct.float32)
    for i in ct.static_iter(range(x.shape[0])):
        total += ct.load(x, (i, 0), (1, 4)).reshape((4,))
    ct.store(out, (0,), total)


@pytest.mark.parametrize("rows", [1, 3, 5])
def test_a_static_shape_unrolls_a_loop(rows: int) -> None:
    x, out = torch.arange(4.0 * rows).reshape(rows, 4), torch.zeros(4)
    run_clean(static_shape, x, out)
    assert torch.equal(out, x.sum(0))


@ct.kernel
def scalars(out, i, f, b):
    ct.scatter(out, 0, i)
    ct.scatter(out, 1, f)
    ct.scatter(out, 2, 1.0 if b else 0.0)


def test_scalar_arguments_keep_their_kind() -> None:
    out = torch.zeros(3)
    run_clean(scalars, out, -3, 0.1, True)
    assert_same(out, [-3.0, np.float32(0.1).item(), 1.0])


@ct.kernel
def claims_divisibility(x, out, n):
    n = ct.assume_divisible_by(n, 8)  # the claim
    ct.store(out, (0,), ct.gather(x, ct.arange(4, dtype=ct.int32) + n))


def test_a_violated_assumption_is_reported() -> None:
    x, out = torch.arange(16.0), torch.zeros(4)
    run_clean(claims_divisibility, x, out, 8)
    report = run(claims_divisibility, x, out, 9)
    diagnostic = only(report, "assumption")
    assert_points_at(diagnostic, claims_divisibility, "the claim")
    assert diagnostic.severity == "error"


@ct.kernel
def divides(a, b, out):
    ct.store(out, (0,), ct.load(a, (0,), (4,)) // ct.load(b, (0,), (4,)))  # division


def test_an_integer_division_by_zero_is_reported() -> None:
    a, b = torch.tensor([7, -7, 7, 8]), torch.tensor([2, 2, 0, 4])
    out = torch.zeros(4, dtype=torch.int64)
    report = run(divides, a, b, out)
    assert_points_at(only(report, "division-by-zero"), divides, "division")
    assert [out[i].item() for i in (0, 1, 3)] == [3, -4, 2]


@ct.kernel
def shifts_too_far(a, out, n):
    ct.store(out, (0,), ct.load(a, (0,), (4,)) << n)  # shift


def test_a_shift_beyond_the_width_is_reported() -> None:
    a, out = torch.arange(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    run_clean(shifts_too_far, a, out, 31)
    for count in (32, -1):
        report = run(shifts_too_far, a, out, count)
        assert_points_at(only(report, "shift-range"), shifts_too_far, "shift")


@ct.kernel
def asserts(x):
    ct.assert_(ct.load(x, (ct.bid(0),), (4,)) > 0, "must be positive")  # noqa: PT009  # assertion


def test_a_failed_assertion_is_an_error_with_its_message() -> None:
    run_clean(asserts, torch.ones(8), grid=(2,))
    error = refusal(asserts, torch.tensor([1.0] * 7 + [0.0]), grid=(2,))
    assert "must be positive" in str(error)
    assert "test_adversarial.py" in str(error)


def test_diagnostics_of_one_line_are_counted_not_repeated() -> None:
    report = run(overlapping_stores, torch.zeros(32, dtype=torch.int32), grid=(16,))
    diagnostic = only(report, "write-conflict")
    assert diagnostic.count > 1


# ---------------------------------------------------------------- refusals


@ct.kernel
def branch_on_a_vector(x, out):
    if ct.load(x, (0,), (4,)) > 0:
        ct.store(out, (0,), ct.ones((4,), ct.float32))


@ct.kernel
def dtype_changes_in_a_loop(x, out):
    acc = ct.zeros((4,), ct.int32)
    for i in range(x.shape[0]):
        acc = acc + ct.load(x, (i, 0), (1, 4)).reshape((4,))
    ct.store(out, (0,), acc)


@ct.kernel
def maybe_undefined(x, out):
    if ct.bid(0) == 0:
        tile = ct.load(x, (0,), (4,))
    ct.store(out, (0,), tile)


@ct.kernel
def not_a_power_of_two(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (3,)))


@ct.kernel
def shapes_do_not_match(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,)) + ct.load(x, (0,), (8,)))


@ct.kernel
def rank_does_not_match(x, out):
    ct.store(out, (0, 0), ct.load(x, (0,), (4,)))


@ct.kernel
def returns_a_value(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,)))
    return 1


@ct.kernel
def runtime_tile_shape(x, out, n):
    ct.store(out, (0,), ct.load(x, (0,), (n,)))


@ct.kernel
def float_index(x, out):
    ct.store(out, (0,), ct.gather(x, ct.load(x, (0,), (4,))))


@ct.kernel
def fails_statically(x, out):
    ct.static_assert(x.ndim == 2, "needs a matrix")
    ct.store(out, (0,), ct.load(x, (0,), (4,)))


@ct.kernel
def calls_itself(x, out):
    ct.store(out, (0,), _endless(ct.load(x, (0,), (4,))))


def _endless(tile: Any) -> Any:
    return _endless(tile + 1)


@ct.kernel
def bitwise_on_floats(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,)) & 1)


@ct.kernel
def subscripts_a_tile(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,))[1])


@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (branch_on_a_vector, "scalar"),
        (dtype_changes_in_a_loop, "acc"),
        (maybe_undefined, "tile"),
        (not_a_power_of_two, "power of two"),
        (shapes_do_not_match, "not broadcastable"),
        (rank_does_not_match, "rank"),
        (returns_a_value, "cannot return"),
        (runtime_tile_shape, "constant"),
        (float_index, "integer"),
        (fails_statically, "needs a matrix"),
        (calls_itself, "recursion"),
        (bitwise_on_floats, "Bitwise"),
        (subscripts_a_tile, "extract()"),
    ],
    ids=lambda v: v._annotated_function.pyfunc.__name__ if isinstance(v, ct.kernel) else "",
)
def test_cutile_refuses_and_the_refusal_is_passed_on(kernel: Any, words: str) -> None:
    x = torch.ones(4, 4) if kernel is dtype_changes_in_a_loop else torch.ones(8)
    error = refusal_by_cutile(kernel, x, torch.zeros(8), *([4] * (kernel is runtime_tile_shape)))
    assert words in str(error)
    file, line, _ = str(error).split(":", 2)
    assert file.endswith("test_adversarial.py")
    lines, first = inspect.getsourcelines(kernel._annotated_function.pyfunc)
    assert first <= int(line) < first + len(lines) or kernel is calls_itself


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ((torch.ones(8),), "argument"),
        ((torch.ones(8), torch.zeros(8), 4, 5), "argument"),
        ((torch.ones(8), torch.zeros(8), "four"), "str"),
        ((torch.ones(8), torch.zeros(8), None), "None"),
        ((np.ones(8), torch.zeros(8), 4), "ndarray"),
        ((torch.ones(8, dtype=torch.complex64), torch.zeros(8), 4), "complex64"),
        ((torch.ones(8), torch.zeros(8), 2**31), "2147483648"),
        ((torch.ones(8), torch.zeros(8), Pair(1, 2)), "Pair"),
        ((torch.ones(8, device="meta"), torch.zeros(8), 4), "meta"),
        ((torch.ones(8).to_sparse(), torch.zeros(8), 4), "sparse"),
    ],
    ids=["few", "many", "str", "None", "numpy", "complex", "big", "dataclass", "meta", "sparse"],
)
def test_arguments_that_no_kernel_takes(args: tuple[Any, ...], words: str) -> None:
    error = refusal(masked_sum, *args)
    assert words in str(error)


@pytest.mark.parametrize(
    "grid", [(), (0,), (2, -1), (1, 1, 1, 1), (1.5,), ("4",), (2**31,), 3, None], ids=str
)
def test_grids_that_cannot_be_launched(grid: Any) -> None:
    error = refusal(forgets_the_tail, torch.zeros(8), 4, grid=grid)
    assert "grid" in str(error)


def test_a_grid_may_hold_integers_of_numpy() -> None:
    out = torch.zeros(8)
    run_clean(forgets_the_tail, out, 4, grid=(np.int64(2),))
    assert out.tolist() == [1.0] * 8


def test_arguments_must_be_a_sequence() -> None:
    with pytest.raises(InterpreterError, match="tuple"):
        launch((1,), forgets_the_tail, None)  # type: ignore[arg-type]


def test_a_kernel_without_source_is_refused() -> None:
    namespace: dict[str, Any] = {"ct": ct}
    exec("@ct.kernel\ndef typed_in(x):\n    ct.store(x, (0,), ct.ones((4,), x.dtype))\n", namespace)
    assert "source" in str(refusal(namespace["typed_in"], torch.zeros(4)))


def test_a_plain_function_is_no_kernel() -> None:
    error = refusal(_helper, torch.zeros(8))
    assert "ct.kernel" in str(error)


@ct.kernel
def stores_another_dtype(x, out):
    ct.store(out, (0,), ct.load(x, (0,), (4,)))


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.float32, torch.int32),
        (torch.float32, torch.bfloat16),
        (torch.int64, torch.int32),
        (torch.uint8, torch.int32),
        (torch.float64, torch.float32),
    ],
    ids=str,
)
def test_a_store_that_would_narrow_is_refused(source: torch.dtype, target: torch.dtype) -> None:
    out = torch.zeros(4, dtype=target)
    error = refusal_by_cutile(stores_another_dtype, torch.ones(4).to(source), out)
    assert "implicitly cast" in str(error)
    assert out.count_nonzero() == 0


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (torch.int32, torch.bfloat16),
        (torch.bfloat16, torch.float32),
        (torch.bool, torch.int8),
        (torch.uint8, torch.float16),
        (torch.int8, torch.int64),
    ],
    ids=str,
)
def test_a_store_that_widens_converts(source: torch.dtype, target: torch.dtype) -> None:
    x, out = torch.tensor([0, 1, 100, 3]).to(source), torch.zeros(4, dtype=target)
    run_clean(stores_another_dtype, x, out)
    assert torch.equal(out, x.to(target))
