# ruff: noqa: E501  # A PTX statement stays on its line.
"""Instructions at which threads stop: guards, branches and barriers, for any set of lanes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import Options
from tests.emulator.events import INIT, Snippet
from tests.emulator.snippets import run

LANES = np.arange(96)


def result(body: str, chosen: Any = (), seed: int | None = None) -> NDArray[np.uint32]:
    """``%o`` of 96 threads, where ``%p1`` holds for those that are chosen."""
    flags = np.zeros(96, np.uint32)
    flags[sorted(chosen)] = 1
    text = f"setp.ne.u32 %p1, %i0, 0; mov.u32 %o, 5; {body}"
    out, done = run(text, [flags], np.uint32, options=Options(seed=seed))
    assert done.diagnostics == []
    return np.asarray(out)


CHOSEN = st.sets(st.integers(0, 95)) | st.sampled_from(
    [set(), {0}, {95}, set(range(32)), set(range(96)), set(range(31)), set(range(64, 96))]
)
SEEDS = st.sampled_from([None, 1])


@settings(max_examples=25)
@given(CHOSEN, st.booleans(), SEEDS)
def test_those_whom_a_guard_lets_through_do_it_and_all_go_on(
    chosen: set[int], negated: bool, seed: int | None
) -> None:
    """A branch through a table is guarded as any instruction; behind it all meet again."""
    guard = "@!%p1" if negated else "@%p1"
    body = f"mov.u32 %r2, 1; {guard} brx.idx %r2, T; add.u32 %o, %o, 10; bra MEET; X: add.u32 %o, %o, 100; bra MEET; Y: add.u32 %o, %o, 1000; MEET: bar.sync 0; add.u32 %o, %o, 1;"
    out = result("T: .branchtargets X, Y; " + body, chosen, seed)
    through = np.isin(LANES, sorted(chosen)) ^ negated
    assert out.tolist() == np.where(through, 1006, 16).tolist()


@settings(max_examples=25)
@given(CHOSEN, st.booleans(), SEEDS)
def test_those_who_branch_go_there_and_the_others_on(
    chosen: set[int], negated: bool, seed: int | None
) -> None:
    guard = "@!%p1" if negated else "@%p1"
    body = f"{guard} bra X; add.u32 %o, %o, 10; bra MEET; X: add.u32 %o, %o, 100; MEET: bar.sync 0; add.u32 %o, %o, 1;"
    out = result(body, chosen, seed)
    taken = np.isin(LANES, sorted(chosen)) ^ negated
    assert out.tolist() == np.where(taken, 106, 16).tolist()


@settings(max_examples=15)
@given(CHOSEN, SEEDS)
def test_how_many_threads_took_a_branch_is_counted(chosen: set[int], seed: int | None) -> None:
    flags = np.zeros(96, np.uint32)
    flags[sorted(chosen)] = 1
    for guard, taken in (("@%p1", len(chosen)), ("@!%p1", 96 - len(chosen))):
        text = f"setp.ne.u32 %p1, %i0, 0; mov.u32 %o, 0; {guard} bra X; add.u32 %o, %o, 2; X: add.u32 %o, %o, 1;"
        _, done = run(text, [flags], np.uint32, options=Options(seed=seed))
        branch = next(
            i.pc for i in done.counts.program.kernel.instructions if i.guard and i.parts[0] == "bra"
        )
        assert (done.counts.taken[branch], done.counts.passed[branch]) == (taken, 96 - taken)


@settings(max_examples=15)
@given(CHOSEN.filter(lambda chosen: len(chosen) < 96), st.sampled_from(["ret", "exit"]), SEEDS)
def test_who_ends_early_is_not_waited_for(chosen: set[int], end: str, seed: int | None) -> None:
    """Whole warps or single lanes: the barrier of all is of those that are left."""
    kernel = Snippet(
        {
            "who": "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; ld.global.u32 %r2, [%rd4]; setp.ne.u32 %p1, %r2, 0;",
            "end": f"@%p1 {end};",
            "meet": "bar.sync 0;",
            "give": "add.u64 %rd5, %rd1, %rd3; mov.u32 %r3, 77; st.global.u32 [%rd5], %r3;",
        },
        words=(96, 96),
        block=96,
    )
    flags, out = np.zeros(96, np.uint32), np.zeros(96, np.uint32)
    flags[sorted(chosen)] = 1
    done = launch(kernel.text(), [flags, out], 1, 96, options=Options(seed=seed))
    assert done.diagnostics == []
    assert out.tolist() == np.where(flags, 0, 77).tolist()


VOTES = {"popc": lambda t: int(t.sum()), "and": lambda t: t.all(), "or": lambda t: t.any()}


@settings(max_examples=20)
@given(
    st.lists(
        st.tuples(st.sampled_from(sorted(VOTES)), st.booleans(), st.integers(0, 15)),
        min_size=1,
        max_size=3,
    ),
    CHOSEN,
    SEEDS,
)
def test_votes_one_after_the_other_are_each_their_own(
    rounds: list[tuple[str, bool, int]], chosen: set[int], seed: int | None
) -> None:
    """Also at one barrier: what was voted before is not counted again."""
    test = np.isin(LANES, sorted(chosen))
    body, wanted = "", 5
    for name, negated, number in rounds:
        vote = f"{'!' if negated else ''}%p1"
        if name == "popc":
            body += f"bar.red.popc.u32 %r2, {number}, {vote}; mad.lo.u32 %o, %o, 7, %r2;"
        else:
            body += f"bar.red.{name}.pred %p2, {number}, {vote}; selp.u32 %r2, 3, 1, %p2; mad.lo.u32 %o, %o, 7, %r2;"
        said = VOTES[name](~test if negated else test)
        wanted = 7 * wanted + (said if name == "popc" else 3 if said else 1)
    assert set(result(body, chosen, seed).tolist()) == {wanted}


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("threads", [32, 64, 96])
@pytest.mark.parametrize("warps", [2, 3, 4, 6])
def test_a_barrier_takes_as_many_warps_as_it_says(
    warps: int, threads: int, seed: int | None
) -> None:
    """Those that come together for one that takes fewer are let in one part after the other."""
    kernel = Snippet({"meet": f"bar.sync 2, {threads};", "give": ""}, words=(1,), block=32 * warps)
    _, done = kernel.run(options=Options(seed=seed))
    left = 32 * warps % threads
    found = [d for d in done.diagnostics if d.kind == "deadlock"]
    assert bool(found) is (left > 0)
    for d in found:
        assert f"named barrier 2, {left} of {threads} threads there" in d.message


@pytest.mark.parametrize("seed", [None, 1])
def test_warps_that_do_not_stop_are_counted_with_those_that_do(seed: int | None) -> None:
    """Two arrive and go on, one stops for them and for itself, in each of two CTAs."""
    kernel = Snippet(
        {
            "who": "setp.lt.u32 %p1, %r1, 64; mov.u32 %r4, %cluster_ctarank; add.u32 %r4, %r4, 3; mov.u32 %r2, a; mad.lo.u32 %r3, %r1, 4, %r2; mov.u32 %r7, 0;",
            "put": "@%p1 st.shared.u32 [%r3], %r1;",
            "arrive": "@%p1 bar.arrive %r4, 96;",
            "sync": "@!%p1 bar.sync %r4, 96;",
            "take": "@!%p1 ld.shared.u32 %r6, [%r3+-128]; @!%p1 ld.shared.u32 %r7, [%r3+-256]; @!%p1 add.u32 %r7, %r7, %r6;",
            "give": "mov.u32 %r8, %ctaid.x; mad.lo.u32 %r8, %r8, 96, %r1; mul.wide.u32 %rd3, %r8, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r7;",
        },
        words=(192,),
        block=96,
        grid=2,
        cluster=2,
    )
    (out,), done = kernel.run(options=Options(seed=seed))
    assert done.diagnostics == []
    wanted = [0] * 64 + [2 * t + 32 for t in range(32)]
    assert out.tolist() == wanted * 2
    _, done = kernel.run({"arrive": "@%p1 bar.arrive %r4, 64;"}, options=Options(seed=seed))
    assert "barrier-mismatch" in {d.kind for d in done.diagnostics}


@pytest.mark.parametrize("arrivals", [0, 1])
def test_every_time_that_warps_find_a_barrier_not_ready_is_counted(arrivals: int) -> None:
    """Both warps ask before the last of two arrivals is there, or find it there."""
    kernel = Snippet(
        {
            "init": INIT,
            "early": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3]; bar.sync 0;" if arrivals else "",
            "ask": "mbarrier.test_wait.parity.shared.b64 %p5, [%r3], 0;",
            "late": "" if arrivals else "bar.sync 0; @!%p1 mbarrier.arrive.shared.b64 _, [%r3];",
        },
        words=(1,),
    )
    _, done = kernel.run()
    pc = next(i.pc for i in done.counts.program.kernel.instructions if "test_wait" in i.op)
    assert int(done.counts.waits[pc]) == (0 if arrivals else 2)
    assert int(done.counts.waits.sum()) == int(done.counts.waits[pc])
