"""A launch in several ways: each begins with the same memory, and the last one's stays."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import Options
from mla_var3.emulator.launcher import pack, region_of
from mla_var3.emulator.options import STRICT
from mla_var3.emulator.program import Program
from mla_var3.emulator.ways import Asked, Repeats, in_ways
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet

ADD = "ld.global.u32 %r4, [%rd0]; add.u32 %r4, %r4, 1; st.global.u32 [%rd0], %r4;"
ALONE = Snippet({"who": "setp.ne.u32 %p1, %r1, 0; @%p1 bra E;", "add": ADD, "end": "E:"}, (1,))
MET = Snippet({**ALONE.steps, "end": "E: bar.sync 0;"}, (1,))


def run(snippet, others=(), where_quick=(), counted=False):
    program = Program(parse(snippet.text()))
    word = np.array([7], np.uint32)
    shape = ((1, 1, 1), (snippet.block, 1, 1), (1, 1, 1), 0)
    asked = Asked(program, pack(program, [word]), shape, counted=counted)
    return int(word[0]), in_ways(asked, [region_of(word)], Options(), others, where_quick), word


@pytest.mark.parametrize("snippet", [ALONE, MET], ids=["alone", "met"])
def test_every_way_begins_with_the_same_memory(snippet):
    _, done, word = run(snippet, [Options(seed=1), Options(model=STRICT)])
    assert word[0] == 8
    assert len(done) == 3
    assert done[-1].grid_before is not None
    assert [d.grid_before for d in done[:-1]] == [None, None]


def test_more_schedules_where_threads_wait_for_each_other():
    assert len(run(ALONE, (), [Options(seed=1)])[1]) == 1
    assert len(run(MET, (), [Options(seed=1)])[1]) == 2


def test_a_grid_is_as_large_as_what_was_told_to_a_host_that_asks(monkeypatch):
    seen = []
    monkeypatch.setattr("mla_var3.emulator.ways.run", lambda *a: seen.append(a[7]) or run_(*a))
    from mla_var3.emulator.launcher import run as run_

    run(ALONE, counted=True)
    run(ALONE)
    assert [options.resident for options in seen] == [Options().multiprocessors, None]


def again(snippet, times, change=lambda word: None):
    program = Program(parse(snippet.text()))
    word, repeats, real = np.array([7], np.uint32), Repeats(), []
    shape = ((1, 1, 1), (snippet.block, 1, 1), (1, 1, 1), 0)
    for _ in range(times):
        asked = Asked(program, pack(program, [word]), shape)
        done = repeats.run(asked, [region_of(word)], Options(), [Options(seed=1)], ())
        real.append(done[-1].seconds > 0)
        assert len(done) == 2
        assert done[-1].grid_before is not None
        change(word)
    return int(word[0]), real


def test_the_same_launch_on_the_same_memory_runs_twice_and_no_more():
    same = Snippet(
        {**ALONE.steps, "add": ADD.replace("add.u32 %r4, %r4, 1", "mov.u32 %r4, 9")}, (1,)
    )
    assert again(same, 5) == (9, [True, True, False, False, False])
    assert again(ALONE, 5) == (12, [True] * 5)


def test_the_same_launch_on_other_memory_runs_again():
    def put_back(word):
        word[0] = 7

    assert again(ALONE, 4, put_back) == (7, [True, True, False, False])

    def count(word):
        word[0] += 10

    assert again(ALONE, 3, count) == (40, [True] * 3)


def test_a_trap_names_its_threads():
    trapped = Snippet({"who": "setp.ge.u32 %p1, %r1, 40;", "trap": "@%p1 trap;"}, (1,))
    with pytest.raises(EmulatorError, match=r"thread 40 \(warp 1, lane 8\) of CTA .* and 23 more"):
        run(trapped)
