"""The machine's own bookkeeping: threads and warps, fragments, what is fast where it may be."""

from __future__ import annotations

from typing import Any

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
from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Reporter
from mla_var3.emulator.distinct import common, distinct
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import GlobalMemory
from mla_var3.emulator.sched import Fragment
from mla_var3.emulator.shared import MOST_RANGES, SharedMemory, ranges
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet


def machine(
    block: tuple[int, int, int] = (64, 1, 1),
    cluster: tuple[int, int, int] = (1, 1, 1),
    grid: tuple[int, int, int] = (4, 4, 4),
    snippet: Snippet = Snippet({"none": ""}),
    dynamic: int = 0,
    **options: Any,
) -> Machine:
    """One that is ready for its first cluster."""
    program, how = Program(parse(snippet.text())), Options(**options)
    reporter = Reporter(program.kernel, how.schedule, how.model.name)
    memory = GlobalMemory([], reporter, how.model, 4, how.checks)
    counts = Counts(program, how.counting)
    made = Machine(program, grid, block, cluster, dynamic, bytes(64), memory, reporter, how, counts)
    made.start((0, 0, 0), 0)
    return made


# Threads ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("threads", [1, 32, 33, 96, 160, 256])
@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_where_each_thread_belongs(threads: int, ctas: int) -> None:
    m = machine((threads, 1, 1), (ctas, 1, 1))
    warps, groups = -(-threads // 32), -(-threads // 128)
    assert (m.threads, m.per_cta, m.warps_per_cta) == (threads * ctas, threads, warps)
    for t in range(m.threads):
        cta, own = divmod(t, threads)
        assert (m.cta[t], m.own[t], m.lane[t]) == (cta, own, own % 32)
        assert m.warp[t] == cta * warps + own // 32
        assert m.place[t] == cta * groups + own // 128
        assert m.cta_offset[t] == cta * m.shared.size
    assert m.live == [min(32, threads - 32 * w) for _ in range(ctas) for w in range(warps)]
    assert m.alive.all()
    assert len(m.scheduler.order) == groups * ctas


def test_warps_of_threads() -> None:
    m = machine((160, 1, 1), (2, 1, 1))
    for first, last in [(0, 1), (0, 32), (31, 33), (32, 64), (0, 320), (150, 170), (319, 320)]:
        wanted = sorted({int(m.warp[t]) for t in range(first, last)})
        assert m.warps_of(slice(first, last)) == wanted
        assert m.warps_of(np.arange(first, last)) == wanted
    assert m.warps_of(np.array([1, 40, 2, 319])) == [0, 1, 9]


def test_threads_and_warps_in_words() -> None:
    m = machine((96, 1, 1))
    assert m.thread(slice(0, 96), 70) == "thread 70 (warp 2, lane 6)"
    assert m.thread(np.array([5, 40]), 1) == "thread 40 (warp 1, lane 8)"
    assert m.warp_name(2) == "warp 2"
    assert [m.who(slice(0, n)) for n in (32, 33, 96)] == ["warp 0", "warp 0 and 1 more", "warp 0 and 2 more"]  # fmt: skip
    pair = machine((40, 1, 1), (2, 1, 1))
    assert pair.thread(slice(0, 80), 39) == "thread 39 (warp 1, lane 7) of CTA 0 of the cluster"
    assert pair.thread(slice(0, 80), 79) == "thread 39 (warp 1, lane 7) of CTA 1 of the cluster"
    assert pair.warp_name(2) == "warp 0 of CTA 1 of the cluster"


@pytest.mark.parametrize(
    ("threads", "ids", "whole"),
    [
        (64, slice(0, 64), True), (64, slice(32, 64), True), (48, slice(0, 48), False),
        (96, np.r_[0:32, 64:96], True), (96, np.r_[1:33, 64:96], True), (96, np.r_[0:31, 33:34], False),
        (96, np.r_[0:32, 64:95, 33], False),
    ],
)  # fmt: skip
def test_whole_warps_in_order(threads: int, ids: Any, whole: bool) -> None:
    assert machine((threads, 1, 1)).whole(ids) is whole


@pytest.mark.parametrize("negated", [False, True])
def test_a_guard_lets_all_some_or_none_through(negated: bool) -> None:
    m = machine((64, 1, 1))
    guard = np.arange(64) < 40
    test = ~guard if negated else guard
    for s in (slice(0, 64), slice(0, 40), slice(40, 64), np.array([3, 39, 40, 50])):
        ids = m.ids[s]
        through = ids[test[s]]
        chosen = m.select(guard, s, negated, 0)
        if len(through) == len(ids):
            assert chosen == (s,)
        else:
            assert [c.tolist() for c in chosen] == ([through.tolist()] if len(through) else [])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_schedule_is_of_its_seed_and_cluster(seed: int) -> None:
    """The same numbers again, and others for the next cluster of the launch."""
    m = machine(seed=seed)
    m.start((1, 0, 0), 1)
    first = m.scheduler.random.integers(0, 1 << 30, 4).tolist()
    m.start((2, 0, 0), 2)
    second = m.scheduler.random.integers(0, 1 << 30, 4).tolist()
    m.start((1, 0, 0), 1)
    assert m.scheduler.random.integers(0, 1 << 30, 4).tolist() == first != second
    wanted = np.random.default_rng(seed * 1_000_003 + 1).integers(0, 1 << 30, 4).tolist()
    assert first == wanted
    assert machine().scheduler.random is None


def test_a_cluster_begins_with_nothing_of_the_last() -> None:
    m = machine((64, 1, 1), (2, 1, 1), grid=(8, 3, 2), multiprocessors=132)
    for bank in (m.r, m.q, m.h):
        bank[:] = 0
    m.p[:] = True
    m.alive[:], m.live[0], m.steps, m.asked, m.ticks, m.progress = False, 0, 5, 6, 7, 8
    m.shared.bytes[:], m.shared.known[:], m.shared.swizzles[:] = 1, True, 1
    m.start((3, 2, 1), 40)
    assert (m.index, m.number) == ((6, 2, 1), 40)
    assert set(m.r.ravel().tolist()) <= {0x7FBADBAD}
    assert set(m.q.ravel().tolist()) <= {0x7FBADBAD7FBADBAD}
    assert set(m.h.ravel().tolist()) <= {0xDBAD}
    assert not m.p.any()
    assert m.alive.all()
    assert m.live == [32] * 4
    assert (m.steps, m.asked, m.ticks, m.progress) == (0, 0, 0, 0)
    assert set(m.shared.bytes.tolist()) == {m.options.fill}
    assert not m.shared.known.any()
    assert not m.shared.swizzles.any()
    assert m.special["ctaid_x"].tolist() == [6] * 64 + [7] * 64
    assert [set(m.special[f"ctaid_{a}"].tolist()) for a in "yz"] == [{2}, {1}]
    assert m.special["smid"].tolist() == [80] * 64 + [81] * 64


# Fragments --------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("ids", "contiguous", "full", "group"),
    [
        (np.arange(0, 256), True, True, True), (np.arange(0, 128), True, True, True),
        (np.arange(32, 160), True, True, False), (np.arange(0, 64), True, True, False),
        (np.r_[0:32, 64:96], False, True, False), (np.arange(0, 31), True, False, False),
        (np.arange(1, 129), True, False, False), (np.arange(5, 6), True, False, False),
        (np.r_[0:128, 256:384], False, True, True), (np.r_[0:64, 128:192], False, True, False),
        (np.r_[0:127, 128], False, False, False),
    ],
)  # fmt: skip
def test_threads_that_run_together(
    ids: np.ndarray, contiguous: bool, full: bool, group: bool
) -> None:
    """Neighbors are a slice, which is many times faster than an index."""
    m = machine((384, 1, 1))
    f = Fragment(m, 3, ids)
    assert (f.pc, f.n, f.full, f.group) == (3, len(ids), full, group)
    assert isinstance(f.s, slice) is contiguous
    assert m.ids[f.s].tolist() == ids.tolist()
    assert f.warps == sorted(set((ids // 32).tolist()))
    assert f.place == ids[0] // 128


def test_a_fragment_is_whole_again_when_the_rest_has_ended() -> None:
    m = machine((64, 1, 1))
    f = Fragment(m, 0, np.arange(0, 40))
    assert not f.full
    m.live[1] = 8
    f.refresh(m)
    assert f.full


def test_fragments_of_one_place_merge_and_sort() -> None:
    m = machine((64, 1, 1))
    (whole,) = m.scheduler.fragments
    ids = whole.ids
    parts = m.scheduler.split(whole, [(ids[1::2], 2), (ids[::2], 2)])
    assert [f.n for f in m.scheduler.fragments] == [32, 32]
    m.scheduler._merge(parts[0])
    (joined,) = m.scheduler.fragments
    assert joined is m.scheduler.favored
    assert joined.ids.tolist() == list(range(64))
    assert isinstance(joined.s, slice)


@pytest.mark.parametrize(("wait", "merges"), [(None, True), ("converge", True), ("named", False), ("mbarrier", False)])  # fmt: skip
def test_who_waits_for_something_else_is_left_alone(wait: str | None, merges: bool) -> None:
    m = machine((64, 1, 1))
    (whole,) = m.scheduler.fragments
    first, second = m.scheduler.split(whole, [(whole.ids[:32], 2), (whole.ids[32:], 2)])
    second.wait = wait
    m.scheduler._merge(first)
    assert len(m.scheduler.fragments) == (1 if merges else 2)


def test_with_a_seed_warpgroups_stay_apart() -> None:
    m = machine((256, 1, 1), seed=3)
    assert [f.ids.tolist() for f in m.scheduler.fragments] == [
        list(range(128)),
        list(range(128, 256)),
    ]
    m.scheduler._merge(m.scheduler.fragments[0])
    assert len(m.scheduler.fragments) == 2
    assert len(machine((256, 1, 1)).scheduler.fragments) == 1


def test_who_is_behind_goes_first_and_who_asks_last() -> None:
    m = machine((96, 1, 1))
    (whole,) = m.scheduler.fragments
    ids = whole.ids
    a, b, c = m.scheduler.split(whole, [(ids[:32], 5), (ids[32:64], 3), (ids[64:], 4)])
    assert m.scheduler._next() is b
    b.asks = True
    assert m.scheduler._next() is c
    c.wait = "named"
    assert m.scheduler._next() is a
    a.wait = "named"
    assert m.scheduler._next() is b
    b.wait = "named"
    assert m.scheduler._next() is None
    m.scheduler.wake("mbarrier")
    assert m.scheduler._next() is None
    m.scheduler.wake("named")
    assert [f.wait for f in m.scheduler.fragments] == [None] * 3


def test_asking_twice_at_one_place_is_a_loop() -> None:
    m = machine()
    (f,) = m.scheduler.fragments
    m.scheduler.running = f
    said = []
    for pc in (4, 4, 5, 5, 5, 4):
        m.scheduler.asks(pc)
        said.append(f.asks)
    assert said == [False, True, False, True, True, False]
    assert (f.asked, m.asked) == (4, 6 * 2000)


def test_sleepers_try_again_once_for_each_progress() -> None:
    m = machine((64, 1, 1))
    (whole,) = m.scheduler.fragments
    first, second = m.scheduler.split(whole, [(whole.ids[:32], 2), (whole.ids[32:], 2)])
    first.wait, second.wait = "mbarrier", "named"
    assert m.scheduler._try_again() is True
    assert (first.wait, first.tried, second.wait, second.tried) == (None, True, "named", False)
    first.wait = "mbarrier"
    assert m.scheduler._try_again() is False
    m.progress += 1
    assert m.scheduler._try_again() is True
    assert m.scheduler._try_again() is False  # Nobody sleeps.


@pytest.mark.parametrize("quantum", [1, 2, 5])
def test_a_turn_ends_after_so_many_segments(quantum: int) -> None:
    steps = {f"sync {i}": f"bar.sync 0; add.u32 %r2, %r1, {i};" for i in range(6)}
    m = machine(snippet=Snippet(steps))
    turns = 0
    while not m.run(quantum):
        turns += 1
        assert m.turn == quantum
        assert m.steps == turns * quantum
    whole = machine(snippet=Snippet(steps))
    assert whole.run() is True
    assert whole.turn == whole.steps == m.steps
    assert turns == (m.steps - 1) // quantum or turns == m.steps // quantum


# Clocks -----------------------------------------------------------------------------------------
@pytest.mark.parametrize(("warps", "per_cta"), [(1, 1), (4, 4), (8, 4), (6, 2)])
def test_clocks_begin_with_a_chain_per_warp_and_unit(warps: int, per_cta: int) -> None:
    c = Clocks(warps, per_cta)
    assert c.room >= OF_WARPS * warps + ROOM
    for w in range(warps):
        assert [c.units[u * warps + w] for u in (GENERIC, WGMMA, CP_ASYNC)] == [GENERIC, WGMMA, CP_ASYNC]  # fmt: skip
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
    assert c.fences == {"shared": [[], []], "global": [[], []]}


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


@pytest.mark.parametrize(("number", "who", "pc"), [(0, 0, 0), (5, 31, 77), (1 << 30, 1023, (1 << 20) - 1)])  # fmt: skip
def test_a_stamp_holds_three_numbers(number: int, who: int, pc: int) -> None:
    made = stamp(number, who, pc)
    assert (made >> NUMBER, detail(made), made & ((1 << 20) - 1)) == (number, who, pc)


def test_who_left_a_stamp() -> None:
    c = Clocks(4, 2)
    assert c.who(3, stamp(1, 9, 0)) == "thread 41 (warp 1, lane 9) of CTA 1 of the cluster"
    assert c.who(WGMMA * 4 + 1, stamp(1, 1, 0)) == "wgmma of warp 1 of CTA 0 of the cluster"
    assert [Clocks(2, 2).name(u, 1) for u in range(len(UNITS))] == [f"{u} 1" for u in UNITS]


# Shared memory ----------------------------------------------------------------------------------
def memory(ctas: int, end: int = 3000, granule: int = 4) -> SharedMemory:
    return SharedMemory(ctas, end, granule, Clocks(ctas, 1), 0xCD)


@pytest.mark.parametrize("ctas", [1, 2, 4])
def test_addresses_name_a_cta_in_their_top_byte(ctas: int) -> None:
    """Rank + 1 there, and 0 for the own; a kernel for pairs has the rank itself."""
    m = memory(ctas)
    assert (m.size, len(m.bytes), len(m.known)) == (3072, 3072 * ctas, 768 * ctas)
    for own in range(ctas):
        offset = own * m.size
        assert m.physical(0x500, offset) == offset + 0x500
        for rank in range(ctas):
            assert m.physical((rank + 1 << 24) + 0x500, offset) == rank * m.size + 0x500
            # The upper half of a generic address is no part of it.
            assert m.physical((0x0200 << 48) + (rank + 1 << 24) + 0x500, offset) == rank * m.size + 0x500  # fmt: skip
    m.named = True
    for rank in range(ctas):
        assert m.physical((rank << 24) + 0x500, 0) == rank * m.size + 0x500
    assert m.physical((ctas << 24) + 0x500, 0) == (ctas - 1) * m.size + 0x500


@pytest.mark.parametrize("ctas", [1, 2])
@pytest.mark.parametrize(
    ("low", "count", "out"),
    [(0x3FF, 1, True), (0x400, 1, False), (2999, 1, False), (3000, 1, True), (2996, 4, False),
     (2997, 4, True), (0, 4, True)],
)  # fmt: skip
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
        assert [isinstance(g, slice) for g in found] == ([True] * count if count <= MOST_RANGES else [False])  # fmt: skip


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
    shared.known[308] = True
    shared.writer[308], shared.written[308] = 0, 0  # A thread has.
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
    assert shared.read.shape == (clocks.room, len(shared.known))
    assert shared.read[1, 299:303].tolist() == [0, stamp(3, 1, 9), stamp(3, 1, 9), 0]
    assert shared.rows.tolist() == [1]
    m.shadow.mark_read(slice(300, 301), [Event(4, 1, 0, GENERIC), Event(5, 2, 1, GENERIC)], 7)
    assert shared.rows.tolist() == [1, 4, 5]
    assert shared.read[4:6, 300].tolist() == [stamp(1, 0, 7), stamp(2, 1, 7)]


# Values that are alike --------------------------------------------------------------------------
def test_distinct_values_and_the_one_that_all_have() -> None:
    assert distinct(np.array([], np.int64)) == []
    assert distinct(np.array([7, 7, 7])) == [7]
    assert distinct(np.array([9, 2, 9, -1])) == [-1, 2, 9]
    same = common(np.array([4, 4], np.uint32))
    assert (same, type(same)) == (4, int)
    assert common(np.array([4, 5])).tolist() == [4, 5]


# The end of the text ----------------------------------------------------------------------------
def test_threads_that_run_off_the_end_have_ended() -> None:
    out = np.zeros(64, np.uint32)
    text = Snippet(
        {
            "skip": "shl.b32 %r2, %r1, 2; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd0, %rd3; "
            "setp.lt.u32 %p1, %r1, 20; @%p1 bra END; st.global.u32 [%rd4], %r1; END:"
        }
    ).text().replace("\nret;\n", "\n")  # fmt: skip
    assert "ret;" not in text
    done = launch(text, [out, out], 1, 64)
    assert done.diagnostics == []
    assert out.tolist() == [0] * 20 + list(range(20, 64))
