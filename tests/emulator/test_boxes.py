"""Boxes of bulk copies: where their bytes lie in both memories, and which granules they touch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.clocks import BULK
from mla_var3.emulator.regions import Region
from mla_var3.emulator.units.boxes import PATTERN, Boxes
from mla_var3.emulator.units.tensormap import TensorMap, tiled
from tests.emulator.machines import machine

BASE = 1 << 30
ELEMENTS = {"u8": 1, "f16": 2, "f32": 4, "f64": 8}


def a_map(kind: str, box: tuple[int, ...], swizzle: int = 0, base: int = BASE) -> TensorMap:
    size = ELEMENTS[kind]
    dims = (64, 16, 4)[: len(box)]
    strides = (size, 1024, 1024 * 16)[: len(box)]
    return tiled(base, dims, strides, box, kind, swizzle)


def flipped(address: int, swizzle: int) -> int:
    """A shared address after the swizzle: so many bits from 4 on, by those three above."""
    for bit in range(swizzle):
        address ^= (address >> (7 + bit) & 1) << (4 + bit)
    return address


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(ELEMENTS)), st.integers(1, 4), st.integers(1, 9), st.integers(0, 3),
    st.integers(0, 20), st.integers(0, 1),
)  # fmt: skip
def test_pieces_and_granules_of_a_box_in_shared_memory(
    kind: str, columns: int, rows: int, swizzle: int, start: int, cta: int
) -> None:
    """From every multiple of 128, also where the pattern of a swizzle does not begin."""
    t = a_map(kind, (16 * columns // ELEMENTS[kind], rows), swizzle)
    m = machine((64, 1, 1), (2, 1, 1), dynamic=8192)
    at = 1024 + 128 * start + cta * m.shared.size
    chunks, granules = Boxes(m).place(t, at)
    wanted = [flipped(at + o, swizzle) // 16 for o in range(0, t.count, 16)]
    assert chunks.tolist() == wanted
    size = m.shared.granule
    touched = sorted({(16 * c + i) // size for c in wanted for i in range(0, 16, size)})
    if isinstance(granules, slice):
        assert at % PATTERN[swizzle] == 0 or not swizzle
        assert list(range(granules.start, granules.stop)) == list(
            range(at // size, at // size + t.count // size)
        )
    else:
        assert granules.tolist() == touched


def test_a_box_is_worked_out_once_for_each_place() -> None:
    boxes = Boxes(machine(dynamic=8192))
    t = a_map("f16", (16, 4), 1)
    first = boxes.place(t, 2048)
    assert boxes.place(t, 2048) is first
    for other, at in ((t, 4096), (replace(t, swizzle=2), 2048), (a_map("f16", (16, 8), 1), 2048)):
        assert boxes.place(other, at) is not first


@pytest.mark.parametrize("cta", [0, 1])
@pytest.mark.parametrize(
    ("low", "kind", "said"),
    [
        (1024, None, ""),
        (1024 + 64, "misaligned", "at shared 0x440"),
        (1024 + 16, "misaligned", "at shared 0x410"),
        (0, "out-of-bounds", "at shared 0x0, and shared memory spans 0x400 to"),
        (-256, None, ""),
        (-128, "out-of-bounds", "of 256 bytes at shared"),
    ],
)
def test_where_a_box_may_lie(low: int, kind: str | None, said: str, cta: int) -> None:
    """A negative place is counted from the end of shared memory."""
    m = machine((64, 1, 1), (2, 1, 1), dynamic=4096 - 2112 + 64)
    end = m.shared.end // 128 * 128
    at = (low if low >= 0 else end + low) + cta * m.shared.size
    t = a_map("f16", (16, 8))
    assert t.count == 256
    assert Boxes(m).placed(t, at, 0) is (kind is None)
    found = [(d.kind, d.message) for d in m.reporter.diagnostics]
    assert [k for k, _ in found] == ([kind] if kind else [])
    assert all(said in message for _, message in found)


def ready(unwritten: bool = False, off: int = 0) -> tuple[Boxes, Region]:
    size = 1024 * 16 * 4
    content = np.random.default_rng(0).integers(0, 256, size, np.uint8).tobytes()
    region = Region(BASE + off, size, "mine", unwritten, content)
    return Boxes(machine((64, 1, 1), regions=[region])), region


@settings(max_examples=60)
@given(
    st.sampled_from(sorted(ELEMENTS)), st.integers(1, 3), st.integers(-9, 70), st.integers(-9, 20),
    st.integers(-2, 5), st.sampled_from([0, 16, 48]),
)  # fmt: skip
def test_the_part_of_a_box_that_is_inside_the_tensor(
    kind: str, rank: int, x: int, y: int, z: int, off: int
) -> None:
    boxes, region = ready(off=off)
    t = a_map(kind, (8, 4, 2)[:rank], base=BASE + off)
    at = (x, y, z)[:rank]
    found = boxes.window(t, at, 0)
    assert not boxes.machine.reporter.diagnostics
    assert found is not None
    where, view, clip, byte = found
    assert where is region
    assert clip == t.clipped(at)
    if any(first == last for first, last in clip):
        assert byte == 0
        return
    size = ELEMENTS[kind]
    lowest = [c + f for c, (f, _) in zip(at, clip, strict=True)]
    start = sum(i * s for i, s in zip(lowest, t.strides, strict=True))
    assert byte == start + region.base - region.low
    assert view.shape == tuple(last - first for first, last in clip)[::-1]
    raw = region.data[region.base - region.low :].tobytes()
    for index in np.ndindex(*view.shape):
        place = start + sum(i * s for i, s in zip(index[::-1], t.strides, strict=True))
        assert view[index].tobytes() == raw[place : place + size]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, None),
        ({"dims": (64, 17, 4)}, None),
        ({"dims": (64, 16, 5)}, "box [8, 4, 2] at [0, 0, 3] reaches outside of mine"),
        ({"base": BASE - 1024}, "reaches outside of no allocation"),
        ({"base": BASE + 2048}, "reaches outside of mine"),
        ({"dims": (1 << 31, 16, 4)}, None),
    ],
)  # fmt: skip
def test_a_map_that_goes_beyond_its_allocation(change: dict, said: str | None) -> None:
    boxes, _ = ready()
    t = replace(a_map("f32", (8, 4, 2)), **change)
    at = (0, 12, 2) if "base" in change else (0, 0, 3)
    if change.get("base", BASE) < BASE:
        at = (0, 0, 0)
    found = boxes.window(t, at, 0)
    messages = [d.message for d in boxes.machine.reporter.diagnostics]
    assert (found is None) is (said is not None)
    assert [said in m for m in messages] == ([True] if said else [])


@pytest.mark.parametrize("kind", sorted(ELEMENTS))
@pytest.mark.parametrize("off", [0, 16])
def test_what_a_box_writes_is_known_and_whole_granules_are_touched(kind: str, off: int) -> None:
    """Elements narrower than a granule touch those that lie in the box whole."""
    boxes, region = ready(unwritten=True, off=off)
    m = boxes.machine
    size, granule = ELEMENTS[kind], 1 << m.memory_map.shift
    columns = 12 // size if size < 8 else 3
    t = a_map(kind, (columns, 2), base=BASE + off)
    event = m.sync.event(1024, 1)
    changes = m.memory_map.changes
    for at, writing in (((4, 3), True), ((4, 5), False)):
        window = boxes.window(t, at, 0)
        assert window is not None
        _, view, _, byte = window
        boxes.touched(region, byte, view, event, 0, writing)
        starts = [4 * size + row * 1024 + i for row in (at[1], at[1] + 1) for i in
                  range(0, columns * size, size)]  # fmt: skip
        places = {s + i for s in starts for i in range(size)}
        if writing:
            assert region.known is not None
            known = np.flatnonzero(region.known) - (region.base - region.low)
            assert set(known.tolist()) == places
            assert m.memory_map.changes == changes + 1
            shift = region.base - region.low
            whole = {
                (p + shift) // granule
                for p in places
                if {q - shift for q in range((p + shift) // granule * granule,
                                     (p + shift) // granule * granule + granule)} <= places
            }  # fmt: skip
            assert region.shadow is not None
            assert set(region.shadow.written().tolist()) == whole
            chains = region.shadow.writes.chain[sorted(whole)]  # type: ignore[union-attr]
            assert set(chains.tolist()) == {event.chain}
        else:
            assert m.memory_map.changes == changes + 1
            (said,) = m.reporter.diagnostics
            assert said.kind == "uninitialized-read"
            first = starts[0]
            assert f"of {size} bytes, {first} bytes into mine" in said.message
            assert said.who == m.clocks.name(BULK, 1)
