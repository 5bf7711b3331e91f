# ruff: noqa: E501  # A PTX statement stays on its line.
"""Votes at named barriers, tables of branches, and mbarriers at the edges of what they may do."""

from __future__ import annotations

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import DEFAULT, FENCED, STRICT, Model, Options
from mla_var3.errors import EmulatorError
from tests.emulator.events import COPY, Snippet, wait
from tests.emulator.machines import machine
from tests.emulator.snippets import evaluate, run

STORE = "mul.wide.u32 %rd3, %r1, 4; add.u64 %rd4, %rd0, %rd3; st.global.u32 [%rd4], %r6;"
START = "mov.u32 %r2, a; mov.u32 %r3, bars; setp.ne.u32 %p1, %r1, 0;"
INIT = "@%p1 bra READY; mbarrier.init.shared.b64 [%r3], {count}; fence.mbarrier_init.release.cluster; READY: bar.sync 0;"


@pytest.mark.parametrize("stem", ["bar", "barrier"])
@pytest.mark.parametrize(
    ("operation", "negated", "expected"),
    [
        ("popc.u32", "", 10), ("popc.u32", "!", 86),
        ("and.pred", "", 0), ("and.pred", "!", 0), ("or.pred", "", 1), ("or.pred", "!", 1),
    ],
)  # fmt: skip
def test_a_vote_at_a_barrier(stem: str, operation: str, negated: str, expected: int) -> None:
    """Of 96 threads in three warps, those below 10 say yes."""
    vote = operation.replace("popc.", "popc.aligned.") if stem == "barrier" else operation
    vote = vote.replace(".pred", ".aligned.pred") if stem == "barrier" else vote
    to = "%r6" if "u32" in operation else "%p3"
    back = "" if "u32" in operation else "selp.u32 %r6, 1, 0, %p3;"
    kernel = Snippet(
        {
            "ask": "setp.lt.u32 %p2, %r1, 10;",
            "vote": f"{stem}.red.{vote} {to}, 1, {negated}%p2; {back}",
            "give": STORE,
            "again": "setp.lt.u32 %p2, %r1, 96;",
            "all": f"{stem}.red.{vote} {to}, 1, {negated}%p2; {back}",
            "twice": "add.u64 %rd4, %rd4, 1024; st.global.u32 [%rd4], %r6;",
        },
        words=(512,),
        block=96,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert set(out[:96].tolist()) == {expected}
    all_say = {"popc.u32": 96, "and.pred": 1, "or.pred": 1}[operation]
    none = 0 if negated else all_say
    assert set(out[256:352].tolist()) == {none}


@pytest.mark.parametrize("cta", [1, 2])
def test_votes_of_two_ctas_and_two_barriers_keep_apart(cta: int) -> None:
    kernel = Snippet(
        {
            "who": "mov.u32 %r9, %ctaid.x; mad.lo.u32 %r1, %r9, 64, %r1; setp.lt.u32 %p2, %r1, 3;",
            "one": "bar.red.popc.u32 %r6, 1, %p2;",
            "two": "bar.red.popc.u32 %r7, 2, 64, %p2; shl.b32 %r7, %r7, 8; add.u32 %r6, %r6, %r7;",
            "give": STORE,
        },
        words=(128,),
        grid=2,
        cluster=cta,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert out.tolist() == [3 + (3 << 8)] * 64 + [0] * 64


TABLE = """
.version 8.6\n.target sm_90a\n.address_size 64
.visible .entry k(.param .u64 o, .param .u32 n) {
.reg .b32 %r<9>; .reg .b64 %rd<4>;
ld.param.u64 %rd0, [o]; ld.param.u32 %r5, [n]; mov.u32 %r1, %tid.x;
rem.u32 %r2, %r1, %r5;
T: .branchtargets A, B, C;
brx.idx %r2, T;
A: mov.u32 %r6, 100; bra END;
B: mov.u32 %r6, 200; bra END;
C: mov.u32 %r6, 300;
END: mul.wide.u32 %rd1, %r1, 4; add.u64 %rd2, %rd0, %rd1; st.global.u32 [%rd2], %r6;
ret; }
"""


@pytest.mark.parametrize("seed", [None, 1])
@pytest.mark.parametrize("ways", [1, 2, 3])
def test_a_table_of_branches(ways: int, seed: int | None) -> None:
    out = np.zeros(64, np.uint32)
    done = launch(TABLE, [out, ways], block=64, options=Options(seed=seed))
    assert done.diagnostics == []
    assert out.tolist() == [100 * (1 + t % ways) for t in range(64)]


def test_a_branch_that_the_table_does_not_have() -> None:
    with pytest.raises(EmulatorError, match="branch 3 of 3 is taken"):
        launch(TABLE, [np.zeros(64, np.uint32), 4], block=64)


@pytest.mark.parametrize(
    ("init", "kind", "said"),
    [
        ("mbarrier.init.shared.b64 [%r3+4], 1;", "misaligned", "an mbarrier at shared 0xc04"),
        ("mbarrier.init.shared.b64 [%r3+57344], 1;", "out-of-bounds", "an mbarrier at shared"),
        ("mbarrier.init.shared.b64 [%r3], 0;", "barrier-overflow", "mbarrier.init with 0 arrivals; 1 to 1048575 are allowed"),
        ("mbarrier.init.shared.b64 [%r3], 1048576;", "barrier-overflow", "mbarrier.init with 1048576 arrivals; 1 to 1048575 are allowed"),
        ("mbarrier.init.shared.b64 [%r3], 1048575;", "", ""),
        ("mbarrier.init.shared.b64 [%r3], 1;", "", ""),
        ("mbarrier.init.shared.b64 [%r3], 1; mbarrier.inval.shared.b64 [%r3]; mbarrier.init.shared.b64 [%r3], 2;", "", ""),
        ("mbarrier.init.shared.b64 [%r3], 1; mbarrier.init.shared.b64 [%r3], 2;", "barrier-reinitialized", "initialized again"),
        ("mbarrier.init.shared.b64 [%r3], 1; mbarrier.inval.shared.b64 [%r3]; mbarrier.arrive.shared.b64 _, [%r3];", "barrier-uninitialized", "0xc00"),
    ],
)  # fmt: skip
def test_an_mbarrier_is_made(init: str, kind: str, said: str) -> None:
    kernel = Snippet({"start": START, "init": f"@%p1 bra END; {init}", "end": "END:"})
    _, done = kernel.run()
    assert [d.kind for d in done.diagnostics] == [kind] * bool(kind)
    assert all(said in str(d) and d.at.line == 2 for d in done.diagnostics)


@pytest.mark.parametrize(("count", "arrivals"), [(3, [2, 1]), (5, [1, 1, 3])])
def test_states_and_pending_counts(count: int, arrivals: list[int]) -> None:
    """An arrival gives the state before it, whose pending count is what was missing then."""
    steps, at = {"start": START, "init": INIT.format(count=count) + " @%p1 bra END;"}, 0
    for n in arrivals * 2:
        steps[f"arrive {at}"] = (
            f"mbarrier.arrive.shared.b64 %rd5, [%r3], {n}; mbarrier.pending_count.b64 %r6, %rd5; "
            f"st.global.u32 [%rd0+{4 * at}], %r6;"
        )
        at += 1
    (out, _), done = Snippet(steps | {"end": "END:"}).run()
    assert done.diagnostics == []
    left = [count - sum(arrivals[:i]) for i in range(len(arrivals))]
    assert out[:at].tolist() == left * 2


def test_who_drops_out_is_not_waited_for_again() -> None:
    kernel = Snippet(
        {
            "start": START,
            "init": INIT.format(count=2),
            "drop": "setp.ne.u32 %p2, %r1, 32; @!%p2 mbarrier.arrive_drop.shared.b64 _, [%r3];",
            "first": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3];",
            "wait": wait("%r3"),
            "second": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3];",
            "wait_second": wait("%r3", "1"),
        }
    )
    for edits, kinds in (({}, []), ({"drop": "setp.ne.u32 %p2, %r1, 32; @!%p2 mbarrier.arrive.shared.b64 _, [%r3];"}, ["deadlock"])):  # fmt: skip
        _, done = kernel.run(edits)
        assert [d.kind for d in done.diagnostics] == kinds


