# ruff: noqa: E501  # A PTX statement stays on its line.
"""Counts against what the kernels are known to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from mla_var3.emulator.count import Line, bank_conflicts, sectors
from mla_var3.emulator.options import Options
from tests.emulator.events import Snippet
from tests.emulator.kernels import GEMM, MIRROR, PRODUCT, RING
from tests.emulator.snippets import run

LANE = np.arange(32)


def test_bytes_and_flops_of_a_product() -> None:
    _, done = PRODUCT.run()
    c = done.counts
    assert c.tensor_flops == 2 * 32 * 8 * 64
    assert c.total_bytes("global read") == 2 * (32 * 64 + 8 * 64)
    assert c.total_bytes("global write") == 4 * 32 * 8


def test_bytes_and_flops_of_wgmma() -> None:
    _, done = GEMM.run()
    c = done.counts
    assert c.tensor_flops == 2 * 64 * 64 * 256
    assert c.total_bytes("global read") == 2 * 2 * 64 * 256
    assert c.total_bytes("global write") == 2 * 64 * 64


def test_lines_carry_what_happened_there() -> None:
    _, done = GEMM.run()
    lines = done.counts.lines()
    load = lines[("kernel.py", GEMM.line("load_a"))]
    assert load.tma_boxes == 4
    assert load.bytes["global read"] == 2 * 64 * 256
    assert lines[("kernel.py", GEMM.line("wgmma"))].instructions["wgmma"] == 4 * 4
    assert lines[("kernel.py", GEMM.line("wait_empty"))].waits > 0


def test_instructions_are_per_warp() -> None:
    _, done = MIRROR.run()
    line = done.counts.lines()[("kernel.py", MIRROR.line("fetch"))]
    assert line.instructions == {"ld": 3 * 4}
    assert line.bytes == {"global read": 3 * 512}


def test_guards_keep_threads_from_counting() -> None:
    _, done = RING.run()
    arrive = done.counts.lines()[("kernel.py", RING.line("release"))]
    assert arrive.instructions["mbarrier"] == 6 * 4


def conflicts(at: NDArray[np.int64], size: int, lane: NDArray[np.int64] = LANE) -> int:
    """Those of one warp."""
    return bank_conflicts(at, size, np.zeros_like(lane), lane)


def test_bank_conflicts() -> None:
    assert conflicts(4 * LANE, 4) == 0
    assert conflicts(8 * LANE, 4) == 1
    assert conflicts(128 * LANE, 4) == 31
    assert conflicts(0 * LANE, 4) == 0
    assert conflicts(16 * LANE, 16) == 0
    assert conflicts(128 * LANE, 16) == 28


@given(st.integers(2, 6), st.sampled_from([4, 8, 16]), st.data())
def test_warps_do_not_conflict_with_each_other(warps: int, size: int, data: st.DataObject) -> None:
    """A guard that leaves a few lanes of each warp does not make one warp of them."""
    chosen = sorted(data.draw(st.sets(st.integers(0, 31), min_size=1, max_size=31)))
    lane = np.array(chosen)
    at = np.array(data.draw(st.lists(st.integers(0, 63), min_size=len(lane), max_size=len(lane))))
    one = conflicts(at * size, size, lane)
    warp = np.repeat(np.arange(warps), len(lane))
    assert bank_conflicts(np.tile(at * size, warps), size, warp, np.tile(lane, warps)) == (
        one * warps
    )


def test_sectors() -> None:
    lane, warp = LANE.astype(np.uint64), np.zeros(32, np.int64)
    assert sectors(lane * np.uint64(4), 4, warp) == (4, 4)
    assert sectors(lane * np.uint64(128), 4, warp) == (32, 4)


def test_sectors_are_of_each_warp() -> None:
    """Four warps of eight lanes each that store eight neighboring words: a sector per warp."""
    row, warp = np.arange(8), np.repeat(np.arange(4), 8)
    address = np.tile(row * 4, 4).astype(np.uint64)
    assert sectors(address, 4, warp) == (4, 4)


def test_full_counts_name_the_conflicting_line() -> None:
    _, done = MIRROR.run(options=Options(counting="full"))
    assert done.counts.as_json()["bank_conflicts"] == 0
    # An array off a sector's start takes one more per warp.
    assert 2 * 3 * 16 <= done.counts.as_json()["sectors"] <= 2 * 3 * 20


@given(st.sampled_from([1, 2, 4, 8, 16]), st.data())
def test_conflicts_and_sectors_are_those_of_each_warp(size: int, data: st.DataObject) -> None:
    lanes = np.array(data.draw(st.lists(st.integers(0, 63), min_size=1, max_size=40, unique=True)))
    pieces = data.draw(st.lists(st.integers(0, 600), min_size=len(lanes), max_size=len(lanes)))
    warp, lane, at = lanes // 32, lanes % 32, np.array(pieces) * size
    waves, seen, ideal = 0, 0, 0
    for w in set(warp.tolist()):
        of_warp = [(int(a), int(i)) for a, i, v in zip(at, lane, warp, strict=True) if v == w]
        served: dict[int, set[int]] = {}
        for a, i in of_warp:
            group = served.setdefault(i // (32 if size <= 4 else 128 // size), set())
            group |= {a // 4 + j for j in range(max(1, size // 4))}
        for words in served.values():
            banks = [sum(word % 32 == bank for word in words) for bank in range(32)]
            waves += max(banks) - 1
        seen += len({s for a, _ in of_warp for s in (a // 32, (a + size - 1) // 32)})
        ideal += -(-len(of_warp) * size // 32)
    assert bank_conflicts(at, size, warp, lane) == waves
    assert sectors(at.astype(np.uint64), size, warp) == (seen, ideal)


@pytest.mark.parametrize(
    ("op", "flops"),
    [
        ("add.f32 %o, %i0, %i1", 1), ("sub.f32 %o, %i0, %i1", 1), ("mul.f32 %o, %i0, %i1", 1),
        ("fma.rn.f32 %o, %i0, %i1, %i0", 2), ("mad.rn.f32 %o, %i0, %i1, %i0", 2),
        ("div.rn.f32 %o, %i0, %i1", 1), ("sqrt.rn.f32 %o, %i0", 1), ("rcp.rn.f32 %o, %i0", 1),
        ("ex2.approx.f32 %o, %i0", 1), ("rsqrt.approx.f32 %o, %i0", 1),
        ("lg2.approx.f32 %o, %i0", 1), ("sin.approx.f32 %o, %i0", 1),
        ("cos.approx.f32 %o, %i0", 1), ("tanh.approx.f32 %o, %i0", 1),
        ("add.f16x2 %o, %i0, %i1", 2), ("fma.rn.bf16x2 %o, %i0, %i1, %i0", 4),
        ("fma.rn.f16x2 %o, %i0, %i1, %i0", 4), ("add.s32 %o, %i0, %i1", 0),
        ("min.f32 %o, %i0, %i1", 0), ("mov.b32 %o, %i0", 0),
        ("add.f64 %rd1, %rd0, %rd0; mov.b32 %o, %i0", 1),
        ("add.f16 %h1, %h0, %h0; mov.b32 %o, %i0", 1),
        ("add.rn.bf16 %h1, %h0, %h0; mov.b32 %o, %i0", 1),
        ("add.rn.f32x2 %rd1, %rd0, %rd0; mov.b32 %o, %i0", 2),
    ],
)  # fmt: skip
def test_floating_point_operations_of_a_thread(op: str, flops: int) -> None:
    inputs = [np.ones(40, np.float32).view(np.uint32) for _ in range(2)]
    assert (
        run(f"mov.b64 %rd0, 0; mov.b16 %h0, 0; {op};", inputs, np.uint32)[1].counts.total_flops
        == 40 * flops
    )


def test_what_was_counted_is_counted_once() -> None:
    counts = MIRROR.run()[1].counts
    before = counts.plain()
    before = {k: v.copy() if hasattr(v, "copy") else v for k, v in before.items()}
    again = counts.plain()
    assert (again["warps"] == before["warps"]).all()
    assert (again["threads"] == before["threads"]).all()
    assert int(before["warps"].sum()) > 0


COUNTED = Snippet(
    {
        "start": "shl.b32 %r4, %r1, 3; mov.u32 %r2, a; mad.lo.u32 %r5, %r1, 32, %r2; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; mov.u32 %r6, 0; setp.lt.u32 %p1, %r1, 40;",
        "load": "L: ld.global.u32 %r7, [%rd4];",
        "put": "st.shared.u32 [%r5], %r7;",
        "guarded": "@%p1 ld.shared.u32 %r8, [%r5];",
        "float": "fma.rn.f32 %f1, %f1, %f1, %f1;",
        "twice": "add.u32 %r6, %r6, 1; setp.lt.u32 %p2, %r6, 2; @%p2 bra L;",
    },
    words=(128,),
    shared=".shared .align 128 .b8 a[2048];",
    grid=3,
)


@pytest.mark.parametrize("jobs", [1, 2])
def test_all_counts_of_a_line(jobs: int) -> None:
    """Two warps of three CTAs go twice over each line."""
    (array,), done = COUNTED.run(options=Options(counting="full", jobs=jobs))
    first = array.ctypes.data % 32
    sectors = (first + 251) // 32 + 1  # Every second word of 64.
    lines = {n: line for (_, n), line in done.counts.lines().items()}
    runs = 2 * 2 * 3
    assert lines[COUNTED.line("load")] == Line(
        {"ld": runs},
        {"global read": 64 * 4 * 2 * 3},
        sectors=sectors * runs,
        ideal_sectors=4 * runs,
    )
    # Words 32 bytes apart: eight lanes to a bank.
    assert lines[COUNTED.line("put")] == Line(
        {"st": runs}, {"shared write": 64 * 4 * 2 * 3}, bank_conflicts=7 * runs
    )
    # All lanes of the first warp, and eight of the second.
    assert lines[COUNTED.line("guarded")] == Line(
        {"ld": runs}, {"shared read": 40 * 4 * 2 * 3}, bank_conflicts=(7 + 1) * 2 * 3
    )
    assert lines[COUNTED.line("float")] == Line({"fma": runs}, {}, flops=2 * 64 * 2 * 3)
    assert lines[COUNTED.line("twice")].instructions == {
        "add": runs,
        "setp": runs,
        "bra": runs,
        "ret": runs // 2,
    }
    taken, passed = done.counts.taken, done.counts.passed
    assert (taken.sum(), passed.sum()) == (64 * 3, 64 * 3)
    whole = done.counts.as_json()
    assert whole["flops"] == 2 * 64 * 2 * 3
    assert whole["tensor_flops"] == 0
    assert (whole["bank_conflicts"], whole["sectors"]) == (7 * runs + 48, sectors * runs)
    assert whole["bytes"] == {
        "global read": 1536, "shared read": 960, "shared write": 1536,
    }  # fmt: skip
    assert done.counts.instructions["ld"] == 2 * runs + runs // 2  # And its parameter.
    assert done.counts.instructions["fma"] == runs
    assert done.counts.total_flops == done.counts.scalar_flops().sum() == 2 * 64 * 2 * 3


def test_threads_that_a_guard_keeps_off_are_not_counted() -> None:
    kernel = Snippet({
        "who": "setp.lt.u32 %p1, %r1, 10;",
        "some": "@%p1 add.u32 %r2, %r1, 1;",
        "all": "add.u32 %r3, %r1, 1;",
    })  # fmt: skip
    _, done = kernel.run(options=Options(counting="full"))
    done.counts.settle()
    threads = {
        i.text: int(done.counts.threads[i.pc]) for i in done.counts.program.kernel.instructions
    }
    assert threads["@%p1 add.u32 %r2, %r1, 1"] == 10
    assert threads["add.u32 %r3, %r1, 1"] == 64


@pytest.mark.parametrize(("between", "waited"), [("", 1), ("bar.sync 0;", 0)])
def test_a_wait_asked_once_says_whether_its_first_answer_was_no(between: str, waited: int) -> None:
    body = f""".shared .align 8 .b8 bar[8]; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, 0; mov.u32 %o, %t;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r3], 1; READY: bar.sync 0;
    @%p1 bra ARRIVED; mbarrier.arrive.shared.b64 %rd0, [%r3]; ARRIVED: {between}
    WAIT: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; @!%p2 bra WAIT;"""
    _, done = run(body, [np.zeros(64, np.uint32)], np.uint32)
    (branch,) = done.counts.program.retries.values()
    assert done.counts.waited[branch] == waited
    assert (done.counts.taken[branch], done.counts.passed[branch]) == (0, 64)
