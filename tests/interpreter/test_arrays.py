"""Array arguments of any strides: which places they have, and what lies in them, by enumeration."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.interpreter.arrays import ArrayArg, Pointer, Region, View, limits
from mla_var3.interpreter.footprint import Scattered, Strided
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.memory import Memory

ROOM = 512
HELD = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def places(offset: int, shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """The place of each index, the last axis fastest."""
    return [
        offset + sum(i * s for i, s in zip(index, strides, strict=True))
        for index in itertools.product(*map(range, shape))
    ]


@st.composite
def layouts(draw: st.DrawFn) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Where an array begins, and its shape and strides, broadcast and interleaved ones too."""
    rank = draw(st.integers(1, 3))
    shape = tuple(draw(st.integers(1, 4)) for _ in range(rank))
    strides = tuple(draw(st.sampled_from([0, 1, 2, 3, 4, 5, 8, 16])) for _ in range(rank))
    return draw(st.integers(0, 9)), shape, strides


def array(
    layout: tuple[int, tuple[int, ...], tuple[int, ...]], itemsize: int = 4, unit: int = 4
) -> tuple[ArrayArg, np.ndarray]:
    """An array in a region of its own, and the bytes of that."""
    start, shape, strides = layout
    room = np.zeros(ROOM, np.uint8)
    region = Region(room.ctypes.data, ROOM, unit)
    span = max(places(0, shape, strides)) + 1
    return ArrayArg("x", region, start, span, shape, strides, itemsize), room


@given(layouts())
def test_what_an_array_has_is_what_its_indices_name(layout) -> None:
    x, _ = array(layout)
    named = places(*layout)
    assert x.overlaps is (len(set(named)) < len(named))
    every = set(range(min(named), max(named) + 1))
    assert x.gappy is (set(named) != every)
    assert sorted(x.distinct().offsets().flatten().tolist()) == sorted(set(named))
    around = torch.arange(0, max(named) + 5)
    assert torch.nonzero(x.has(around, 4)).flatten().tolist() == sorted(set(named))
    assert limits(x, 4) == (min(named), max(named) + 1)


@given(layouts(), st.sampled_from([1, 2, 8]))
def test_an_array_has_what_another_type_sees_of_it(layout, itemsize: int) -> None:
    """Narrower elements lie in the element around them; of wider ones the first decides."""
    x, _ = array(layout)
    named = set(places(*layout))
    low, high = min(named) * 4 // itemsize, (max(named) + 1) * 4 // itemsize
    assert limits(x, itemsize) == (low, high)
    around = torch.arange(0, high + 5)
    wanted = [
        o
        for o in around.tolist()
        if low <= o < high and (not x.gappy or o * itemsize // 4 in named)
    ]
    if itemsize < 4 or not x.gappy:
        assert torch.nonzero(x.has(around, itemsize)).flatten().tolist() == wanted


@given(layouts(), st.data())
def test_a_place_is_said_by_an_index_that_names_it(layout, data: st.DataObject) -> None:
    start, shape, strides = layout
    order = sorted(range(len(shape)), key=lambda d: -strides[d])
    x, _ = array(layout)
    index = [data.draw(st.integers(0, n - 1)) for n in shape]
    index = [0 if s == 0 else i for i, s in zip(index, strides, strict=True)]
    said = x.index_of(start + sum(i * s for i, s in zip(index, strides, strict=True)))
    assert said.startswith("x[")
    told = [int(i) for i in said[2:-1].split(", ")]
    assert len(told) == len(shape)
    dense = all(
        strides[a] >= sum((shape[b] - 1) * strides[b] for b in order[k + 1 :]) + 1
        for k, a in enumerate(order)
        if strides[a] and shape[a] > 1
    )
    if dense and not x.overlaps:
        assert told == index


@given(layouts(), st.data())
def test_a_view_is_inside_where_all_that_it_names_is_there(layout, data: st.DataObject) -> None:
    """Of an array without gaps by its ends; of one with gaps axis by axis, by its own strides."""
    start, shape, strides = layout
    x, _ = array(layout)
    named = places(*layout)
    offset = start + data.draw(st.integers(-3, 12))
    part = tuple(data.draw(st.integers(0, n + 1)) for n in shape)
    of = strides if data.draw(st.booleans()) else tuple(s + 1 for s in strides)
    view = View(Pointer(x, offset, 4), part, of, torch.int32)
    assert (view.array, view.offset, view.shape, view.strides) == (x, offset, part, of)
    mine = places(offset, part, of)
    if not mine:
        assert view.inside
    elif not x.gappy:
        assert view.inside is (min(named) <= min(mine) and max(mine) <= max(named))
    elif view.inside:
        assert of == strides
        assert set(mine) <= set(named)
    elif of == strides and not x.overlaps:
        corners = [
            first
            for first in itertools.product(*map(range, shape))
            if start + sum(i * s for i, s in zip(first, strides, strict=True)) == offset
        ]
        fits = [
            all(f + p <= n for f, p, n in zip(first, part, shape, strict=True)) for first in corners
        ]
        # Axes of one index may stand for any; all others say where the view begins.
        assert not any(fits) or any(n == 1 or p == 1 for n, p in zip(shape, part, strict=True))


@given(st.data())
def test_a_part_of_an_array_with_gaps_is_inside(data: st.DataObject) -> None:
    """Rows that lie apart, from any element on; one row or column more, or one before, is not."""
    rows, columns, gap, start = (data.draw(st.integers(*ends)) for ends in
                                 ((1, 5), (1, 4), (1, 3), (0, 9)))  # fmt: skip
    strides = (columns + gap, 1)
    x, _ = array((start, (rows, columns), strides))
    if rows > 1:
        assert x.gappy
    i, j = data.draw(st.integers(0, rows - 1)), data.draw(st.integers(0, columns - 1))
    m, n = data.draw(st.integers(1, rows - i)), data.draw(st.integers(1, columns - j))
    at = start + i * strides[0] + j

    def inside(offset: int, shape: tuple[int, int], of: tuple[int, int] = strides) -> bool:
        return View(Pointer(x, offset, 4), shape, of, torch.int32).inside

    assert inside(at, (m, n))
    assert inside(at, (0, n))
    if rows > 1:
        assert not inside(at, (rows - i + 1, n))
        assert not inside(at, (m, columns - j + 1))
        assert not inside(start - 1, (1, 1))
        assert not inside(start + columns, (1, 1))
        assert not inside(at, (m, n), (strides[0] + 1, 1))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float16, torch.int32, torch.float64])