COPIES = Snippet(
    {
        "start": START
        + " shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; add.u64 %rd5, %rd1, %rd3;",
        "init": INIT.format(count=64),
        "copy": "cp.async.ca.shared.global [%r5], [%rd4], 4;",
        "arrive": "cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];",
        "wait": wait("%r3"),
        "take": "xor.b32 %r6, %r5, 128; ld.shared.u32 %r7, [%r6]; st.global.u32 [%rd5], %r7;",
    }
)


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
def test_copies_arrive_when_they_are_done(model) -> None:
    (source, out), done = COPIES.run(options=Options(model=model))
    assert done.diagnostics == []
    assert out[:64].tolist() == [source[t ^ 32] for t in range(64)]


def test_copies_that_nobody_waits_for() -> None:
    _, done = COPIES.run({"wait": "bar.sync 0;"})
    assert {(d.kind, d.at.line, d.other.line) for d in done.diagnostics} == {("race", 6, 3)}


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
def test_without_noinc_the_copies_count_themselves(model) -> None:
    """The pending count goes up and down by each, so that the threads must arrive too."""
    edits = {"arrive": "cp.async.mbarrier.arrive.shared.b64 [%r3];"}
    _, done = COPIES.run(edits, Options(model=model))
    assert [d.kind for d in done.diagnostics] == ["deadlock"]
    assert "lacks its 64 arrivals" in str(done.diagnostics[0])
    edits["arrive"] += " mbarrier.arrive.shared.b64 _, [%r3];"
    (source, out), done = COPIES.run(edits, Options(model=model))
    assert done.diagnostics == []
    assert out[:64].tolist() == [source[t ^ 32] for t in range(64)]


