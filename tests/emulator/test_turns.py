# ruff: noqa: E501  # A PTX statement stays on its line.
"""Clusters that wait for each other through global memory: right ones end, wrong ones are told."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator import Options, launch
from mla_var3.emulator.program import Program
from mla_var3.emulator.turns import resident
from mla_var3.emulator.windows import SHARED_START
from mla_var3.gpuless.ptx import parse
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


@pytest.mark.slow
def test_who_asks_by_an_atomic_that_changes_nothing_waits_too():
    wait = "SPIN: atom.acquire.gpu.global.or.b32 %r5, [%rd0], 0; setp.lt.u32 %p2, %r5, %r3; @%p2 bra SPIN;"
    arrive = BARRIER.steps["arrive"].replace("atom", "@%p5 atom")
    _, found = run(BARRIER, {"wait": wait, "arrive": arrive})
    assert {(d.kind, d.at.line) for d in found} == {("deadlock", BARRIER.line("wait"))}


@pytest.mark.parametrize(
    ("who", "first", "grid"), [("%ctaid.x", 1, 3), ("%ctaid.x", 1, 30), ("%tid.x", 32, 2)]
)
@pytest.mark.parametrize("seed", [None, 2])
def test_who_is_slow_is_waited_for(who, first, grid, seed):
    options = Options(seed=seed, checks=False)
    assert run(SLOW, None, options, grid, WHO=who, FIRST=first, TIMES=20_000) == (1, [])


#: Multiprocessors, threads, CTAs and KiB of shared memory: a GPU of each architecture.
HOLDS = {
    "sm_80": (108, 2048, 32, 164), "sm_86": (84, 1536, 16, 100), "sm_89": (142, 1536, 24, 100),
    "sm_90a": (132, 2048, 32, 228), "sm_100a": (148, 2048, 32, 228),
    "sm_103a": (160, 2048, 32, 228), "sm_120a": (188, 1536, 24, 100), "sm_75": (132, 2048, 32, 228),
}  # fmt: skip


@pytest.mark.parametrize("target", HOLDS)
def test_how_many_clusters_a_gpu_holds(target):
    text = SLOW.text().replace("sm_90a", target)
    for word in ("WHO", "FIRST", "TIMES"):
        text = text.replace(word, "1" if word != "WHO" else "%tid.x")
    program = Program(parse(text))
    static = program.static_shared - SHARED_START

    def held(threads, ctas=1, shared=0, **how):
        return resident(program, (threads, 1, 1), ctas, shared, Options(**how))

    gpus, threads, most, memory = HOLDS[target]
    assert held(32) == gpus * min(most, threads // 32)
    assert held(512) == gpus * (threads // 512)
    assert held(513) == gpus * (threads // 544)
    assert held(256, ctas=2) == gpus * (threads // 256) // 2
    assert held(512, resident=3) == 3 * (threads // 512)
    limit = memory * 1024 - 1024 - static
    assert held(32, shared=limit) == gpus
    assert held(32, shared=limit + 1) == 1
    assert held(32, shared=memory * 1024 // 3 - 1024 - static) == 3 * gpus
    assert held(1024, ctas=16, resident=1) == 1
