# ruff: noqa: E501  # A PTX statement stays on its line.
"""Who touched global memory, across clusters: flags that tell of several writers, and of units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from mla_var3.emulator.regions import MOST_SHADOWED, Region, _at
from mla_var3.emulator.touched import MANY, Access, Touched
from tests.emulator.events import COPY, Snippet, wait

WHO = "mov.u32 %r9, %ctaid.x; setp.ne.u32 %p2, %r1, 0;"
SPIN = "SPIN: ld.acquire.gpu.global.u32 %r8, [%rd1]; setp.lt.u32 %p3, %r8, {count}; @%p3 bra SPIN;"

#: Three CTAs write a part each and count up; the last one to be asked reads all of them.
COUNTER = Snippet(
    {
        "start": WHO + " setp.eq.u32 %p4, %r9, 3; @%p4 bra TAKE;",
        "write": "mad.lo.u32 %r4, %r9, 64, %r1; mul.wide.u32 %rd3, %r4, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r4;",
        "meet": "bar.sync 0;",
        "count": "@!%p2 red.release.gpu.global.add.u32 [%rd1], 1; bra END;",
        "take": "TAKE: " + SPIN.format(count=3),
        "read": "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r5, [%rd4]; ld.global.u32 %r6, [%rd4+256]; ld.global.u32 %r7, [%rd4+512]; add.u32 %r5, %r5, %r6; add.u32 %r5, %r5, %r7;",
        "give": "add.u64 %rd5, %rd2, %rd3; st.global.u32 [%rd5], %r5;",
        "end": "END:",
    },
    words=(192, 1, 64),
    grid=4,
)


def run(kernel: Snippet, edits: dict[str, str] | None = None, model=DEFAULT, seed=None):
    """Arrays after a run whose counter begins at 0."""
    from mla_var3.emulator.launcher import launch

    arrays = [np.zeros(n, np.uint32) for n in kernel.words]
    options = Options(model=model, seed=seed)
    done = launch(kernel.text(edits), arrays, kernel.grid, kernel.block, options=options)
    return arrays, {(d.kind, d.at.line, d.other.line if d.other else 0) for d in done.diagnostics}


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
@pytest.mark.parametrize("seed", [None, 1, 2])
def test_a_counter_tells_of_all_that_counted(model, seed) -> None:
    (_, count, out), found = run(COUNTER, model=model, seed=seed)
    assert found == set()
    assert count[0] == 3
    assert out.tolist() == [3 * t + 192 for t in range(64)]


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
def test_what_a_second_warp_wrote_is_told_by_nobody(model) -> None:
    assert ("global-race", 6, 2) in run(COUNTER, {"meet": ""}, model)[1]


def test_a_relaxed_read_learns_nothing() -> None:
    relaxed = {"take": "TAKE: " + SPIN.format(count=3).replace("acquire", "relaxed")}
    assert run(COUNTER, relaxed, STRICT)[1] == {("global-race", 6, 2)}


def test_a_fence_acquires_what_was_read_before_it() -> None:
    relaxed = "TAKE: " + SPIN.format(count=3).replace("acquire", "relaxed") + " fence.acq_rel.gpu;"
    for model in (DEFAULT, STRICT):
        assert run(COUNTER, {"take": relaxed}, model)[1] == set()


def test_a_fence_releases_for_what_counts_behind_it() -> None:
    counted = "fence.acq_rel.gpu; @!%p2 red.relaxed.gpu.global.add.u32 [%rd1], 1; bra END;"
    for model in (DEFAULT, STRICT):
        assert run(COUNTER, {"count": counted}, model)[1] == set()
    plain = {"count": counted.replace("fence.acq_rel.gpu; ", "")}
    assert run(COUNTER, plain)[1] == set()  # By assumption: relaxed_publishes.
    assert run(COUNTER, plain, STRICT)[1] == {("global-race", 6, 2)}


@pytest.mark.parametrize(
    ("fence", "enough"),
    [
        ("fence.acq_rel.gpu;", True), ("fence.sc.sys;", True), ("membar.gl;", True),
        ("membar.sys;", True), ("fence.acq_rel.cta;", False), ("membar.cta;", False),
        ("fence.proxy.async;", False), ("fence.proxy.async.global;", False), ("", False),
    ],
)  # fmt: skip
def test_only_a_fence_of_the_gpu_acquires_what_was_read(fence: str, enough: bool) -> None:
    relaxed = "TAKE: " + SPIN.format(count=3).replace("acquire", "relaxed")
    found = run(COUNTER, {"take": f"{relaxed} {fence}"}, STRICT)[1]
    assert found == (set() if enough else {("global-race", 6, 2)})


def test_the_report_names_both_clusters_and_the_thread() -> None:
    from mla_var3.emulator.launcher import launch

    arrays = [np.zeros(n, np.uint32) for n in COUNTER.words]
    done = launch(COUNTER.text({"meet": "bar.warp.sync -1;"}), arrays, 4, 64)
    said = [str(d) for d in done.diagnostics]
    assert any(
        "global byte 128 of (192,) uint32 is written by cluster 0" in text
        and "thread 32 (warp 1, lane 0) of cluster 3 reads it" in text
        for text in said
    ), said


#: One CTA writes, by threads, what another loads by TMA after a flag.
LOADED = Snippet(
    {
        "start": "mov.u32 %r2, a; mov.u32 %r3, bars; "
        + WHO
        + " setp.eq.u32 %p4, %r9, 1; @%p4 bra TAKE;",
        "write": "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r1;",
        "fence": "fence.proxy.async.global;",
        "count": "bar.sync 0; @!%p2 red.release.gpu.global.add.u32 [%rd1], 1; bra END;",
        "take": "TAKE: @%p2 bra END; mbarrier.init.shared.b64 [%r3], 1; fence.mbarrier_init.release.cluster; "
        + SPIN.format(count=1),
        "late": "",
        "load": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; {COPY} [%r2], [%rd0], 256, [%r3];",
        "wait": wait("%r3"),
        "read": "ld.shared.u32 %r5, [%r2+252]; st.global.u32 [%rd2], %r5;",
        "end": "END:",
    },
    words=(64, 1, 1),
    grid=2,
)


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
def test_a_fence_for_another_cluster_s_load(model) -> None:
    (_, _, out), found = run(LOADED, model=model)
    assert found == set()
    assert out[0] == 63
    _, found = run(LOADED, {"fence": ""}, model)
    assert found == {("missing-proxy-fence", 7, 2)}


def test_a_fence_by_the_cluster_that_loads() -> None:
    late = {"fence": "", "late": "fence.proxy.async.global;"}
    assert run(LOADED, late)[1] == set()  # By assumption: reader_fences.
    assert run(LOADED, late, STRICT)[1] == {("missing-proxy-fence", 7, 2)}


@given(st.integers(0, 15), st.integers(1, 40))
def test_an_allocation_begins_at_a_multiple_of_sixteen(off: int, size: int) -> None:
    room = np.arange(80, dtype=np.uint8)
    start = -room.ctypes.data % 16 + off
    region = Region(room.ctypes.data + start, size, "x")
    assert region.low % 16 == 0
    assert region.base - region.low == off
    assert region.data[off:].tolist() == room[start : start + size].tolist()
    assert (region.end, region.length) == (region.base + size, off + size)


def test_an_allocation_of_bytes_that_are_given() -> None:
    region = Region(1 << 20 | 3, 5, "x", True, b"abcde")
    assert region.data.tobytes() == b"\0\0\0abcde"
    assert region.known is not None
    assert not region.known.any()
    assert Region(1 << 20, 4, "x", content=b"abcd").views[4].tolist() == [0x64636261]


@pytest.mark.parametrize(
    ("width", "op", "register"), [(1, "u8", "%h1"), (2, "u16", "%h1"), (4, "u32", "%r5")]
)
def test_neighbors_of_each_width_do_not_race(width: int, op: str, register: str) -> None:
    """Two CTAs write every other element; where both write the first they race."""
    kernel = Snippet(
        {
            "who": "mov.u32 %r9, %ctaid.x; mad.lo.u32 %r4, %r1, 2, %r9; mov.u32 %r5, 3; mov.u16 %h1, 3;",
            "where": f"mul.wide.u32 %rd3, %r4, {width}; add.u64 %rd4, %rd0, %rd3;",
            "write": f"st.global.{op} [%rd4], {register};",
        },
        words=(128,),
        grid=2,
    )
    _, done = kernel.run()
    assert done.diagnostics == []
    _, done = kernel.run(
        {"where": f"mul.wide.u32 %rd3, %r1, {2 * width}; add.u64 %rd4, %rd0, %rd3;"}
    )
    assert [d.kind for d in done.diagnostics] == ["global-race"]
    assert "global byte 0 of" in done.diagnostics[0].message


def test_a_vector_that_is_too_short_knows_nothing_of_a_chain() -> None:
    assert _at(np.array([5, 6]), np.array([0, 1, 2, 7])).tolist() == [5, 6, 0, 0]


# Allocations that begin anywhere -----------------------------------------------------------------
OFF = Snippet(
    {
        "who": "mov.u32 %r9, %ctaid.x; mul.wide.u32 %rd3, %r9, 0; add.u64 %rd4, %rd0, %rd3;",
        "read": "ld.global.u32 %r4, [%rd4+20];",
        "write": "st.global.u32 [%rd4+8], %r9;",
    },
    words=(16,),
    block=32,
    grid=2,
)


@pytest.mark.parametrize("off", [0, 4, 12])
def test_places_are_counted_from_where_an_allocation_begins(off: int) -> None:
    room = np.zeros(128, np.uint8)
    base = room.ctypes.data + -room.ctypes.data % 16 + off
    region = Region(base, 64, "mine", unwritten=True)
    done = launch(OFF.text(), [base], 2, 32, regions=[region])
    assert {d.kind: d.message for d in done.diagnostics if d.kind != "race"} == {
        "uninitialized-read": "global read of 4 bytes, 20 bytes into mine, that nothing has written",
        "global-race": "global byte 8 of mine is written by cluster 0, and thread 0 (warp 0, lane 0) of cluster 1 writes it",
    }


#: Lane t takes word t of the array t mod 4; the fourth does not exist.
MIXED = Snippet(
    {
        "choose": "and.b32 %r4, %r1, 3; setp.eq.u32 %p1, %r4, 1; setp.eq.u32 %p2, %r4, 2; setp.eq.u32 %p3, %r4, 3; mul.wide.u32 %rd4, %r1, 4;",
        "address": "mov.b64 %rd5, %rd0; @%p1 mov.b64 %rd5, %rd1; @%p2 mov.b64 %rd5, %rd2; @%p3 mov.b64 %rd5, 4096; add.u64 %rd5, %rd5, %rd4;",
        "read": "ld.global.u32 %r5, [%rd5];",
        "add": "add.u32 %r5, %r5, 1000000; add.u64 %rd6, %rd3, %rd4; st.global.u32 [%rd6], %r5;",
        "write": "add.u32 %r6, %r1, 7; st.global.u32 [%rd5], %r6;",
        "count": "atom.global.add.u32 %r7, [%rd5], 5; add.u64 %rd6, %rd6, 128; st.global.u32 [%rd6], %r7;",
    },
    words=(40, 33, 64, 64),
    block=32,
)


def test_lanes_go_to_allocations_of_their_own() -> None:
    arrays, done = MIXED.run()
    before = [np.arange(n) + 1000 * i for i, n in enumerate(MIXED.words)]
    assert [(d.kind, d.at.line) for d in done.diagnostics] == [
        ("out-of-bounds", MIXED.line(step)) for step in ("read", "write", "count")
    ]
    assert all("thread 3 (warp 0, lane 3)" in d.who for d in done.diagnostics)
    assert all("bytes at 0x100c" in d.message for d in done.diagnostics)
    for t in range(32):
        which = t % 4
        if which < 3:
            assert arrays[3][t] == before[which][t] + 1000000
            assert arrays[which][t] == t + 7 + 5
            assert arrays[3][32 + t] == t + 7
        else:
            assert arrays[3][t] == 1000000
    for which in range(3):
        own = np.arange(len(before[which])) % 4 == which
        own[32:] = False
        assert (arrays[which][~own] == before[which][~own]).all()


@pytest.mark.parametrize("more", [0, 1])
def test_an_allocation_that_is_too_large_is_not_looked_at(more: int) -> None:
    """Its first page alone is there: nobody looks at the others."""
    room = np.zeros(4096, np.uint8)
    region = Region(room.ctypes.data, 64, "large", content=bytes(64))
    region.size = MOST_SHADOWED + more
    assert (MOST_SHADOWED, region.length) == (1 << 28, 64)
    done = launch(OFF.text({"read": ""}), [region.base], 2, 32, regions=[region])
    assert [d.kind for d in done.diagnostics] == ["global-race"][more:]


@given(
    st.lists(st.tuples(st.integers(1, 3), st.sets(st.integers(0, 9), min_size=1), st.booleans()))
)
def test_the_last_reader_of_each_granule_is_kept(
    reads: list[tuple[int, set[int], bool]],
) -> None:
    """Of several clusters no one is; whether they are sorted in between makes no difference."""
    touched = Touched(10, 2)
    wanted: dict[int, tuple[int, int]] = {}
    for number, (cluster, granules, sort) in enumerate(reads, 1):
        g = np.array(sorted(granules))
        touched.read(g, Access(None, cluster, 0, 0, number, 0, 5, False))  # type: ignore[arg-type]
        for q in granules:
            before = wanted.get(q, (cluster, 0))[0]
            wanted[q] = (cluster if before == cluster else MANY, number)
        if sort:
            touched.settle()
    touched.settle()
    assert touched.logged == 0
    if touched.reads is None:
        assert not reads
        return
    found = {
        int(q): (int(touched.reads.cluster[q]), int(touched.reads.stamp[q]) >> 30)
        for q in np.flatnonzero(touched.reads.cluster)
    }
    assert found == wanted
    assert touched.written().tolist() == []
