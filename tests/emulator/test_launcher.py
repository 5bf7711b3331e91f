# ruff: noqa: E501  # A PTX statement stays on its line.
"""Grids: processes, clusters that wait for each other, schedules, races between CTAs."""

import json

import numpy as np
import pytest

from mla_var3.emulator.diagnostics import KINDS, as_json
from mla_var3.emulator.launcher import dim3, launch, pack
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.sched import ASKING
from mla_var3.emulator.timeline import difference
from mla_var3.emulator.turns import QUANTUM
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import parse
from tests.emulator.kernels import GEMM, MIRROR, PAIR, RING, SPLIT

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
SCALE = (
    HEAD
    + """
.visible .entry scale(.param .u64 x, .param .u64 y, .param .u32 shift)
{
.reg .b32 %r<8>; .reg .b64 %rd<8>; .reg .f32 %f<4>;
ld.param.u64 %rd1, [x]; ld.param.u64 %rd2, [y]; ld.param.u32 %r6, [shift];
mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ntid.x; mov.u32 %r3, %tid.x; mad.lo.u32 %r4, %r1, %r2, %r3;
mul.wide.u32 %rd3, %r4, 4; add.u64 %rd4, %rd1, %rd3; ld.global.f32 %f1, [%rd4]; add.f32 %f1, %f1, %f1;
shr.u32 %r5, %r4, %r6; mul.wide.u32 %rd5, %r5, 4; add.u64 %rd6, %rd2, %rd5; st.global.f32 [%rd6], %f1;
ret;
}
"""
)
#: CTA 0 waits until CTA 1 has set a flag.
FLAG = (
    HEAD
    + """
.visible .entry flag(.param .u64 flag, .param .u64 out)
{
.reg .pred %p<4>; .reg .b32 %r<8>; .reg .b64 %rd<8>;
ld.param.u64 %rd1, [flag]; ld.param.u64 %rd2, [out]; mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1;
@%p1 bra SET;
W: ld.acquire.gpu.global.u32 %r2, [%rd1]; setp.ne.u32 %p2, %r2, 1;
@%p2 bra W;
ld.global.u32 %r3, [%rd2]; add.u32 %r3, %r3, 1; st.global.u32 [%rd2], %r3;
ret;
SET: st.global.u32 [%rd2], 41; st.release.gpu.global.u32 [%rd1], 1;
ret;
}
"""
)


@pytest.mark.parametrize("jobs", [1, 2])
def test_processes_give_the_same(jobs: int) -> None:
    x, y = np.arange(1024, dtype="f4"), np.zeros(1024, "f4")
    done = launch(SCALE, [x, y, 0], 16, 64, options=Options(jobs=jobs))
    assert (y == 2 * x).all()
    assert not done.diagnostics
    assert done.counts.total_bytes("global read") == 4096
    assert done.counts.total_flops == 1024


@pytest.mark.parametrize("jobs", [1, 2])
def test_ctas_that_write_the_same_bytes_race(jobs: int) -> None:
    x, y = np.arange(1024, dtype="f4"), np.zeros(1024, "f4")
    done = launch(SCALE, [x, y, 9], 16, 64, options=Options(jobs=jobs))
    assert "global-race" in {d.kind for d in done.diagnostics}


def test_a_cta_may_wait_for_a_later_one() -> None:
    flag, out = np.zeros(1, "u4"), np.zeros(1, "u4")
    done = launch(FLAG, [flag, out], 2, 1)
    assert out[0] == 42
    assert not done.diagnostics


