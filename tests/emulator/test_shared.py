"""Shared memory by itself: addresses, granules, and what a read needs no closer look for."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.clocks import BULK, GENERIC, Clocks, Event, stamp
from mla_var3.emulator.distinct import common, distinct
from mla_var3.emulator.granules import MOST_RANGES, ranges
from mla_var3.emulator.shared import SharedMemory
from tests.emulator.machines import machine


def memory(ctas: int, end: int = 3000, granule: int = 4) -> SharedMemory:
    return SharedMemory(ctas, end, granule, Clocks(ctas, 1), 0xCD)


@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_addresses_name_a_cta_in_their_top_byte(ctas: int) -> None:
    """Rank + 1 there, and 0 for the own; a kernel for pairs has the rank itself."""
    m = memory(ctas)
    assert (m.size, len(m.bytes), len(m.last.every().known)) == (3072, 3072 * ctas, 768 * ctas)
    for own in range(ctas):
        offset = own * m.size
        assert m.physical(0x500, offset) == offset + 0x500
        for rank in range(ctas):
            assert m.physical((rank + 1 << 24) + 0x500, offset) == rank * m.size + 0x500
            # The upper half of a generic address is no part of it.
            assert (
                m.physical((0x0200 << 48) + (rank + 1 << 24) + 0x500, offset)
                == rank * m.size + 0x500
            )
    m.named = True
    for rank in range(ctas):
        assert m.physical((rank << 24) + 0x500, 0) == rank * m.size + 0x500
    assert m.physical((ctas << 24) + 0x500, 0) == (ctas - 1) * m.size + 0x500


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(
    ("low", "count", "out"),
    [
        (0x3FF, 1, True),
        (0x400, 1, False),
        (2999, 1, False),
        (3000, 1, True),
        (2996, 4, False),
        (2997, 4, True),
        (0, 4, True),
    ],
)
def test_the_window_of_a_launch(ctas: int, low: int, count: int, out: bool) -> None:
    m = memory(ctas)
    for cta in range(ctas):
        assert m.outside(np.array([low + cta * m.size]), count).tolist() == [out]
    assert m.outside(np.array([0x500, ctas * m.size + 0x500]), 4).tolist() == [False, True]


@pytest.mark.parametrize("granule", [1, 2, 4, 8, 16])
def test_granules_of_an_access(granule: int) -> None:
    m = memory(1, granule=granule)
    for count in (1, 2, 4, 8, 16):
        at = np.array([0x400, 0x440 + count])
        found = m.granules(at, count)
        for row, first in zip(found.tolist(), at.tolist(), strict=True):
            assert row == [first // granule + i for i in range(max(1, count // granule))]


@pytest.mark.parametrize("each", [1, 4])
def test_pieces_are_slices_where_they_are_few(each: int) -> None:
    for count in (1, MOST_RANGES, MOST_RANGES + 1):
        pieces = np.concatenate([np.arange(10 * i, 10 * i + 3) for i in range(count)])
        found = ranges(pieces, each)
        listed = np.concatenate(
            [np.arange(g.start, g.stop) if isinstance(g, slice) else g for g in found]
        )
        assert listed.tolist() == [p * each + i for p in pieces.tolist() for i in range(each)]
        assert [isinstance(g, slice) for g in found] == (
            [True] * count if count <= MOST_RANGES else [False]
        )


def test_a_read_of_what_one_unit_wrote_needs_no_closer_look() -> None:
    m = machine((64, 1, 1))
    shadow, shared, clocks = m.shadow, m.shared, m.clocks
    g = slice(300, 308)
    chain = clocks.chain("load", BULK)
    shadow.unit_write(g, Event(chain, 2, 0, BULK), 5)
    both, second = range(0, 2), range(1, 2)
    assert shadow.clear(g, both) is False
    clocks.finish(1, chain, 2)
    assert shadow.clear(g, second) is True
    assert shadow.clear(g, both) is False
    clocks.finish(0, chain, 3)
    assert shadow.clear(g, both) is True
    assert shadow.clear(slice(300, 309), both) is False  # Nothing has written the last.
    last = shared.last.every()
    last.known[308] = True
    last.writer[308], last.written[308] = 0, 0  # A thread has.
    assert shadow.clear(slice(300, 309), both) is False
    assert shadow.clear(slice(308, 309), both) is False
    assert shadow.write_pc(303) == 5
    assert shadow.place(303) == f"{303 * shared.granule:#x}"


def test_readers_are_kept_where_there_are_more_chains() -> None:
    m = machine((64, 1, 1))
    shared, clocks = m.shared, m.clocks
    m.shadow.mark_read(slice(300, 302), [Event(1, 3, 1, GENERIC)], 9)
    for i in range(clocks.room):
        clocks.chain(i, BULK)
    last = shared.last.every()
    assert last.read.shape == (clocks.room, len(last.known))
    assert last.read[1, 299:303].tolist() == [0, stamp(3, 1, 9), stamp(3, 1, 9), 0]
    assert shared.last.rows.tolist() == [1]
    m.shadow.mark_read(slice(300, 301), [Event(4, 1, 0, GENERIC), Event(5, 2, 1, GENERIC)], 7)
    assert shared.last.rows.tolist() == [1, 4, 5]
    assert last.read[4:6, 300].tolist() == [stamp(1, 0, 7), stamp(2, 1, 7)]


def test_distinct_values_and_the_one_that_all_have() -> None:
    assert distinct(np.array([], np.int64)) == []
    assert distinct(np.array([7, 7, 7])) == [7]
    assert distinct(np.array([9, 2, 9, -1])) == [-1, 2, 9]
    same = common(np.array([4, 4], np.uint32))
    assert (same, type(same)) == (4, int)
    assert common(np.array([4, 5])).tolist() == [4, 5]
