"""Copies among four CTAs, where two would not tell one CTA from the other."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.machine import Machine
from mla_var3.emulator.regions import Region
from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.tensormap import tiled
from tests.emulator.machines import machine

CTAS, BASE, SIZE = 4, 1 << 20, 4096
BAR, AT = 0x400, 0x800
CONTENT = bytes(i % 251 for i in range(SIZE))


def ready(ctas: int = CTAS, threads: int = 32, **options: Any) -> Machine:
    """A machine whose CTAs each have a barrier that expects nothing and waits for one arrival."""
    regions = [Region(BASE, SIZE, "x", content=CONTENT)]
    m = machine((threads, 1, 1), (ctas, 1, 1), dynamic=0x2000, regions=regions, **options)
    for cta in range(ctas):
        first = slice(cta * threads, cta * threads + 1)
        m.sync.init(np.uint32(BAR), np.uint32(1), first, 0)
        m.sync.fence("fence.mbarrier_init.release.cluster", first)
    # All have met: barriers are known to everyone.
    vector = m.clocks.vector()
    warps = list(range(m.clocks.warps))
    m.clocks.publish(warps, vector)
    m.clocks.tick(warps)
    m.clocks.join(warps, vector)
    return m


def thread(m: Machine, cta: int, own: int = 0) -> slice:
    return slice(cta * m.per_cta + own, cta * m.per_cta + own + 1)


def changed(m: Machine) -> dict[int, list[int]]:
    """By CTA the bytes of its shared memory that a copy has brought, from ``AT`` on."""
    rows = m.shared.bytes.reshape(m.ctas, -1)[:, AT : AT + 64]
    return {cta: row.tolist() for cta, row in enumerate(rows) if (row != m.options.fill).any()}


def brought(m: Machine) -> dict[int, int]:
    """Bytes that each CTA's barrier has got."""
    told = {at // m.shared.size: -barrier.tx for at, barrier in m.sync.mbarriers.items()}
    return {cta: count for cta, count in told.items() if count}


@pytest.mark.parametrize("cta", range(CTAS))
@pytest.mark.parametrize("mask", [None, 0b0001, 0b0110, 0b1010, 0b1111, 0b1000])
def test_bytes_go_to_the_ctas_of_a_mask(cta: int, mask: int | None) -> None:
    m = ready()
    bulk, s = m.units["bulk"], thread(m, cta)
    given = None if mask is None else np.uint16(mask)
    bulk.copy_in(np.uint32(AT), np.uint64(BASE + 160), np.uint32(64), np.uint32(BAR), given, s, 1)
    targets = [cta] if mask is None else [k for k in range(CTAS) if mask >> k & 1]
    assert changed(m) == {k: list(CONTENT[160:224]) for k in targets}
    assert brought(m) == dict.fromkeys(targets, 64)
    for k in range(CTAS):
        first = (k * m.shared.size + AT) >> m.shared.shift
        known = m.shared.last.every().known[first : first + 64 // m.shared.granule + 1]
        assert known.tolist() == [k in targets] * (len(known) - 1) + [False]
    assert m.reporter.diagnostics == []


@pytest.mark.parametrize("pair", [False, True])
def test_a_box_signals_the_barrier_beside_it_or_that_of_its_pair(pair: bool) -> None:
    m = ready()
    bulk, size = m.units["bulk"], m.shared.size
    for mask, named, cta in itertools.product(range(16), range(CTAS), range(CTAS)):
        place, barrier = cta * size + AT, named * size + BAR
        found = bulk._targets(place, barrier, np.array([0, mask], np.uint16), 1, pair)
        to = [k for k in range(CTAS) if mask >> k & 1]
        side = named % 2
        told = [k - k % 2 + side if pair else k for k in to]
        assert found == [(k * size + AT, b * size + BAR) for k, b in zip(to, told, strict=True)]
    assert bulk._targets(AT, size + BAR, None, 0, pair) == [(AT, size + BAR)]


@pytest.mark.parametrize(("source", "target"), list(itertools.permutations(range(CTAS), 2)))
def test_bytes_go_from_one_cta_to_another(source: int, target: int) -> None:
    m = ready()
    size = m.shared.size
    mine = slice(source * size + AT, source * size + AT + 64)
    m.shared.bytes[mine] = np.arange(64)
    m.shared.last.every().known[mine.start >> m.shared.shift : mine.stop >> m.shared.shift] = True
    away = (target + 1) << 24
    m.units["bulk"].copy_across(
        np.uint32(away + AT), np.uint32(AT), np.uint32(32), np.uint32(away + BAR), None,
        thread(m, source), 1,
    )  # fmt: skip
    rows = m.shared.bytes.reshape(CTAS, -1)
    assert rows[target, AT : AT + 33].tolist() == [*range(32), m.options.fill]
    assert brought(m) == {target: 32}
    assert set(changed(m)) == {source, target}


@pytest.mark.parametrize("op", ["exch", "add"])
def test_a_store_in_another_cta_counts_its_bytes_there(op: str) -> None:
    m = ready()
    for target in range(1, CTAS):
        away = (target + 1) << 24
        values = [np.uint32(7 + target), np.uint32(9)][: 2 if op == "exch" else 1]
        m.units["bulk"].reduce_async(
            op, "u32", np.uint32(away + AT), values, np.uint32(away + BAR), thread(m, 0), 1
        )
    rows = m.shared.views[4].reshape(CTAS, -1)[:, AT // 4 : AT // 4 + 3]
    poison = int.from_bytes([m.options.fill] * 4, "little")
    for target in range(1, CTAS):
        wanted = [7 + target, 9, poison] if op == "exch" else [poison + 7 + target, poison, poison]
        assert rows[target].tolist() == wanted
    assert rows[0].tolist() == [poison] * 3
    assert brought(m) == dict.fromkeys(range(1, CTAS), 8 if op == "exch" else 4)


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_of_threads_the_others_copy_where_one_may_not(bad: int) -> None:
    """In both directions: a copy that is not aligned ends nothing but itself."""
    m = ready(1)
    bulk, s = m.units["bulk"], slice(0, 3)
    counts = np.full(3, 16, np.uint32)
    counts[bad] = 12
    places = AT + 16 * np.arange(3, dtype=np.uint32)
    bulk.copy_in(
        places, BASE + 64 * np.arange(3, dtype=np.uint64), counts, np.uint32(BAR), None, s, 1
    )
    want = [m.options.fill] * 48
    for i in range(3):
        if i != bad:
            want[16 * i : 16 * i + 16] = CONTENT[64 * i : 64 * i + 16]
    assert m.shared.bytes[AT : AT + 48].tolist() == want
    assert brought(m) == {0: 32}
    bulk.copy_out(BASE + 1024 + 64 * np.arange(3, dtype=np.uint64), places, counts, s, 2)
    (region,) = m.memory_map.regions
    for i in range(3):
        here = region.data[1024 + 64 * i : 1024 + 64 * i + 16].tolist()
        before = list(CONTENT[1024 + 64 * i : 1024 + 64 * i + 16])
        assert here == (before if i == bad else want[16 * i : 16 * i + 16])
    # The bytes may still be on their way in, which is a race.
    found = [d.kind for d in m.reporter.diagnostics if d.kind != "race"]
    assert found == ["misaligned", "misaligned"]
    m.reporter.found.clear()
    # Past the end of the allocation, likewise.
    bulk.copy_in(
        places,
        np.array([BASE, BASE + SIZE, BASE + 16], np.uint64),
        np.full(3, 16, np.uint32),
        np.uint32(BAR),
        None,
        s,
        3,
    )
    assert [d.kind for d in m.reporter.diagnostics if d.kind != "race"] == ["out-of-bounds"]
    assert brought(m) == {0: 64}


@pytest.mark.parametrize(
    "at",
    [(-2, 0, 0), (0, -1, 0), (0, 0, -1), (3, 2, 1), (5, 0, 0), (-2, -1, 1), (9, 0, 0), (0, 0, 0)],
)
def test_a_box_of_three_axes_is_cut_at_each_of_them(at: tuple[int, int, int]) -> None:
    """Elements outside are zeros on the way in, and are left as they are on the way out."""
    dims, box = (6, 4, 3), (4, 3, 2)
    strides = (4, 32, 256)
    m = ready(1)
    (region,) = m.memory_map.regions
    t = tiled(BASE, dims, strides, box, "f32")
    bulk = m.units["bulk"]
    event = m.sync.event(BAR, 0)
    data = bulk._fetch(t, at, event, 1)
    words = region.views[4]
    found = data.view(np.uint32).reshape(box[::-1])
    inside = {}
    for z, y, x in np.ndindex(*box[::-1]):
        place = (at[0] + x, at[1] + y, at[2] + z)
        if all(0 <= p < d for p, d in zip(place, dims, strict=True)):
            inside[z, y, x] = (4 * place[0] + 32 * place[1] + 256 * place[2]) // 4
    for index in np.ndindex(*box[::-1]):
        assert found[index] == (words[inside[index]] if index in inside else 0)
    m.shared.views[4][AT // 4 : AT // 4 + 24] = np.arange(1, 25)
    m.shared.last.every().known[:] = True
    before = words.copy()
    bulk._store(t, at, AT, "", 0, 2)
    wanted = before
    for (z, y, x), word in inside.items():
        wanted[word] = 1 + x + 4 * y + 12 * z
    assert words.tolist() == wanted.tolist()
    assert "out-of-bounds" not in [d.kind for d in m.reporter.diagnostics]


@pytest.mark.parametrize("operation", ["", "add"])
def test_lanes_that_store_the_same_box_store_once_and_reduce_each(operation: str) -> None:
    m = ready(1)
    (region,) = m.memory_map.regions
    raw = np.frombuffer(tiled(BASE + 256, (4, 4), (4, 16), (4, 1), "u32").encode(), np.uint8)
    region.data[0:128] = raw
    region.views[4][64:80] = 100
    m.shared.views[4][AT // 4 : AT // 4 + 4] = [1, 2, 3, 4]
    m.shared.last.every().known[:] = True
    bulk = m.units["bulk"]
    rows = np.array([0, 0, 2, 0], np.uint32)
    bulk.store_tensor(
        np.uint32(AT), np.uint64(BASE), [np.uint32(0), rows], operation, slice(0, 4), 1
    )
    found = region.views[4][64:80].reshape(4, 4).tolist()
    once = [1, 2, 3, 4]
    if operation:
        assert found == [[100 + 3 * v for v in once], [100] * 4, [100 + v for v in once], [100] * 4]
    else:
        assert found == [once, [100] * 4, once, [100] * 4]
    # One thread of the warp has stored each box that is not a reduction.
    assert sorted(bulk.stores.of_thread) == ([0, 1, 2, 3] if operation else [0, 2])


def test_groups_are_waited_for_oldest_first() -> None:
    m = ready(1)
    bulk, s = m.units["bulk"], thread(m, 0)
    for _ in range(3):
        bulk.copy_out(np.uint64(BASE), np.uint32(AT), np.uint32(16), s, 1)
        bulk.stores.commit(s, 2)
    (mine,) = bulk.stores.of_thread.values()
    assert (list(mine.reading), list(mine.storing)) == ([1, 2, 3], [1, 2, 3])
    known = m.clocks.seen[0]
    bulk.stores.wait(2, True, s, 3)
    assert (list(mine.reading), list(mine.storing)) == ([2, 3], [1, 2, 3])
    assert (known[mine.read], known[mine.stored]) == (1, 0)
    bulk.stores.wait(1, False, s, 3)
    assert (list(mine.reading), list(mine.storing)) == ([3], [3])
    assert (known[mine.read], known[mine.stored]) == (2, 2)
    bulk.stores.wait(1, False, thread(m, 0, 1), 3)  # Another thread has stored nothing.
    bulk.stores.wait(0, True, s, 3)
    assert (known[mine.read], known[mine.stored]) == (3, 2)


@pytest.mark.parametrize("swizzle", range(4))
@pytest.mark.parametrize("at", [0x800, 0x880, 0x900])
def test_granules_of_a_box_are_those_that_its_pieces_touch(swizzle: int, at: int) -> None:
    m = ready(1)
    t = tiled(BASE, (64, 8), (2, 128), (16 << swizzle >> 1, 3), "f16", swizzle)
    chunks, granules = m.units["bulk"].boxes.place(t, at)
    assert chunks.tolist() == tensormap.tile_chunks(at, t.count, swizzle).tolist()
    each = 16 // m.shared.granule
    wanted = sorted({int(c) * each + i for c in chunks for i in range(each)})
    listed = (
        list(range(granules.start, granules.stop))
        if isinstance(granules, slice)
        else granules.tolist()
    )
    if isinstance(granules, slice):  # As many, from the start on: its pattern stays inside.
        assert listed == [at // m.shared.granule + i for i in range(t.count // m.shared.granule)]
    else:
        assert listed == wanted
    assert len(listed) == len(wanted)
