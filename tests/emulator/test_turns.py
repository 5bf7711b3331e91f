# ruff: noqa: E501  # A PTX statement stays on its line.
"""Clusters that wait for each other through global memory: right ones end, wrong ones are told."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import Options, launch
from tests.emulator.events import Snippet

_SPIN = "ld.acquire.gpu.global.u32 %r5, [%rd0]; setp.lt.u32 %p2, %r5, %r3; @%p2 bra"
#: Every CTA counts itself, and waits until all have.
BARRIER = Snippet(
    {
        "start": "mov.u32 %r3, %nctaid.x; setp.ne.u32 %p1, %r1, 0; @%p1 bra MET;",
        "arrive": "atom.add.release.gpu.global.u32 %r4, [%rd0], 1;",
        "wait": f"SPIN: {_SPIN} SPIN;",
        "met": "MET: bar.sync 0;",
    },
    words=(1,),
    block=1024,
    grid=8,
)
#: One CTA (or warp) counts to a large number before it raises a flag, for which others wait.
SLOW = Snippet(
    {
        "start": "mov.u32 %r3, 1; mov.u32 %r6, 0; mov.u32 %r2, WHO; setp.ge.u32 %p1, %r2, FIRST; @%p1 bra SPIN;",
        "count": "COUNT: add.u32 %r6, %r6, 1; setp.lt.u32 %p3, %r6, TIMES; @%p3 bra COUNT;",
        "raise": "st.release.gpu.global.u32 [%rd0], 1; bra END;",
        "wait": f"SPIN: {_SPIN} SPIN;",
        "end": "END:",
    },
    words=(1,),
)


def run(snippet, edits=None, options=None, grid=None, **words):
    text = snippet.text(edits)
    for name, value in words.items():
        text = text.replace(name, str(value))
    array = np.zeros(1, np.uint32)
    done = launch(text, [array], grid or snippet.grid, snippet.block, options=options or Options())
    return int(array[0]), done.diagnostics


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("grid", [1, 8, 40])
def test_a_barrier_of_a_grid_that_fits(grid, seed):
    assert run(BARRIER, options=Options(seed=seed), grid=grid) == (grid, [])


@pytest.mark.parametrize(("resident", "fits"), [(4, True), (3, False)])
def test_a_barrier_of_a_grid_that_does_not_fit(resident, fits):
    count, found = run(BARRIER, options=Options(resident=resident))
    assert count == (8 if fits else 6)  # Two CTAs of 1024 threads to a multiprocessor.
    assert {(d.kind, d.at.line) for d in found} == (
        set() if fits else {("deadlock", BARRIER.line("wait"))}
    )
    assert all("holds 6 of the 8 clusters" in d.message for d in found)


def test_a_barrier_that_one_does_not_reach():
    _, found = run(BARRIER, {"arrive": BARRIER.steps["arrive"].replace("atom", "@%p5 atom")})
    assert {d.kind for d in found} == {"deadlock"}
    assert "every other cluster has ended, or waits too" in found[0].message


@pytest.mark.parametrize(
    ("who", "first", "grid"), [("%ctaid.x", 1, 3), ("%ctaid.x", 1, 30), ("%tid.x", 32, 2)]
)
@pytest.mark.parametrize("seed", [None, 2])
def test_who_is_slow_is_waited_for(who, first, grid, seed):
    options = Options(seed=seed, checks=False)
    assert run(SLOW, None, options, grid, WHO=who, FIRST=first, TIMES=20_000) == (1, [])