def test_copies_tell_what_their_thread_knew_by_assumption() -> None:
    """The default model only: a store before a copy is told by the copy's arrival."""
    edits = {
        "copy": "st.shared.u32 [%r5+512], %r1; cp.async.ca.shared.global [%r5], [%rd4], 4;",
        "take": "xor.b32 %r6, %r5, 128; ld.shared.u32 %r7, [%r6+512]; st.global.u32 [%rd5], %r7;",
    }
    (_, out), done = COPIES.run(edits)
    assert done.diagnostics == []
    assert out[:64].tolist() == [t ^ 32 for t in range(64)]
    for model in (FENCED, STRICT):
        _, done = COPIES.run(edits, Options(model=model))
        assert {(d.kind, d.at.line, d.other.line) for d in done.diagnostics} == {("race", 6, 3)}


@pytest.mark.parametrize("model", [DEFAULT, FENCED])
def test_copies_tell_what_their_thread_had_seen_of_others(model) -> None:
    """What the other warp stored before a barrier is known to whoever waits for the copies."""
    edits = {
        "init": INIT.format(count=32),
        "copy": "st.shared.u32 [%r5+512], %r1; bar.sync 0; setp.ge.u32 %p4, %r1, 32; "
        "@%p4 cp.async.ca.shared.global [%r5], [%rd4], 4;",
        "arrive": "@%p4 cp.async.mbarrier.arrive.noinc.shared.b64 [%r3];",
        "take": "xor.b32 %r6, %r5, 4; ld.shared.u32 %r7, [%r6+512]; st.global.u32 [%rd5], %r7;",
    }
    (_, out), done = COPIES.run(edits, Options(model=model))
    assert done.diagnostics == []
    assert out[:64].tolist() == [t ^ 1 for t in range(64)]


def test_bytes_that_come_before_they_are_expected_end_the_phase_then() -> None:
    kernel = Snippet(
        {
            "start": START,
            "init": INIT.format(count=1),
            "copy": f"@!%p1 {COPY} [%r2], [%rd0], 256, [%r3];",
            "arrive": "@!%p1 mbarrier.arrive.shared.b64 _, [%r3];",
            "expect": "@!%p1 mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3], 256;",
            "wait": wait("%r3"),
            "take": "shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; ld.shared.u32 %r6, [%r5]; "
            + STORE.replace("%rd0", "%rd1"),
        }
    )
    (source, out), done = kernel.run()
    assert done.diagnostics == []
    assert out[:64].tolist() == source[:64].tolist()
    _, done = kernel.run({"expect": ""})
    assert {d.kind for d in done.diagnostics} == {"deadlock", "barrier-bytes"}


