"""Vectors of what warps know, and stamps."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.clocks import (
    BULK,
    CP_ASYNC,
    GENERIC,
    NUMBER,
    OF_WARPS,
    ROOM,
    UNITS,
    WGMMA,
    Clocks,
    Event,
    detail,
    stamp,
)


@pytest.mark.parametrize(("warps", "per_cta"), [(1, 1), (4, 4), (8, 4), (6, 2)])
def test_clocks_begin_with_a_chain_per_warp_and_unit(warps: int, per_cta: int) -> None:
    c = Clocks(warps, per_cta)
    assert c.room >= OF_WARPS * warps + ROOM
    for w in range(warps):
        assert [c.units[u * warps + w] for u in (GENERIC, WGMMA, CP_ASYNC)] == [
            GENERIC,
            WGMMA,
            CP_ASYNC,
        ]
        assert c.seen[w].tolist() == [int(i == w) for i in range(c.room)]
    assert c.began.tolist() == [1] * warps
    event = c.issue(CP_ASYNC, warps - 1)
    assert event == Event(CP_ASYNC * warps + warps - 1, 1, warps - 1, CP_ASYNC)
    assert c.issue(CP_ASYNC, warps - 1).number == 2
    assert c.issue(WGMMA, warps - 1).number == 1


def test_a_chain_has_one_number_and_the_unit_it_tells_of() -> None:
    c = Clocks(4, 2)
    first, again, other = c.chain("a", BULK), c.chain("a", BULK), c.chain("b", WGMMA)
    assert (first, again, other) == (12, 12, 13)
    assert (c.units[12], c.units[13]) == (BULK, WGMMA)


def test_room_doubles_when_it_is_used_up_and_keeps_what_is_known() -> None:
    c = Clocks(2, 2)
    grown: list[int] = []
    c.keepers.append(lambda: grown.append(c.room))
    room = c.room
    for i in range(room - len(c.units)):
        c.chain(i, BULK)
    assert (c.room, grown) == (room, [])
    c.seen[1, room - 1], c.fenced_shared[0, 3], c.issued[5] = 9, 8, 7
    last = c.chain("more", BULK)
    assert (last, c.room, grown) == (room, 2 * room, [2 * room])
    for kept in (c.seen, c.fenced_shared, c.fenced_global, c.barriers_seen):
        assert kept.shape == (2, 2 * room)
    assert (c.seen[1, room - 1], c.fenced_shared[0, 3], c.issued[5]) == (9, 8, 7)
    assert c.seen[:, room:].sum() + c.issued[room:].sum() == 0
    assert len(c.vector()) == len(c.fit(np.ones(3, np.int64))) == 2 * room
    assert c.fit(np.ones(3, np.int64)).sum() == 3


def test_a_new_cluster_comes_after_everything() -> None:
    c = Clocks(2, 2)
    c.seen[0, 4], c.issued[5], c.seen[1, 1] = 3, 6, 8
    c.fence(0, ("shared",))
    c.start()
    for known in (c.seen, c.fenced_shared, c.fenced_global, c.barriers_seen):
        assert known[:, 4].tolist() == [3, 3]
        assert known[:, 5].tolist() == [6, 6]
    assert c.issued[4] == 3
    assert (c.seen[0, 0], c.seen[1, 0], c.seen[1, 1], c.seen[0, 1]) == (3, 2, 9, 8)
    assert c.began.tolist() == [3, 9]
    assert c.fences == {"shared": [[], []], "cluster": [[], []], "global": [[], []]}


def test_what_warps_know_is_one_view_where_they_are_neighbors() -> None:
    c = Clocks(4, 4)
    assert [v.shape for v in c.of([1, 2, 3])] == [(3, c.room)]
    assert np.shares_memory(c.of([1, 2, 3])[0], c.seen)
    assert [v.shape for v in c.of([0, 2, 3])] == [(1, c.room)] * 3
    assert [v.shape for v in c.of([2])] == [(1, c.room)]
    vector = c.vector()
    c.publish([0, 3], vector)
    assert vector[:4].tolist() == [1, 0, 0, 1]
    c.publish([1, 2], vector)
    assert vector[:4].tolist() == [1, 1, 1, 1]
    c.join([0, 2], vector)
    assert c.seen[:, :4].tolist() == [[1] * 4, [0, 1, 0, 0], [1] * 4, [0, 0, 0, 1]]


def test_a_fence_keeps_what_is_known_and_begins_something_new() -> None:
    c = Clocks(2, 2)
    c.seen[0, 7] = 4
    c.fence(0, ("shared",))
    assert (c.fenced_shared[0, 7], c.fenced_global[0, 7], c.fenced_shared[1, 7]) == (4, 0, 0)
    assert c.fences["shared"] == [[1], []]
    assert c.fences["global"] == [[], []]
    assert c.seen[0, 0] == 2
    c.fence(0, ("shared", "global"))
    assert (c.fenced_global[0, 7], c.seen[0, 0]) == (4, 3)
    assert (c.fences["shared"], c.fences["global"]) == ([[1, 2], []], [[2], []])
    c.finish(1, 7, 3)
    c.finish(1, 7, 2)
    assert c.seen[1, 7] == 3


@pytest.mark.parametrize(
    ("number", "who", "pc"), [(0, 0, 0), (5, 31, 77), (1 << 30, 1023, (1 << 20) - 1)]
)
def test_a_stamp_holds_three_numbers(number: int, who: int, pc: int) -> None:
    made = stamp(number, who, pc)
    assert (made >> NUMBER, detail(made), made & ((1 << 20) - 1)) == (number, who, pc)


def test_who_left_a_stamp() -> None:
    c = Clocks(4, 2)
    assert c.who(3, stamp(1, 9, 0)) == "thread 41 (warp 1, lane 9) of CTA 1 of the cluster"
    assert c.who(WGMMA * 4 + 1, stamp(1, 1, 0)) == "wgmma of warp 1 of CTA 0 of the cluster"
    assert [Clocks(2, 2).name(u, 1) for u in range(len(UNITS))] == [f"{u} 1" for u in UNITS]
