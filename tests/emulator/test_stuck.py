"""What is said of threads that ask for a word which nobody writes."""

from __future__ import annotations

import pytest

from mla_var3.emulator import stuck
from mla_var3.emulator.options import Options
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