@pytest.mark.parametrize("ctas", [1, 2])
def test_states_are_of_their_phase(ctas: int) -> None:
    """A state of an earlier phase is done, that of this one is not; CTAs have barriers of their own."""
    kernel = Snippet(
        {
            "start": START
            + " mov.u32 %r9, %cluster_ctarank; mad.lo.u32 %r8, %r9, 64, %r1; mul.wide.u32 %rd3, %r8, 16; add.u64 %rd4, %rd0, %rd3;",
            "init": INIT.format(count=64),
            "zero": "mbarrier.arrive.shared.b64 %rd5, [%r3]; bar.sync 0; mbarrier.test_wait.shared.b64 %p2, [%r3], %rd5; selp.u32 %r4, 1, 0, %p2;",
            "one": "mbarrier.arrive.shared.b64 %rd6, [%r3]; bar.sync 0; mbarrier.test_wait.shared.b64 %p2, [%r3], %rd6; selp.u32 %r5, 1, 0, %p2;",
            "half": "setp.ge.u32 %p4, %r1, 32; @%p4 bra LATE; mbarrier.arrive.shared.b64 %rd7, [%r3]; LATE: bar.sync 0;",
            "old": "mbarrier.test_wait.shared.b64 %p2, [%r3], %rd6; selp.u32 %r6, 1, 0, %p2;",
            "now": "@%p4 bra SKIP; mbarrier.test_wait.shared.b64 %p3, [%r3], %rd7; SKIP: selp.u32 %r7, 1, 0, %p3;",
            "give": "@%p4 mov.u32 %r7, 0; st.global.v4.u32 [%rd4], {%r4, %r5, %r6, %r7};",
        },
        words=(1024,),
        grid=ctas,
        cluster=ctas,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert out[: 256 * ctas].reshape(-1, 4).tolist() == [[1, 1, 1, 0]] * 64 * ctas


def test_who_waits_for_its_cluster_is_told_of_what_is_missing() -> None:
    steps = {
        "who": "mov.u32 %r9, %cluster_ctarank; setp.eq.u32 %p1, %r9, 1; setp.ge.u32 %p2, %r1, 32; and.pred %p1, %p1, %p2;",
        "stay": "@%p1 bra STAY;",
        "arrive": "barrier.cluster.arrive;",
        "wait": "barrier.cluster.wait; bra END;",
        "first": "STAY: mov.u32 %r3, bars; mbarrier.init.shared.b64 [%r3], 1;",
        "never": wait("%r3"),
        "end": "END:",
    }
    _, done = Snippet(steps, words=(1,), grid=2, cluster=2).run()
    said = [d.message for d in done.diagnostics if d.kind == "deadlock"]
    assert any("the cluster barrier, 96 of 128 threads there" in text for text in said), said


@pytest.mark.parametrize(
    ("write", "hits"),
    [
        ("st.shared.u32 [%r3+4], %r1;", True), ("st.shared.b64 [%r3], %rd0;", True),
        ("st.shared.b64 [%r3+8], %rd0;", False), ("st.shared.b64 [%r3+16], %rd0;", False), ("st.shared.u32 [%r4], %r1;", False),
    ],
)  # fmt: skip
def test_a_barrier_is_not_written_over(write: str, hits: bool) -> None:
    steps = {"start": START, "init": INIT.format(count=1), "below": "sub.u32 %r4, %r3, 4;"}
    _, done = Snippet({**steps, "write": f"@!%p1 {write}"}).run()
    said = [d for d in done.diagnostics if "0xc00 is overwritten while in use" in d.message]
    assert len(said) == hits
    assert all(d.at.line == 4 and d.other.line == 2 for d in said)


COPIED = Snippet(
    {
        "start": START
        + " shl.b32 %r4, %r1, 4; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; add.u64 %rd5, %rd1, %rd3;",
        "fill": "mov.u32 %r6, -1; st.shared.v4.u32 [%r5], {%r6, %r6, %r6, %r6};",
        "size": "setp.lt.u32 %p2, %r1, 3; and.b32 %r7, %r1, 31; min.u32 %r7, %r7, 16;",
        "copy": "cp.async.ca.shared.global [%r5], [%rd4], 16, %r7;",
        "wait": "cp.async.wait_all;",
        "take": "ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r5]; st.global.v4.u32 [%rd5], {%r10, %r11, %r12, %r13};",
    },
    words=(256, 256),
)


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        ("", lambda t: 16), (", %r7", lambda t: min(t % 32, 16)), (", 4", lambda t: 4), (", 0", lambda t: 0),
        (", %p2", lambda t: 0 if t < 3 else 16), (", %r7, %rd9", lambda t: min(t % 32, 16)),
        (", %rd9", lambda t: 16), (", %p2, %rd9", lambda t: 0 if t < 3 else 16),
    ],
)  # fmt: skip
def test_bytes_that_are_not_taken_are_zeros(size: str, taken) -> None:
    hint = ".L2::cache_hint" if "%rd9" in size else ""
    copy = f"mov.u64 %rd9, 0; cp.async.ca.shared.global{hint} [%r5], [%rd4], 16{size};"
    (source, out), done = COPIED.run({"copy": copy})
    assert done.diagnostics == []
    given, got = source.view(np.uint8).reshape(64, 16), out.view(np.uint8).reshape(64, 16)
    for thread in range(64):
        n = taken(thread)
        assert got[thread].tolist() == [*given[thread, :n].tolist(), *[0] * (16 - n)]


def test_bytes_that_are_not_taken_may_lie_anywhere() -> None:
    past = COPIED.steps["start"].replace("add.u64 %rd4, %rd0, %rd3", "add.u64 %rd4, %rd0, 1024")
    for size, kinds in ((", 0", set()), (", 4", {"out-of-bounds"})):
        copy = f"cp.async.ca.shared.global [%r5], [%rd4], 16{size};"
        _, done = COPIED.run({"start": past, "copy": copy})
        assert {d.kind for d in done.diagnostics} == kinds


