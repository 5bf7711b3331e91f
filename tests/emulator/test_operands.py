"""What tcgen05 reads through descriptors: where it lies, who wrote it, and with what swizzle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.clocks import BULK, TENSOR, Event
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.units.tcgen05.operands import SharedOperands, _swizzle
from tests.emulator.machines import machine
from tests.emulator.tcgen05 import ACCUMULATOR

START = 0x2000
#: Codes of a descriptor's layout, by swizzle.
LAYOUT = {0: 0, 3: 2, 2: 4, 1: 6}


def word(start: int, leading: int, stride: int, swizzle: int) -> int:
    return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | LAYOUT[swizzle] << 61


def ready(ctas: int = 1, **options: Any) -> tuple[Machine, SharedOperands]:
    m = machine((128, 1, 1), (ctas, 1, 1), snippet=ACCUMULATOR, dynamic=0x8000, **options)
    m.shared.bytes[:] = np.arange(len(m.shared.bytes)) % 251
    return m, m.units["tcgen05"].shared


def event(m: Machine, warp: int = 0) -> Event:
    return Event(m.clocks.chain(("tcgen05", TENSOR, warp), TENSOR), 1, warp, TENSOR)


def brought(m: Machine, first: int, count: int, swizzle: int, told: bool = True) -> None:
    """A tensor map writes bytes with a swizzle, and warp 0 knows of it."""
    chain = m.clocks.chain("load", BULK)
    m.shadow.unit_write(
        slice(first >> m.shared.shift, (first + count) >> m.shared.shift),
        Event(chain, 1, 0, BULK),
        3,
    )
    m.shared.swizzles[first // 16 : (first + count) // 16] = swizzle + 1
    if told:
        m.clocks.finish(0, chain, 1)


@pytest.mark.parametrize("cta", [0, 1])
@pytest.mark.parametrize("swizzle", range(4))
def test_codes_lie_where_the_descriptor_says(swizzle: int, cta: int) -> None:
    m, unit = ready(2)
    rows, width = 16, 16 << swizzle
    base = cta * m.shared.size
    brought(m, base + START, 4096, swizzle)
    # Groups of 8 rows apart by the stride; without a swizzle pieces along k by the leading offset.
    leading, stride = (2048, 128) if not swizzle else (16, 8 * width)
    found = unit.codes(word(START, leading, stride, swizzle), rows, 32, 1, False, cta, event(m), 5)
    want = np.zeros((rows, 32), np.uint8)
    for r in range(rows):
        for k in range(32):
            at = r // 8 * stride + r % 8 * width
            at += k // 16 * leading + k % 16 if not swizzle else k
            at += START
            at ^= at >> 3 & {0: 0, 1: 0x10, 2: 0x30, 3: 0x70}[swizzle]
            want[r, k] = (base + at) % 251
    assert (found == want).all()
    assert m.reporter.diagnostics == []
    # The read is noted: a write that does not wait for it is a race.
    touched = m.shared.last.every().read[event(m).chain]
    granules = np.flatnonzero(touched) - (base >> m.shared.shift)
    assert granules.min() == START >> m.shared.shift
    assert len(granules) == rows * 32 // m.shared.granule


def test_a_tile_that_is_read_again_is_found_once() -> None:
    m, unit = ready(2)
    brought(m, START, 4096, 0)
    brought(m, m.shared.size + START, 4096, 0)
    first = unit.codes(word(START, 2048, 128, 0), 8, 16, 1, False, 0, event(m), 5)
    second = unit.codes(word(START, 2048, 128, 0), 8, 16, 1, False, 1, event(m), 5)
    assert len(unit.tiles) == 1
    assert ((second.astype(int) - first) % 251 == m.shared.size % 251).all()


@pytest.mark.parametrize("map_", range(4))
@pytest.mark.parametrize("mode", range(4))
def test_the_swizzle_of_the_map_is_that_of_the_descriptor(map_: int, mode: int) -> None:
    m, unit = ready()
    brought(m, START, 4096, map_)
    unit.codes(word(START, 16, 1024, mode), 8, 16, 1, False, 0, event(m), 5)
    found = m.reporter.diagnostics
    if map_ == mode:
        assert found == []
        return
    (one,) = found
    said = {
        0: "no swizzle",
        1: "the 32-byte swizzle",
        2: "the 64-byte swizzle",
        3: "the 128-byte swizzle",
    }
    assert one.kind == "descriptor"
    assert one.message == (
        f"a matrix descriptor with {said[mode]} reads shared {START:#x}, which a tensor map with "
        f"{said[map_]} has written"
    )
    assert (one.at.pc, one.other.pc) == (5, 3)
    assert (one.who, one.other_who) == ("tcgen05 of warp 0", "bulk copy of warp 0")
    assert one.missing == "the same swizzle in the tensor map and in the descriptor"


def test_the_first_piece_of_another_swizzle_is_named_in_its_cta() -> None:
    m, unit = ready(2)
    base = m.shared.size
    brought(m, base + START, 4096, 1)
    m.shared.swizzles[(base + START) // 16 : (base + START) // 16 + 2] = 3
    m.shared.swizzles[(base + START) // 16 + 2] = 0  # Nobody knows of that.
    unit.codes(word(START, 16, 128, 2), 16, 16, 1, False, 1, event(m), 5)
    (one,) = m.reporter.diagnostics
    # Piece 0 has the right swizzle, piece 1 lies 16 bytes further.
    assert f"reads shared {START + 64:#x}, which" in one.message
    assert "with the 32-byte swizzle has written" in one.message


def test_threads_may_write_what_is_read_with_any_swizzle() -> None:
    m, unit = ready()
    brought(m, START, 4096, 1)
    granules = slice(START >> m.shared.shift, (START + 4096) >> m.shared.shift)
    last = m.shared.last.every()
    last.writer[granules], last.written[granules] = 0, 0
    unit.codes(word(START, 16, 1024, 0), 8, 16, 1, False, 0, event(m), 5)
    assert "descriptor" not in [d.kind for d in m.reporter.diagnostics]


def test_bytes_that_are_on_their_way_are_not_there() -> None:
    m, unit = ready()
    brought(m, START, 4096, 0, told=False)
    unit.codes(word(START, 2048, 128, 0), 8, 16, 1, False, 0, event(m), 5)
    (one,) = m.reporter.diagnostics
    assert (one.kind, one.at.pc, one.other.pc) == ("race", 5, 3)
    assert (
        f"shared {START:#x} is written by bulk copy of warp 0 and read by tcgen05 of warp 0"
        in one.message
    )


@pytest.mark.parametrize(
    ("start", "out"), [(0x3F0, True), (0x400, False), ("end", False), ("past", True)]
)
def test_a_tile_lies_in_what_the_launch_asked_for(start: Any, out: bool) -> None:
    m, unit = ready()
    end = m.shared.end & -16
    at = {"end": end - 128, "past": end - 112}.get(start, start)
    brought(m, 0, m.shared.size & -16, 0)
    unit.codes(word(at, 2048, 128, 0), 8, 16, 1, False, 0, event(m), 5)
    found = [d for d in m.reporter.diagnostics if d.kind == "out-of-bounds"]
    assert bool(found) is out
    if out:
        assert found[0].message == (
            f"a matrix descriptor reaches shared {at:#x} to {at + 128:#x}, and shared memory spans "
            f"0x400 to {m.shared.end:#x}"
        )


@pytest.mark.parametrize(
    ("swizzle", "name"),
    [(0, "no swizzle"), (1, "the 32-byte swizzle"), (3, "the 128-byte swizzle")],
)
def test_a_swizzle_in_words(swizzle: int, name: str) -> None:
    assert _swizzle(swizzle) == name


@pytest.mark.parametrize("cta", [0, 1, 2])
@pytest.mark.parametrize("pieces", ["near", "apart"])
def test_what_a_product_reads_is_noted_in_its_own_cta(cta: int, pieces: str) -> None:
    """Rows side by side and rows far apart, which nothing has written: nobody wrote them there."""
    m, unit = ready(4)
    rows = 128
    stride = 256 if pieces == "near" else 1024
    base = cta * m.shared.size
    brought(m, base + START, 128 * stride // 8, 0)
    unit.codes(word(START, 128, stride, 0), rows, 32, 1, False, cta, event(m), 5)
    assert m.reporter.diagnostics == []
    granules = m.shared.last.every()
    (chain,) = [c for c in range(len(granules.read)) if granules.read[c].any()]
    read = np.flatnonzero(granules.read[chain]) << m.shared.shift
    wanted = sorted(
        {
            base + START + r // 8 * stride + r % 8 * 16 + piece * 128
            >> m.shared.shift
            << m.shared.shift
            for r in range(rows)
            for piece in range(2)
        }
    )
    assert sorted({int(x) >> 4 << 4 for x in read}) == sorted({x >> 4 << 4 for x in wanted})
