"""Which threads run together, and which of them next."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mla_var3.emulator.fragments import Fragment
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from tests.emulator.events import Snippet
from tests.emulator.machines import machine


@pytest.mark.parametrize(
    ("ids", "contiguous", "full", "group"),
    [
        (np.arange(0, 256), True, True, True),
        (np.arange(0, 128), True, True, True),
        (np.arange(32, 160), True, True, False),
        (np.arange(0, 64), True, True, False),
        (np.r_[0:32, 64:96], False, True, False),
        (np.arange(0, 31), True, False, False),
        (np.arange(1, 129), True, False, False),
        (np.arange(5, 6), True, False, False),
        (np.r_[0:128, 256:384], False, True, True),
        (np.r_[0:64, 128:192], False, True, False),
        (np.r_[0:127, 128], False, False, False),
    ],
)
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


@pytest.mark.parametrize(
    ("wait", "merges"), [(None, True), ("converge", True), ("named", False), ("mbarrier", False)]
)
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


def test_threads_that_run_off_the_end_have_ended() -> None:
    out = np.zeros(64, np.uint32)
    text = (
        Snippet(
            {
                "skip": "shl.b32 %r2, %r1, 2; cvt.u64.u32 %rd3, %r2; add.u64 %rd4, %rd0, %rd3; "
                "setp.lt.u32 %p1, %r1, 20; @%p1 bra END; st.global.u32 [%rd4], %r1; END:"
            }
        )
        .text()
        .replace("\nret;\n", "\n")
    )
    assert "ret;" not in text
    done = launch(text, [out, out], 1, 64)
    assert done.diagnostics == []
    assert out.tolist() == [0] * 20 + list(range(20, 64))


def test_neighbors_run_the_code_that_is_made_for_slices() -> None:
    """Statements alike on rows that follow each other are one there."""
    unrolled = " ".join(f"add.f32 %f{i}, %f{i}, %f{8 + i};" for i in range(8))
    m = machine((64, 1, 1), snippet=Snippet({"load": "cvt.rn.f32.u32 %f20, %r1;", "add": unrolled}))
    slices, others = (m.scheduler._function(0, whole) for whole in (True, False))
    assert "bank_rf" in slices.__code__.co_names
    assert "bank_rf" in others.__code__.co_names
    assert m.scheduler._function(0, True) is slices
    assert len(m.functions) == 2


#: Lane 0 of the warps counts, two warps at a time: not warp 1, then not warp 2.
TURNS = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 o)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %d<4>;
mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.u32 %r3, 0; mov.u32 %r4, 1;
AGAIN:
setp.eq.u32 %p0, %r1, %r4;
@%p0 bra NEXT;
setp.ne.u32 %p1, %r2, 0;
@%p1 bra NEXT;
add.u32 %r3, %r3, %r4;
NEXT:
add.u32 %r4, %r4, 1;
setp.lt.u32 %p2, %r4, 3;
@%p2 bra AGAIN;
ld.param.u64 %d0, [o]; mul.wide.u32 %d1, %r0, 4; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], %r3;
ret;
}
"""


@pytest.mark.parametrize("seed", [None, 1])
def test_other_warps_at_a_short_branch_are_other_threads(seed: int | None) -> None:
    """Of two fragments with one first thread and as many, each runs its own lanes."""
    out = np.zeros(96, np.uint32)
    assert launch(TURNS, [out], 1, 96, options=Options(seed=seed)).diagnostics == []
    assert out[::32].tolist() == [3, 2, 1]
    assert out.sum() == 6


#: Two of the four warps of a warpgroup come to its product; the others end, or wait elsewhere.
HALF = """.version 8.6
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .pred %p<8>; .reg .b32 %r<16>; .reg .f32 %f<8>; .reg .b64 %rd<4>;
mov.u32 %r0, %tid.x; setp.ge.u32 %p0, %r0, 64; mov.b64 %rd1, 0; mov.b32 %r1, 0;
@%p0 bra END;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16
    {%f0, %f1, %f2, %f3}, {%r1, %r1, %r1, %r1}, %rd1, 0, 1, 1, 0;
END: LAST
ret;
}
"""


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize(("last", "waiting"), [("", [0]), ("bar.sync 0;", [0, 2])])
def test_a_part_of_a_warpgroup_at_its_product_is_a_deadlock(
    last: str, waiting: list[int], seed: int | None
) -> None:
    done = launch(HALF.replace("LAST", last), [], 1, 128, options=Options(seed=seed))
    assert [d.kind for d in done.diagnostics] == ["deadlock"] * len(waiting)
    for d, warp in zip(done.diagnostics, waiting, strict=True):
        assert f"warp {warp} and 1 more (64 threads) can never go on" in d.message


#: The first warp looks at a word of shared memory until the second, which stands behind, writes it.
SPINS = Snippet(
    {
        "start": "mov.u32 %r2, a; mov.u32 %r4, 0; setp.ge.u32 %p1, %r1, 32; @%p1 bra LAST;",
        "look": "LOOK: ld.volatile.shared.u32 %r5, [%r2]; setp.eq.u32 %p2, %r5, 7; @!%p2 bra LOOK;",
        "seen": "st.global.u32 [%rd0], %r5; bra END;",
        "last": "LAST: mov.u32 %r6, 7; st.volatile.shared.u32 [%r2], %r6;",
        "end": "END:",
    },
    words=(1,),
)


@pytest.mark.parametrize("seed", [None, 1])
def test_who_looks_for_ever_lets_those_behind_run(seed: int | None) -> None:
    """The lowest instruction goes first, but not without an end."""
    (out,), done = SPINS.run(options=Options(seed=seed, checks=False, max_steps=100_000))
    assert out.tolist() == [7]
    assert done.diagnostics == []


@pytest.mark.parametrize("quantum", [1, 3, 1000])
def test_a_turn_says_whether_the_cluster_has_ended(quantum: int) -> None:
    m = machine(snippet=Snippet({"all": "bar.sync 0; bar.sync 0; bar.sync 0;"}))
    said = []
    while m.scheduler.fragments:
        said.append(m.scheduler.run(quantum))
    assert said == [False] * (len(said) - 1) + [True]


def test_the_order_of_warpgroups_is_drawn_anew_now_and_then() -> None:
    """Every twentieth choice, and the same for the same seed."""
    orders = []
    for _ in range(2):
        m = machine((512, 1, 1), seed=5)
        told = []
        for _ in range(61):
            m.scheduler._next()
            told.append(tuple(m.scheduler.order))
        orders.append(told)
    assert orders[0] == orders[1]
    for i, (before, after) in enumerate(itertools.pairwise(orders[0]), 1):
        assert sorted(after) == [0, 1, 2, 3]
        if i % 20:
            assert before == after
    assert len({orders[0][i] for i in (0, 20, 40, 60)}) > 1
