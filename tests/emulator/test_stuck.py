# ruff: noqa: E501  # A PTX statement stays on its line.
"""What is said of threads that ask for a word which nobody writes."""

from __future__ import annotations

import pytest

from mla_var3.emulator import stuck
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError
from tests.emulator.events import INIT, Snippet, wait
from tests.emulator.machines import machine


@pytest.mark.parametrize("pc", [-1, 0, 1, 3])
def test_who_asks_for_a_word_is_named_with_its_instruction(pc: int) -> None:
    """Whatever instruction it is, also the first; who asks for none is not."""
    m = machine((64, 1, 1), snippet=Snippet({"all": "add.u32 %r2, %r1, 1; add.u32 %r3, %r1, 2;"}))
    (whole,) = m.scheduler.fragments
    _, second = m.scheduler.split(whole, [(whole.ids[:32], 2), (whole.ids[32:], 2)])
    second.asked = pc
    stuck.waits_for_words(m.scheduler, "all others have ended")
    assert m.scheduler.stuck
    found = m.reporter.diagnostics
    assert [(d.kind, d.at.pc, d.who) for d in found] == (
        [("deadlock", pc, "warp 1")] if pc >= 0 else []
    )
    for one in found:
        assert "(32 threads) asks for a word" in one.message
        assert one.message.endswith("all others have ended")


@pytest.mark.parametrize("seed", [None, 1])
def test_a_deadlock_is_told_where_each_waits(seed: int | None) -> None:
    """At a named barrier that lacks threads, at an mbarrier and at the barrier of the cluster."""
    kernel = Snippet(
        {
            "init": INIT
            + " shr.u32 %r4, %r1, 5; setp.eq.u32 %p2, %r4, 1; setp.eq.u32 %p3, %r4, 2;",
            "apart": "@%p2 bra SECOND; @%p3 bra THIRD;",
            "named": "bar.sync 3, 64;",
            "over": "bra END;",
            "second": "SECOND:",
            "mbarrier": wait("%r3"),
            "done": "bra END;",
            "third": "THIRD: barrier.cluster.arrive.aligned;",
            "cluster": "barrier.cluster.wait.aligned;",
            "end": "END:",
        },
        words=(4,),
        block=96,
    )
    _, done = kernel.run(options=Options(seed=seed))
    found = {d.at.line: d for d in done.diagnostics if d.kind == "deadlock"}
    assert set(found) == {kernel.line(name) for name in ("named", "mbarrier", "cluster")}
    said = {
        "named": "named barrier 3, 32 of 64 threads there",
        "mbarrier": "mbarrier at shared 0xc00, parity 0 wanted; phase 0, which lacks its only",
        "cluster": "the cluster barrier, 32 of 96 threads there",
    }
    for number, (name, text) in enumerate(said.items()):
        one = found[kernel.line(name)]
        assert text in one.message
        assert one.who == f"warp {number}"
        assert "(32 threads) can never go on" in one.message


#: Threads of the second CTA wait for what does not come, each warp in its own way.
LACKING = Snippet(
    {
        "start": "mov.u32 %r3, bars; mov.u32 %r9, %cluster_ctarank; setp.ne.u32 %p4, %r1, 0; @%p4 bra MET;",
        "init": "mbarrier.init.shared.b64 [%r3], 1; mbarrier.init.shared.b64 [%r3+8], 2; fence.mbarrier_init.release.cluster;",
        "meet": "MET: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        "leave": "setp.eq.u32 %p1, %r9, 0; @%p1 bra END;",
        "who": "shr.u32 %r4, %r1, 5; setp.eq.u32 %p2, %r4, 1; setp.eq.u32 %p3, %r4, 2; setp.eq.u32 %p5, %r4, 3; mov.u32 %r5, 0;",
        "apart": "@%p2 bra SECOND; @%p3 bra THIRD; @%p5 bra FOURTH;",
        "expect": "@!%p4 mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 48;",
        "bytes": wait("%r3"),
        "second": "bra END; SECOND: add.u32 %r3, %r3, 8;",
        "phase": "W: mbarrier.try_wait.parity.shared.b64 %p6, [%r3], 2; @!%p6 bra W;",
        "third": "bra END; THIRD: bar.sync 5;",
        "fourth": "bra END; FOURTH: bar.sync 0, 64;",
        "end": "END:",
    },
    words=(4,),
    block=128,
    grid=2,
    cluster=2,
)  # fmt: skip


@pytest.mark.parametrize("seed", [None, 3])
def test_what_is_missing_is_told_of_the_cta_that_lacks_it(seed: int | None) -> None:
    """Places are those of the CTA's own memory, and numbers those of the barrier."""
    _, done = LACKING.run(options=Options(seed=seed))
    found = {(d.kind, d.at.line): d for d in done.diagnostics}
    said = {name: found["deadlock", LACKING.line(name)].message for name in
            ("bytes", "phase", "third", "fourth")}  # fmt: skip
    places = [int(said[name].split("mbarrier at shared ")[1].split(",")[0], 16) for name in
              ("bytes", "phase")]  # fmt: skip
    assert places[1] == places[0] + 8
    assert "parity 0 wanted" in said["bytes"]
    assert "parity 0 wanted" in said["phase"]
    assert "named barrier 5, 32 of all threads there" in said["third"]
    assert "named barrier 0, 32 of 64 threads there" in said["fourth"]
    lacks = found["barrier-bytes", LACKING.line("bytes")]
    assert lacks.message == (
        f"the mbarrier at shared {places[0]:#x} expects 48 bytes that nothing brings"
    )
    assert sum(d.kind == "barrier-bytes" for d in done.diagnostics) == 1
    for number, name in enumerate(("bytes", "phase", "third", "fourth")):
        assert said[name].startswith(f"warp {number} of CTA 1 of the cluster (32 threads)")


def test_a_barrier_that_was_never_made_is_waited_for_in_vain() -> None:
    kernel = Snippet({"start": "mov.u32 %r3, bars;", "wait": wait("%r3")}, words=(4,), block=32)
    _, done = kernel.run()
    said = [d.message for d in done.diagnostics if d.kind == "deadlock"]
    assert len(said) == 1
    assert said[0].endswith("not initialized")


@pytest.mark.parametrize("stay", [8, 24])
def test_a_kernel_without_an_end_is_told_where_most_threads_are(stay: int) -> None:
    kernel = Snippet(
        {
            "who": f"setp.lt.u32 %p1, %r1, {stay}; @%p1 bra FEW;",
            "many": "MANY: add.u32 %r4, %r4, 1; bra MANY;",
            "few": "FEW: add.u32 %r4, %r4, 2; bra FEW;",
        },
        words=(4,),
        block=32,
    )
    with pytest.raises(EmulatorError) as caught:
        kernel.run(options=Options(max_steps=50_000))
    where = kernel.line("few" if stay > 16 else "many")
    assert f"kernel.py:{where}" in str(caught.value)
    assert "CTA (0, 0, 0) has run 5000" in str(caught.value)
