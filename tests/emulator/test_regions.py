# ruff: noqa: E501  # A PTX statement stays on its line.
"""Who touched global memory, across clusters: flags that tell of several writers, and of units."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator.options import DEFAULT, STRICT, Options
from mla_var3.emulator.regions import Region, _at
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


def test_the_report_names_both_clusters_and_the_thread() -> None:
    from mla_var3.emulator.launcher import launch

    arrays = [np.zeros(n, np.uint32) for n in COUNTER.words]
    done = launch(COUNTER.text({"meet": ""}), arrays, 4, 64)
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