@pytest.mark.parametrize("size", [0, 1, 15, 16, 30])
def test_a_region_is_seen_as_elements_of_every_type(dtype: torch.dtype, size: int) -> None:
    room = np.arange(32, dtype=np.uint8)
    region = Region(room.ctypes.data, size, 1)
    seen = region.typed(dtype)
    assert seen.dtype is dtype
    assert seen.numel() == size // dtype.itemsize
    assert region.typed(dtype) is seen
    assert seen.view(torch.uint8).tolist() == list(range(size // dtype.itemsize * dtype.itemsize))
    if seen.numel():
        seen[-1] = 0
        assert room[(seen.numel() - 1) * dtype.itemsize] == 0


@pytest.mark.parametrize("unit", [1, 2, 4])
def test_a_shadow_has_an_entry_per_unit_and_is_empty(unit: int) -> None:
    room = np.zeros(64, np.uint8)
    shadow = Region(room.ctypes.data, 64, unit).shadow(torch.int32)
    assert shadow.tolist() == [0] * (64 // unit)


def test_a_pointer_says_its_array_and_address() -> None:
    x, room = array((3, (4,), (1,)))
    pointer = Pointer(x, 5, 4)
    assert repr(pointer) == "<pointer into x>"
    assert pointer.address() == room.ctypes.data + 20
    view = View(pointer, (2, 3), (3, 1), torch.int32)
    assert repr(view) == "<array x, shape (2, 3), strides (3, 1)>"


@given(layouts(), st.integers(1, 4))
def test_a_footprint_in_smaller_units_is_all_of_each_element(layout, factor: int) -> None:
    named = places(*layout)
    flat = torch.arange(4 * ROOM)
    for at in (Strided(*layout), Scattered(torch.tensor(named))):
        assert at.offsets().flatten().tolist() == named
        assert at.of(flat).flatten().tolist() == named
        smaller = at.scaled(factor)
        wanted = [o * factor + i for o in named for i in range(factor)]
        assert smaller.offsets().flatten().tolist() == wanted
        changed = torch.zeros(4 * ROOM, dtype=torch.int64)
        smaller.put(changed, 7)
        assert torch.nonzero(changed).flatten().tolist() == sorted(set(wanted))
    distinct = torch.arange(1, 13).reshape(3, 4)
    out = torch.zeros(64, dtype=torch.int64)
    Strided(2, (3, 4), (16, 3)).put(out, distinct)
    assert out[torch.tensor(places(2, (3, 4), (16, 3)))].tolist() == list(range(1, 13))


@st.composite
def arguments(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Where each argument begins, its elements, and the bytes of one."""
    size = st.sampled_from([1, 2, 4, 8])
    made = draw(
        st.lists(st.tuples(st.integers(0, 20), st.integers(0, 6), size), min_size=1, max_size=5)
    )
    return [(start * size, n, size) for start, n, size in made]


@settings(max_examples=60)
@given(arguments())
def test_arguments_that_overlap_share_a_region(given_: list[tuple[int, int, int]]) -> None:
    """Through others too; its entries are as small as the smallest element."""
    room = np.zeros(ROOM + 16, np.uint8)
    begin = -room.ctypes.data % 16
    tensors = [
        torch.from_numpy(room[begin + at : begin + at + n * size]).view(HELD[size])
        for at, n, size in given_
    ]
    memory = Memory(DiagnosticLog(), True)
    arrays = memory.add_arrays([(f"x{i}", t) for i, t in enumerate(tensors)])
    groups = {i: {i} for i in range(len(given_))}
    for i, j in itertools.combinations(range(len(given_)), 2):
        (a, m, x), (b, n, y) = given_[i], given_[j]
        if m and n and a < b + n * y and b < a + m * x:
            both = groups[i] | groups[j]
            for k in both:
                groups[k] = both
    for i, one in enumerate(arrays):
        at, n, size = given_[i]
        assert (one.name, one.itemsize, one.shape, one.strides) == (f"x{i}", size, (n,), (1,))
        assert one.span == n
        if not n:
            continue
        for j, other in enumerate(arrays):
            if given_[j][1]:
                assert (one.region is other.region) is (j in groups[i])
        assert one.region.address % 16 == 0
        mine = [given_[k] for k in groups[i]]
        first = room.ctypes.data + begin + min(a for a, _, _ in mine)
        assert first - 16 < one.region.address <= first
        assert one.region.address + one.start * size == room.ctypes.data + begin + at
        assert one.region.bytes.numel() == (
            room.ctypes.data + begin + max(a + m * x for a, m, x in mine) - one.region.address
        )
    assert len(memory.regions) == len({id(r) for r in memory.regions})
    assert {id(r) for r in memory.regions} == {id(a.region) for a in arrays}
