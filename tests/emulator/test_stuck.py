"""What is said of threads that ask for a word which nobody writes."""

from __future__ import annotations

import pytest

from mla_var3.emulator import stuck
from tests.emulator.events import Snippet
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