@pytest.mark.parametrize("first", [0, 32])
@pytest.mark.parametrize("over", [0, 32])
def test_neither_of_two_barriers_is_written_over(first: int, over: int) -> None:
    init = f"@%p1 bra READY; mbarrier.init.shared.b64 [%r3+{first}], 1; mbarrier.init.shared.b64 [%r3+{32 - first}], 1; READY: bar.sync 0;"
    steps = {"start": START, "init": init, "write": f"@!%p1 st.shared.b64 [%r3+{over}], %rd0;"}
    _, done = Snippet(steps).run()
    said = [d.message for d in done.diagnostics if "is overwritten while in use" in d.message]
    assert said == [f"the mbarrier at shared {0xC00 + over:#x} is overwritten while in use"]


@pytest.mark.parametrize(
    ("size", "kinds"),
    [(4, []), (3, []), (1, []), (5, ["out-of-bounds"]), (16, ["out-of-bounds"])],
)
def test_bytes_are_taken_up_to_the_end_of_an_array(size: int, kinds: list[str]) -> None:
    copy = f"setp.ne.u32 %p1, %r1, 0; @!%p1 cp.async.ca.shared.global [%r5], [%rd4], 16, {size};"
    arrays = [np.arange(253, dtype=np.uint32), np.zeros(256, np.uint32)]
    text = COPIED.text(
        {
            "copy": copy,
            "start": COPIED.steps["start"].replace("%rd4, %rd0, %rd3", "%rd4, %rd0, 1008"),
        }
    )
    found = launch(text, arrays, 1, 64).diagnostics
    assert [d.kind for d in found] == kinds


MISMATCHED = Snippet(
    {
        "who": "shr.u32 %r4, %r1, 5; setp.eq.u32 %p1, %r4, 0; setp.eq.u32 %p2, %r4, 1;",
        "first": "@%p1 bar.sync 3, 64;",
        "second": "@%p2 bar.sync 3, 96;",
        "third": "setp.eq.u32 %p3, %r4, 2; @%p3 bar.sync 3, 96;",
    },
    words=(1,),
    block=96,
)


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ({}, ["named barrier 3 is entered with 96 threads and with 64"]),
        ({"second": "@%p2 bar.sync 3;"}, ["named barrier 3 is entered with all threads and with 64", "named barrier 3 is entered with 96 threads and with all"]),
        ({"first": "@%p1 bar.arrive 3, 96;"}, []),
        ({"first": "@%p1 bar.arrive 3, 96; @%p1 bar.arrive 3, 96;", "third": ""}, ["a warp arrives twice at named barrier 3 before it is complete"]),
        ({"first": "@%p1 bar.sync 3, 96;", "second": "@%p2 bar.arrive 3, 96;"}, []),
    ],
)  # fmt: skip
def test_warps_agree_how_many_threads_a_barrier_has(edits: dict[str, str], said: list[str]) -> None:
    _, done = MISMATCHED.run(edits)
    found = [d for d in done.diagnostics if d.kind == "barrier-mismatch"]
    assert [d.message for d in found] == said
    assert all(d.at.file == "kernel.py" and d.who.startswith("warp ") for d in found)


