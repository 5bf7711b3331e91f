"""Granules kept by blocks and one by one say the same."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.clocks import BULK, WGMMA, Event
from mla_var3.emulator.granules import BLOCK
from mla_var3.emulator.machine import Machine
from tests.emulator.events import Snippet
from tests.emulator.machines import machine

EACH = 4
SIZE = BLOCK // EACH
WARPS = 2
#: As many places in a program as there are steps.
PLACES = Snippet({f"step{i}": "membar.cta;" for i in range(64)})


def made() -> Machine:
    return machine((32 * WARPS, 1, 1), snippet=PLACES, dynamic=8 * BLOCK)


def span(first: int, count: int) -> slice:
    return slice(first, first + count)


#: Spans of whole blocks, of parts of one, and over the edge of two.
SPANS = [
    *(span(SIZE * i, SIZE * n) for i, n in ((1, 1), (2, 1), (1, 2), (2, 2), (1, 3))),
    *(span(SIZE + 8, 16), span(2 * SIZE - 8, 16), span(SIZE, SIZE // 2)),
]
STEPS = st.tuples(
    st.sampled_from(["write", "read", "reads", "thread", "threads", "look", "learn", "clear"]),
    st.sampled_from(SPANS),
    st.integers(0, WARPS - 1),
)


def step(m: Machine, what: str, g: slice, warp: int, pc: int) -> Any:
    shadow, clocks = m.shadow, m.clocks
    lanes = np.arange(g.start, min(g.stop, g.start + 32))[:, None]
    who = np.full(len(lanes), warp), np.arange(len(lanes))
    match what:
        case "write":
            chain = clocks.chain(("mbarrier", g.start), BULK)
            clocks.issued[chain] += 1
            shadow.unit_write(g, Event(chain, int(clocks.issued[chain]), warp, BULK), pc)
        case "read":
            shadow.unit_read(g, clocks.issue(WGMMA, warp), pc)
        case "reads":
            shadow.mark_read(g, [clocks.issue(WGMMA, w) for w in range(WARPS)], pc)
        case "thread":
            (shadow.thread_write if pc % 2 else shadow.thread_read)(lanes, *who, pc)
        case "threads":  # Lanes of both warps, each with several granules.
            cells = np.arange(g.start, min(g.stop, g.start + 64 * 8)).reshape(-1, 8)
            both = np.arange(len(cells)) * WARPS // len(cells), np.arange(len(cells)) % 32
            (shadow.thread_write if pc % 2 else shadow.thread_read)(cells, *both, pc)
        case "learn":
            clocks.join([warp], np.maximum(clocks.issued, clocks.seen.max(0)))
            clocks.tick([warp])
        case "clear":
            return shadow.clear(g, range(WARPS))
    return None


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, min_size=5, max_size=40))
def test_blocks_say_what_granules_say(steps: list[tuple[str, slice, int]]) -> None:
    by_blocks, one_by_one = made(), made()
    one_by_one.shared.last.around = lambda _g: None  # type: ignore[method-assign]
    for pc, (what, g, warp) in enumerate(steps, 1):
        one_by_one.shared.last.every()
        assert step(by_blocks, what, g, warp, pc) == step(one_by_one, what, g, warp, pc)
        said, expected = ([str(d) for d in m.reporter.diagnostics] for m in (by_blocks, one_by_one))
        assert said == expected
    a, b = by_blocks.shared.last.every(), one_by_one.shared.last.every()
    for name in ("writer", "written", "known"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    np.testing.assert_array_equal(
        a.read[by_blocks.shared.last.rows], b.read[one_by_one.shared.last.rows]
    )


def test_a_tile_is_kept_by_blocks_until_a_thread_touches_one() -> None:
    m = made()
    last, tile = m.shared.last, slice(SIZE, 3 * SIZE)
    m.shadow.unit_write(tile, Event(m.clocks.chain("load", BULK), 1, 0, BULK), 5)
    assert last.at(tile) == (last.blocks, slice(1, 3))
    m.shadow.thread_read(np.array([[SIZE + 3]]), np.array([0]), np.array([0]), 6)
    assert last.whole[1:3].tolist() == [False, True]
    assert last.at(tile)[0] is last.granules
    assert last.last_write(SIZE + 9) == last.last_write(2 * SIZE + 9)


def test_blocks_are_looked_at_whole_where_most_of_them_is_touched() -> None:
    last = made().shared.last
    most, few = np.arange(2 * SIZE, 2 * SIZE + SIZE // 4), np.arange(2 * SIZE, 2 * SIZE + 8)
    blocks = last.around(most[:, None])
    assert blocks is not None
    assert blocks.tolist() == [2]
    assert last.around(few[:, None]) is None
    assert last.around(np.zeros((0, 1), np.int64)) is None


def test_a_block_that_is_written_whole_is_kept_as_one_again() -> None:
    m = made()
    last, tile = m.shared.last, slice(SIZE, 2 * SIZE)
    lanes = np.arange(4)
    m.shadow.thread_write(SIZE + lanes[:, None], np.zeros(4, int), lanes, 5)
    assert not last.whole[1]
    m.shadow.unit_write(tile, Event(m.clocks.chain("load", BULK), 1, 0, BULK), 6)
    assert last.whole[1]


@pytest.mark.parametrize("g", [np.zeros((0, 1), np.int64), np.array([[0], [3 * SIZE]])])
def test_only_blocks_that_are_touched_are_divided(g: Any) -> None:
    last = made().shared.last
    last.each(g)
    assert np.flatnonzero(~last.whole).tolist() == np.unique(g >> last.shift).tolist()


def test_reads_are_still_known_when_there_is_room_for_more_chains() -> None:
    m = made()
    last, clocks, event = m.shared.last, m.clocks, m.clocks.issue(WGMMA, 1)
    m.shadow.mark_read(slice(SIZE, 3 * SIZE), [event], 5)
    m.shadow.mark_read(slice(SIZE, SIZE + 8), [clocks.issue(WGMMA, 0)], 6)
    assert last.whole[1:3].tolist() == [False, True]
    granules = [SIZE, SIZE + 9, 2 * SIZE, 3 * SIZE]
    chains, room = last.rows.tolist(), clocks.room
    before = [(chain, g, last.last_read(chain, g)) for chain in chains for g in granules]
    for number in range(room):
        clocks.chain(number, BULK)
    assert clocks.room > room
    assert before == [(chain, g, last.last_read(chain, g)) for chain, g, _ in before]
    assert sum(read > 0 for *_, read in before) == 4
