"""Copies of ``cp.async``: bytes taken and zeros behind, groups of each warp, arrivals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.clocks import CP_ASYNC
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.regions import Region
from tests.emulator.machines import machine

BASE, AT = 1 << 20, 0x800
CONTENT = bytes((7 * i + 1) % 251 for i in range(2048))


def ready(threads: int = 64, **options: Any) -> tuple[Machine, Any]:
    regions = [Region(BASE, len(CONTENT), "x", content=CONTENT)]
    m = machine((threads, 1, 1), dynamic=0x2000, regions=regions, **options)
    return m, m.units["cp_async"]


@pytest.mark.parametrize("count", [4, 8, 16])
def test_each_thread_takes_its_bytes_and_zeros_behind(count: int) -> None:
    m, unit = ready()
    threads = np.arange(64)
    sizes = threads % (count + 3)  # No more are taken than are copied.
    to = (AT + count * threads).astype(np.uint32)
    unit.copy(
        to, BASE + 16 * threads.astype(np.uint64), count, sizes.astype(np.uint32), slice(0, 64), 1
    )
    found = m.shared.bytes[AT : AT + 64 * count].reshape(64, count)
    for t in range(64):
        size = min(int(sizes[t]), count)
        assert found[t].tolist() == [*CONTENT[16 * t : 16 * t + size], *[0] * (count - size)]
    assert m.shared.bytes[AT + 64 * count] == m.options.fill
    assert m.reporter.diagnostics == []
    assert [g.clock for g in unit.groups] == [1, 1]
    every, whole = ready()
    whole.copy(to, BASE + 16 * threads.astype(np.uint64), count, None, slice(0, 64), 1)
    rows = every.shared.bytes[AT : AT + 64 * count].reshape(64, count)
    assert rows.tolist() == [list(CONTENT[16 * t : 16 * t + count]) for t in range(64)]


def test_groups_of_each_warp_are_waited_for_oldest_first() -> None:
    m, unit = ready()
    both, second = slice(0, 64), slice(32, 64)
    to, source = np.uint32(AT), np.uint64(BASE)
    for s in (both, second, both):
        unit.copy(to, source, 16, None, s, 1)
        unit.commit(both)
    assert [list(g.committed) for g in unit.groups] == [[1, 1, 2], [1, 2, 3]]

    def known() -> list[int]:
        return [int(m.clocks.seen[w, CP_ASYNC * 2 + w]) for w in (0, 1)]

    unit.wait(3, both)
    assert known() == [0, 0]
    unit.wait(2, both)
    assert known() == [1, 1]
    unit.wait(1, second)
    assert known() == [1, 2]
    unit.wait(0, both)
    assert known() == [2, 3]
    assert [list(g.committed) for g in unit.groups] == [[], []]


@pytest.mark.parametrize("lane", [3, 5])
@pytest.mark.parametrize("waits", [False, True])
def test_bytes_are_there_for_who_has_waited(waits: bool, lane: int) -> None:
    """Once lane 5 has waited for its bytes, others of its warp still have to meet it."""
    m, unit = ready()
    s = slice(0, 32)
    unit.copy(np.uint32(AT) + 16 * np.arange(32, dtype=np.uint32), np.uint64(BASE), 16, None, s, 1)
    unit.commit(s)
    if waits:
        unit.wait(0, s)
    m.memory.load("shared", np.uint32(AT + 16 * 5), 4, 1, slice(lane, lane + 1), 2, "weak")
    found = [(d.kind, d.at.pc, d.other.pc) for d in m.reporter.diagnostics]
    if waits:
        assert found == ([("warp-race", 2, 1)] if lane == 3 else [])
    else:
        assert found == [("race", 2, 1)]
        assert m.reporter.diagnostics[0].message == (
            f"shared {AT + 80:#x} is written by cp.async of warp 0 and read by thread {lane} (warp "
            f"0, lane {lane}), and nothing orders the two"
        )


@pytest.mark.parametrize("noinc", [False, True])
def test_an_arrival_is_one_of_each_thread_once_its_copies_are_done(noinc: bool) -> None:
    m, unit = ready()
    m.sync.init(np.uint32(0x400), np.uint32(40), slice(0, 1), 0)
    s = slice(0, 32)
    unit.copy(np.uint32(AT), np.uint64(BASE), 16, None, s, 1)
    barrier = m.sync.mbarriers[0x400]
    before = int(m.clocks.seen[0, 0])
    unit.arrive(np.uint32(0x400), noinc, s, 2)
    assert barrier.pending == (8 if noinc else 40)
    assert int(barrier.vector[CP_ASYNC * 2]) == 1
    assert int(m.clocks.seen[0, 0]) == before + 1
    unit.arrive(np.uint32(0x408), noinc, s, 3)
    assert [d.kind for d in m.reporter.diagnostics if d.at.pc == 3] == ["barrier-uninitialized"]


def test_a_copy_off_its_alignment_or_past_the_end_is_named() -> None:
    m, unit = ready()
    one = slice(2, 3)
    unit.copy(np.uint32(AT + 4), np.uint64(BASE + 8), 16, None, one, 1)
    unit.copy(np.uint32(AT), np.uint64(BASE + 2048 - 8), 8, None, one, 2)
    unit.copy(np.uint32(AT), np.uint64(BASE + 2048), 8, None, one, 3)
    found = [d for d in m.reporter.diagnostics if d.kind != "race"]
    assert [(d.kind, d.at.pc, d.who.partition(" (")[0], d.times) for d in found] == [
        ("misaligned", 1, "thread 2", 2),  # Both addresses.
        ("out-of-bounds", 3, "thread 2", 1),
    ]