@pytest.mark.parametrize("threads", [32, 64, 96])
def test_a_barrier_lets_go_when_so_many_threads_are_there(threads: int) -> None:
    """Warp 0 waits; of the others as many arrive as are asked for, and no more."""
    arrive = " ".join(
        f"setp.eq.u32 %p{4 + w}, %r4, {w}; @%p{4 + w} bar.arrive 3, {threads};"
        for w in range(1, threads // 32)
    )
    edits = {"first": f"{arrive} @%p1 bar.sync 3, {threads};", "second": "", "third": ""}
    assert MISMATCHED.run(edits)[1].diagnostics == []
    if threads > 32:
        few = edits | {"first": f"@%p1 bar.sync 3, {threads};"}
        assert "deadlock" in {d.kind for d in MISMATCHED.run(few)[1].diagnostics}


FETCHED = Snippet(
    {
        "start": "mov.u32 %r2, a; shl.b32 %r4, %r1, 4; add.u32 %r5, %r2, %r4; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; shr.u32 %r6, %r1, 5; setp.eq.u32 %p1, %r6, 1; @!%p1 bra MET;",
        "fetch": "cp.async.ca.shared.global [%r5], [%rd4], 16; cp.async.commit_group;",
        "wait": "cp.async.wait_group 0;",
        "meet": "MET: bar.sync 0;",
        "over": "@!%p1 st.global.u32 [%rd4+PAST], %r1;",
    },
    words=(256,),
    shared=".shared .align 16 .b8 a[1024];",
    block=64,
)


@pytest.mark.parametrize(("past", "raced"), [(512, True), (524, True), (496, True), (0, False)])
def test_what_a_copy_has_not_read_yet_is_not_written_over(past: int, raced: bool) -> None:
    """Warp 1 copies the second half of an array; warp 0 writes there once they have met."""
    over = FETCHED.steps["over"].replace("PAST", str(past))
    assert FETCHED.run({"over": over})[1].diagnostics == []
    found = FETCHED.run({"over": over, "wait": ""})[1].diagnostics
    races = [d for d in found if d.kind == "global-race"]
    assert len(races) == raced
    if raced:
        first = max(past, 512)
        assert (
            f"global byte {first} of (256,) uint32 is read by cp.async of warp 1"
            in races[0].message
        )
        assert f"thread {(first - past) // 16} " in races[0].message
        assert (races[0].at.line, races[0].other.line) == (
            FETCHED.line("over"),
            FETCHED.line("fetch"),
        )


@pytest.mark.parametrize(("last", "kinds"), [(3, []), (4, []), (5, ["out-of-bounds"])])
def test_each_thread_takes_as_many_bytes_as_it_says(last: int, kinds: list[str]) -> None:
    """One thread at the array's end takes fewer bytes than the others, which lie before it."""
    size = f"setp.eq.u32 %p2, %r1, 63; selp.u32 %r7, {last}, 13, %p2;"
    copy = f"{size} cp.async.ca.shared.global [%r5], [%rd4], 16, %r7;"
    source, out = np.arange(253, dtype=np.uint32), np.zeros(256, np.uint32)
    done = launch(COPIED.text({"copy": copy}), [source, out], 1, 64)
    assert [d.kind for d in done.diagnostics] == kinds
    given = source.view(np.uint8)
    for thread in range(63):
        start = 16 * thread
        got = out.view(np.uint8)[start : start + 16]
        assert got.tolist() == [*given[start : start + 13].tolist(), 0, 0, 0]


@pytest.mark.parametrize("kind", ["b8", "u8", "s8", "b16"])
@pytest.mark.parametrize("register", ["%r7", "%rd9"])
def test_registers_may_be_wider_than_what_is_stored(kind: str, register: str) -> None:
    """PTX ISA, st: the low bits of a wider register are stored."""
    size = int(kind[1:]) // 8
    store = (
        f"mad.lo.u32 %r7, %r1, 259, 7; cvt.u64.u32 %rd9, %r7; "
        f"st.shared.{kind} [%r5], {register}; bar.sync 0;"
    )
    arrays = [np.zeros(256, np.uint32), np.zeros(256, np.uint32)]
    launch(COPIED.text({"copy": store}), arrays, 1, 64)
    got = arrays[1].view(np.uint8).reshape(64, 16)
    for thread in range(64):
        wanted = (259 * thread + 7).to_bytes(4, "little")[:size]
        assert bytes(got[thread]) == wanted + b"\xff" * (16 - size)


#: Warps 0 and 1 meet, and so do warps 2 and 3; which warps a step is for stands in %p2.
TWO_GROUPS = Snippet(
    {
        "side": "shr.u32 %r6, %r1, 6; setp.ne.u32 %p2, %r6, 0; @%p2 bra OTHERS;",
        "first": "bar.sync 1, 64;",
        "between": "bra END;",
        "others": "OTHERS:",
        "ordered": "",
        "second": "bar.sync 1, 64;",
        "end": "END:",
    },
    words=(256,),
    block=128,
)


@pytest.mark.parametrize("model", [DEFAULT, STRICT])
@pytest.mark.parametrize(
    ("edits", "kinds"),
    [
        ({}, ["barrier-mismatch"]),
        ({"second": "bar.sync 2, 64;"}, []),
        # What orders the two: a barrier that all four warps come to.
        ({"between": "bar.arrive 3, 128; bra END;", "ordered": "bar.sync 3, 128;"}, []),
        # Warps that arrive and do not wait may come to the next phase too early as well.
        ({"second": "bar.arrive 1, 64;"}, ["barrier-mismatch"]),
    ],
)
def test_a_barrier_of_two_groups_may_count_one_for_the_other(model, edits, kinds) -> None:
    _, done = TWO_GROUPS.run(edits, Options(model=model))
    assert [d.kind for d in done.diagnostics] == kinds
    if kinds:
        (one,) = done.diagnostics
        assert (one.at.line, one.other.line) == (
            TWO_GROUPS.line("second"),
            TWO_GROUPS.line("first"),
        )
        assert (one.who, one.other_who) == ("warp 2", "warp 0")


def test_warps_that_take_turns_at_two_barriers_are_ordered() -> None:
    """Each group waits at its own barrier and arrives at the other's: no phase meets the next."""
    turn = "bar.sync {0}, 128; bar.arrive {1}, 128;"
    steps = {
        "first": " ".join([turn.format(1, 2)] * 3),
        "second": "bar.arrive 1, 128; " + " ".join(["bar.sync 2, 128; bar.arrive 1, 128;"] * 2),
        "end": "END:",
    }
    steps["second"] += " bar.sync 2, 128;"
    for seed in (None, 1, 2):
        _, done = TWO_GROUPS.run(steps, Options(seed=seed))
        assert done.diagnostics == []


def test_a_barrier_that_a_warp_does_not_know_is_told_of_once() -> None:
    m = machine((64, 1, 1))
    m.sync.init(np.uint32(0x800), np.uint32(1), slice(0, 1), 0)
    for warps in ([0], [1], [0, 1], [1]):
        assert m.sync.at(0x800, 0, warps) is m.sync.mbarriers[0x800]
    (one,) = m.reporter.diagnostics
    assert (one.kind, one.who, one.other_who, one.times) == (
        "barrier-unordered", "warp 1", "warp 0", 1,
    )  # fmt: skip
    assert one.message == (
        "the mbarrier at shared 0x800 is used by warp 1 with no barrier since its initialization by "
        "warp 0"
    )
    assert m.sync.at(0x810, 0, [1]) is None
    assert m.reporter.diagnostics[1].message == "there is no mbarrier at shared 0x810"


def test_votes_are_counted_by_the_threads_of_their_own_cta() -> None:
    """The first CTA has ended when the second one votes, warp by warp."""
    kernel = Snippet(
        {
            "who": "mov.u32 %r9, %ctaid.x; setp.eq.u32 %p1, %r9, 0; @%p1 bra END;",
            "one": "setp.ge.u32 %p2, %r1, 0; bar.red.popc.u32 %r6, 1, %p2;",
            "give": f"{STORE} END:",
        },
        words=(64,),
        grid=2,
        cluster=2,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert out.tolist() == [64] * 64


def test_a_cta_ends_with_the_last_of_its_warps() -> None:
    """One warp of a CTA stays; the other CTA reads its shared memory, and it waits for that."""
    meet = "barrier.cluster.arrive; barrier.cluster.wait;"
    kernel = Snippet(
        {
            "start": "mov.u32 %r9, %cluster_ctarank; mov.u32 %r2, a; mov.u32 %r4, 7;",
            "alone": "setp.lt.u32 %p1, %r1, 32; @%p1 bra END;",
            "fill": "st.shared.b32 [%r2], %r4; bar.warp.sync 0xffffffff;",
            "meet": meet,
            "read": "xor.b32 %r5, %r9, 1; mapa.shared::cluster.u32 %r5, %r2, %r5;"
            " ld.shared::cluster.b32 %r6, [%r5];",
            "leave": meet,
            "give": f"{STORE} END:",
        },
        words=(64,),
        grid=2,
        cluster=2,
    )
    (out,), done = kernel.run()
    assert done.diagnostics == []
    assert out[32:].tolist() == [7] * 32


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("seed", [None, 1])
def test_a_wait_that_is_not_asked_again_may_be_answered_no(known: bool, seed: int | None) -> None:
    """A try may time out once, unless all that run it know that the phase has ended."""
    between = "bar.sync 0;" if known else ""
    body = f""".shared .align 8 .b8 bar[8]; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, 0; mov.u32 %o, 0; mov.u32 %r5, 0;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r3], 1; READY: bar.sync 0;
    @%p1 bra ARRIVED; mbarrier.arrive.shared.b64 %rd0, [%r3]; ARRIVED: {between}
    AGAIN: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; selp.u32 %r4, 1, 0, %p2;
    shl.b32 %o, %o, 1; or.b32 %o, %o, %r4; add.u32 %r5, %r5, 1; setp.lt.u32 %p3, %r5, 3; @%p3 bra AGAIN;"""
    out = evaluate(body, [np.zeros(64, np.uint32)], np.uint32, Options(seed=seed))
    assert out.tolist() == [0b111 if known else 0b011] * 64


def test_a_wait_that_nobody_asks_again_is_left_for_those_who_know() -> None:
    """Of two warps the one that arrived knows; the other asks by itself, and does not."""
    body = """.shared .align 8 .b8 bar[8]; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, 0; setp.ge.u32 %p4, %t, 32; mov.u32 %o, 9;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r3], 1; READY: bar.sync 0;
    @%p1 bra ARRIVED; mbarrier.arrive.shared.b64 %rd0, [%r3]; ARRIVED: bar.warp.sync -1;
    @%p4 bra OTHER; mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; selp.u32 %o, 1, 0, %p2; bra END;
    OTHER: mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; selp.u32 %o, 1, 0, %p2; END:"""
    out = evaluate(body, [np.zeros(64, np.uint32)], np.uint32)
    assert out.tolist() == [1] * 32 + [0] * 32


@pytest.mark.parametrize("first", ["", "mbarrier.init.shared.b64 [%r3], 1;"])
@pytest.mark.parametrize(
    "use", ["mbarrier.inval.shared.b64 [%r3];", "mbarrier.arrive.shared.b64 _, [%r3];"]
)
def test_what_is_no_barrier_is_not_used_as_one(first: str, use: str) -> None:
    """Nor is it made invalid."""
    kernel = Snippet(
        {
            "start": "mov.u32 %r3, bars; setp.ne.u32 %p1, %r1, 0; @%p1 bra END;",
            "init": first,
            "use": use,
            "end": "END:",
        }
    )
    _, done = kernel.run()
    kinds = [(d.kind, d.at.line) for d in done.diagnostics]
    assert bool(kinds) is not bool(first)
    assert all(line == kernel.line("use") for _, line in kinds)


@pytest.mark.parametrize("arrivals", [0, 1])
def test_a_test_that_is_answered_no_is_a_wait(arrivals: int) -> None:
    """Of each warp that asks."""
    body = f""".shared .align 8 .b8 bar[8]; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, 0;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r3], 1; {"mbarrier.arrive.shared.b64 %rd0, [%r3];" * arrivals} READY: bar.sync 0;
    mbarrier.test_wait.parity.shared.b64 %p2, [%r3], 0; selp.u32 %o, 1, 0, %p2;"""
    out, done = run(body, [np.zeros(96, np.uint32)], np.uint32)
    assert out.tolist() == [arrivals] * 96
    (pc,) = (i.pc for i in done.counts.program.kernel.instructions if "test_wait" in i.op)
    assert done.counts.waits[pc] == (0 if arrivals else 3)


@pytest.mark.parametrize("arrives", [0, 64])
def test_warps_that_ask_together_all_have_to_know(arrives: int) -> None:
    """Also where they do not follow each other: the second of three asks nothing."""
    body = f""".shared .align 8 .b8 bar[8]; mov.u32 %r3, bar; setp.ne.u32 %p1, %t, {arrives}; shr.u32 %r6, %t, 5; setp.eq.u32 %p4, %r6, 1; mov.u32 %o, 9;
    @%p1 bra READY; mbarrier.init.shared.b64 [%r3], 1; READY: bar.sync 0; @%p4 bra END;
    @%p1 bra ARRIVED; mbarrier.arrive.shared.b64 %rd0, [%r3]; ARRIVED:
    mbarrier.try_wait.parity.shared.b64 %p2, [%r3], 0; selp.u32 %o, 1, 0, %p2; END:"""
    out = evaluate(body, [np.zeros(96, np.uint32)], np.uint32)
    assert out.tolist() == [0] * 32 + [9] * 32 + [0] * 32


#: The second warp fences for itself, and loads by a barrier that the first has made.
READER = Snippet(
    {
        "init": "mov.u32 %r2, a; mov.u32 %r3, bars; setp.ne.u32 %p1, %r1, 0; @!%p1 mbarrier.init.shared.b64 [%r3], 1;",
        "meet": "bar.sync 0;",
        "who": "setp.ne.u32 %p2, %r1, 32; @%p2 bra END;",
        "fence": "fence.proxy.async.shared::cta;",
        "load": f"mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 256; {COPY} [%r2], [%rd0], 256, [%r3];",
        "wait": wait("%r3"),
        "end": "END:",
    },
    words=(64,),
)


@pytest.mark.parametrize(
    "before", ["", "add.u32 %r4, %r1, 1; bar.sync 1;", "bar.sync 1; bar.sync 2;"]
)
@pytest.mark.parametrize(
    ("model", "fence", "found"),
    [(DEFAULT, True, False), (DEFAULT, False, True), (STRICT, True, True), (STRICT, False, True)],
    ids=lambda v: getattr(v, "name", v),
)  # fmt: skip
def test_who_uses_a_barrier_may_have_fenced_it_itself(
    model: Model, fence: bool, found: bool, before: str
) -> None:
    """By assumption, and from the very instruction on that made it."""
    edits = {"init": before + READER.steps["init"]} | ({} if fence else {"fence": ""})
    _, done = READER.run(edits, options=Options(model=model))
    kinds = {(d.kind, d.at.line) for d in done.diagnostics}
    assert kinds == ({("missing-proxy-fence", READER.line("load"))} if found else set())
