# A PTX statement stays on its line.
"""Named barriers on a clock: every phase is told apart from those before it."""

from __future__ import annotations

import pytest

from mla_var3.emulator.clocks import BULK
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.replay import Replay
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet
from tests.emulator.machines import machine

#: Two warps hand over to each other by two barriers, round after round.
ROUNDS = Snippet(
    {
        "who": "setp.ge.u32 %p1, %r1, 32; mov.u32 %r4, 0;",
        "loop": "AGAIN: @%p1 bra TAKE;",
        "give": "bar.arrive 1, 64; bar.sync 2, 64; bra NEXT;",
        "take": "TAKE: bar.sync 1, 64; bar.arrive 2, 64;",
        "next": "NEXT: add.u32 %r4, %r4, 1; setp.lt.u32 %p2, %r4, 5; @%p2 bra AGAIN;",
    },
    words=(4,),
)


@pytest.mark.parametrize("seed", [None, 1, 2])
def test_each_phase_of_a_barrier_is_waited_for_on_the_clock(seed: int | None) -> None:
    _, done = ROUNDS.run(options=Options(seed=seed, timeline=True))
    assert done.diagnostics == []
    assert done.trace is not None
    keys = [s.key for steps in done.trace.steps.values() for s in steps if s.kind == "arrive"]
    assert len(keys) == 20, "two warps at two barriers, five times"
    assert {keys.count(key) for key in keys} == {2}
    waits = [s.key for steps in done.trace.steps.values() for s in steps if s.kind == "wait"]
    assert sorted(map(str, waits)) == sorted(map(str, set(keys)))
    program = Program(parse(ROUNDS.text()))
    replay = Replay(done.trace, program.kernel.instructions)
    assert {s.warp for s in replay.spans if s.what == "wait"} <= {0, 1}
    assert replay.end > 0


def test_barriers_have_room_for_chains_that_come_while_threads_wait() -> None:
    """Some warps have arrived, at a named barrier and at that of the cluster."""
    m = machine((128, 1, 1))
    (whole,) = m.scheduler.fragments
    first, second = m.scheduler.split(whole, [(whole.ids[:64], 0), (whole.ids[64:], 0)])
    m.meetings.enter(first, 3, 0, 128, True, 0)
    m.meetings.arrive_cluster(first, relaxed=False)
    before = m.clocks.room
    for i in range(before + 1):
        last = m.clocks.chain(("made", i), BULK)
    assert m.clocks.room > before
    m.clocks.seen[2, last] = 7
    m.meetings.arrive_cluster(second, relaxed=False)
    done = m.meetings.enter(second, 3, 0, 128, True, 0)
    assert done is not None
    assert len(done.vector) == m.clocks.room
    assert m.clocks.seen[:, last].tolist() == [7] * 4
    held = m.meetings.cluster
    for vector in (held.vector, held.relaxed, held.done, held.done_relaxed):
        assert len(vector) == m.clocks.room
    assert held.done[last] == 7