def test_who_asks_again_and_again_has_a_short_turn() -> None:
    flag, out = np.zeros(1, "u4"), np.zeros(1, "u4")
    done = launch(FLAG, [flag, out], 2, 1)
    turns = 2  # of CTA 0 before CTA 1 has run
    assert done.counts.total_bytes("global read") <= 4 * turns * (QUANTUM // ASKING + 1)


def test_asking_often_is_not_endless() -> None:
    flag, out = np.zeros(1, "u4"), np.zeros(1, "u4")
    waits = launch(FLAG, [flag, out], 2, 1, options=Options(max_steps=2000))
    assert waits.counts.total_bytes("global read") * ASKING > 4 * 2000
    assert not waits.diagnostics


def test_without_the_order_it_is_a_race() -> None:
    flag, out = np.zeros(1, "u4"), np.zeros(1, "u4")
    weak = FLAG.replace("ld.acquire.gpu.global", "ld.volatile.global")
    from mla_var3.emulator.options import STRICT

    done = launch(weak, [flag, out], 2, 1, options=Options(model=STRICT))
    assert "global-race" in {d.kind for d in done.diagnostics}


def test_a_seed_replays_its_schedule() -> None:
    lines = [RING.run(options=Options(seed=3, timeline=True))[1].timeline for _ in range(2)]
    assert lines[0] is not None
    assert lines[1] is not None
    assert lines[0].spans == lines[1].spans
    assert not difference(*lines)
    other = RING.run(options=Options(seed=4, timeline=True))[1].timeline
    assert other is not None
    assert "at line " in difference(lines[0], other, lambda pc: f"line {pc}")[0]


def test_the_command_draws_the_first_schedule_and_says_where_others_part(tmp_path, capsys) -> None:
    from mla_var3.emulator.commands import _timelines

    seeds = (1, None)
    launches = [RING.run(options=Options(seed=seed, timeline=True))[1] for seed in seeds]
    _timelines(launches, tmp_path / "ring.svg")
    assert (tmp_path / "ring.svg").read_text().startswith("<svg")
    said = capsys.readouterr().out
    assert "seed 1 parts: warp 0 step" in said
    assert f"kernel.py:{RING.line('init_barrier')} (bar.sync 0)" in said


def test_a_timeline_is_drawn() -> None:
    _, done = GEMM.run(options=Options(timeline=True))
    assert done.timeline is not None
    svg = done.timeline.svg(lambda pc: f"ptx {pc}")
    assert svg.startswith("<svg")
    assert "warp 4" in svg
    events = json.loads(done.timeline.chrome(lambda pc: pc))["traceEvents"]
    assert {"run", "wait", "wgmma", "TMA load"} <= {e["name"] for e in events}


def test_diagnostics_are_json() -> None:
    _, done = MIRROR.run({"ready": ""})
    first = json.loads(as_json(done.diagnostics))[0]
    assert first["kind"] in KINDS
    assert first["at"]["file"] == "kernel.py"
    assert first["other"]["line"] == MIRROR.line("fill")
    assert first["missing"]


def test_a_report_says_who_and_what_is_missing() -> None:
    _, done = MIRROR.run({"ready": ""})
    text = str(next(d for d in done.diagnostics if d.kind == "race"))
    assert f"kernel.py:{MIRROR.line('take')}" in text
    assert f"kernel.py:{MIRROR.line('fill')}" in text
    assert "missing: a barrier" in text


def test_sizes_are_three() -> None:
    assert dim3(4) == (4, 1, 1)
    assert dim3((2, 3)) == (2, 3, 1)


def test_several_clusters_keep_apart() -> None:
    assert PAIR.run()[1].clusters == 1
    assert SPLIT.run()[1].clusters == 4


def test_ctas_side_by_side_are_on_multiprocessors_of_their_own():
    text = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<3>; .reg .b64 %rd<3>;
ld.param.u64 %rd1, [out]; mov.u32 %r1, %smid; mov.u32 %r2, %ctaid.x;
mul.wide.u32 %rd2, %r2, 4; add.u64 %rd2, %rd2, %rd1; st.global.u32 [%rd2], %r1;
ret;
}
"""
    out = np.full(6, 9, np.uint32)
    launch(text, [out], 6, 1, cluster=2, options=Options(multiprocessors=4))
    assert out.tolist() == [0, 1, 2, 3, 0, 1]


@pytest.mark.parametrize("shift", [6, 0])
def test_ctas_in_processes_of_their_own_race(shift: int) -> None:
    x, y = np.arange(512, dtype="f4"), np.zeros(512, "f4")
    done = launch(SCALE, [x, y, shift], 16, 32, options=Options(jobs=2))
    said = [d.message for d in done.diagnostics if d.kind == "global-race"]
    between = [text for text in said if "is written by cluster 0, and cluster 1 writes it" in text]
    assert len(between) == bool(shift)
    assert bool(said) == bool(shift)


def test_what_a_cta_reads_of_another_process_races() -> None:
    x = np.arange(512, dtype="f4")
    done = launch(SCALE, [x, x, 1], 8, 64, options=Options(jobs=2))
    said = [d.message for d in done.diagnostics if d.kind == "global-race"]
    assert any("is written by cluster 2, and cluster 1 reads it" in text for text in said)


SHARED = (
    HEAD.replace("sm_80", "sm_90a")
    + """
.visible .entry k(.param .u64 out)
{
.reg .b32 %r<3>; .reg .b64 %rd<3>; .shared .align 16 .b8 s[1024]; .extern .shared .align 16 .b8 more[];
mov.u32 %r1, s; mov.u32 %r2, 7; st.shared.u32 [%r1], %r2; ld.param.u64 %rd1, [out]; st.global.u32 [%rd1], %r2;
ret;
}
"""
)


def test_a_cta_has_so_much_shared_memory_and_no_more() -> None:
    most, out = 232448 - 1024, np.zeros(1, np.uint32)
    assert not launch(SHARED, [out], shared=most).diagnostics
    assert not launch(SHARED, [out], shared=0).diagnostics
    for wrong in (most + 1, -1):
        with pytest.raises(
            EmulatorError, match=f"1024 . {wrong} bytes of shared memory are asked for; 232448"
        ):
            launch(SHARED, [out], shared=wrong)


@pytest.mark.parametrize(
    ("grid", "block", "cluster", "said"),
    [
        (1, 1025, 1, "has 1025 threads; 1 to 1024"), (1, 0, 1, "has 0 threads"),
        (0, 1, 1, "a grid of"), ((1, 65536), 1, 1, "a grid of"), ((1, 1, 65536), 1, 1, "a grid of"),
        (17, 1, 17, "has 17 CTAs; 1 to 16"), (3, 1, 2, "does not divide into clusters"),
        ((2, 3), 1, (2, 2), "does not divide into clusters"),
    ],
)  # fmt: skip
def test_what_no_gpu_takes_is_refused(grid, block, cluster, said) -> None:
    with pytest.raises(EmulatorError, match=said):
        launch(SHARED, [np.zeros(1, np.uint32)], grid, block, cluster=cluster)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_report_names_the_cta_of_a_grid_of_three_axes(seed: int | None) -> None:
    text = SHARED.replace("[%rd1], %r2", "[%rd1+4096], %r2")
    text = text.replace("mov.u32 %r2, 7;", "mov.u32 %r2, 7; mov.u32 %r0, %ctaid.x;")
    where = "setp.ne.u32 %p1, %r0, {}; @%p1 ret; mov.u32 %r0, %ctaid.{}; "
    body = (
        where.format(2, "y") + where.format(3, "z") + "setp.ne.u32 %p1, %r0, 5; @%p1 ret; st.shared"
    )
    text = text.replace("st.shared", body, 1).replace(".reg .b32", ".reg .pred %p<2>; .reg .b32")
    done = launch(
        text, [np.zeros(1, np.uint32)], (4, 6, 7), 1, cluster=(1, 3, 1), options=Options(seed=seed)
    )
    (found,) = done.diagnostics
    assert found.kind == "out-of-bounds"
    assert found.cta == (2, 3, 5)


def test_a_seed_makes_an_order_of_its_own() -> None:
    found = [RING.run(options=Options(seed=seed, timeline=True))[1].timeline for seed in (None, 3)]
    assert found[0] is not None
    assert found[1] is not None
    assert difference(found[0], found[1])


FIRST = """.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
{
.reg .b32 %r<4>; .shared .align 4 .b8 word[4];
st.shared.u32 [word], 7;
ld.shared.u32 %r1, [word];
ret;
}
"""


def test_a_conflict_with_the_first_instruction_names_it() -> None:
    (found,) = launch(FIRST, [], 1, 64).diagnostics
    assert found.kind == "race"
    assert (found.at.pc, found.other.pc) == (1, 0)
    assert "and ptx#0 (st.shared.u32 [word], 7" in str(found)


def test_arguments_lie_where_the_parameters_do() -> None:
    text = (
        ".version 8.6\n.target sm_90a\n.address_size 64\n"
        ".visible .entry k(.param .u32 a, .param .u64 b, .param .align 16 .b8 c[20], .param .f32 d)\n"
        "{\nret;\n}\n"
    )
    block = pack(Program(parse(text)), [7, 1 << 40, bytes(range(20)), 1.5])
    assert len(block) == 40
    assert block[:16] == (7).to_bytes(8, "little") + (1 << 40).to_bytes(8, "little")
    assert block[16:] == bytes(range(20)) + np.float32(1.5).tobytes()
