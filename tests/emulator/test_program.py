# ruff: noqa: E501  # A PTX statement stays on its line.
"""What a program knows of its text: where segments begin and end, layouts, what clusters talk of."""

from __future__ import annotations

import pytest

from mla_var3.emulator.program import (
    Program,
    _branches,
    _local_layout,
    _narrowest_shared,
    _shared_layout,
    _talks,
)
from mla_var3.emulator.units.pending import Operation
from mla_var3.emulator.units.products import ProductText, vector
from mla_var3.gpuless.ptx import parse
from tests.emulator.events import Snippet
from tests.emulator.machines import machine


def program(*steps: str, shared: str = "") -> Program:
    """A program of these instructions alone, and ``ret``."""
    text = Snippet(
        {f"step {i}": step for i, step in enumerate(steps)}, words=(), shared=shared
    ).text()
    return Program(parse(text.replace("mov.u32 %r1, %tid.x;", "")))


def extents(made: Program) -> list[tuple[int, int]]:
    return [(s.start, s.end) for s in made.segments.values()]


@pytest.mark.parametrize(
    ("steps", "wanted"),
    [
        (["add.u32 %r1, %r1, 1;"] * 3, [(0, 3)]),
        (["add.u32 %r1, %r1, 1;", "bar.sync 0;", "add.u32 %r1, %r1, 1;"], [(0, 1), (2, 3)]),
        (["bar.sync 0;", "bar.sync 0;"], []),
        (["add.u32 %r1, %r1, 1;", "L: add.u32 %r1, %r1, 2;", "bra L;"], [(0, 1), (1, 2)]),
        (["add.u32 %r1, %r1, 1;", "bar.warp.sync -1;", "add.u32 %r1, %r1, 1;"], [(0, 1), (1, 3)]),
        (["add.u32 %r1, %r1, 1;", "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;", "add.u32 %r1, %r1, 1;"], [(0, 1), (1, 3)]),
        (["add.u32 %r1, %r1, 1;", "wgmma.wait_group.sync.aligned 0;", "add.u32 %r1, %r1, 1;"], [(0, 1), (1, 2), (2, 3)]),
    ],
)  # fmt: skip
def test_where_segments_begin_and_end(steps: list[str], wanted: list[tuple[int, int]]) -> None:
    made = program(*steps)
    assert extents(made) == wanted
    assert {p for a, b in wanted for p in range(a, b)} | made.blocking == set(range(len(steps) + 1))
    assert all(made.segments[a].together is (a in made.lanes) for a, _ in wanted)


def test_a_segment_is_cut_where_a_run_is_to_stop() -> None:
    made = program(*["add.u32 %r1, %r1, 1;"] * 5)
    whole = made.segments
    made.cut({0, 5})  # One begins there already, and the other is the end.
    assert made.segments is whole
    made.cut({2, 4})
    assert extents(made) == [(0, 2), (2, 4), (4, 5)]


@pytest.mark.parametrize(
    ("op", "blocks"),
    [
        ("bra L;", True), ("bar.sync 0;", True), ("bar.warp.sync -1;", False), ("barrier.cluster.arrive;", True),
        ("bar.arrive 1, 64;", True), ("bar.red.popc.u32 %r1, 1, %p1;", True), ("ret;", True), ("exit;", True), ("trap;", True),
        ("mbarrier.try_wait.parity.shared::cta.b64 %p1, [%r1], 0;", True), ("mbarrier.test_wait.shared.b64 %p1, [%r1], %rd1;", True),
        ("mbarrier.arrive.shared.b64 _, [%r1];", False), ("add.u32 %r1, %r1, 1;", False), ("brkpt;", False),
    ],
)  # fmt: skip
def test_where_threads_may_stop(op: str, blocks: bool) -> None:
    made = program(f"L: {op}")
    assert _branches(made.kernel.instructions[0]) is blocks
    assert (0 in made.blocking) is blocks


@pytest.mark.parametrize(
    ("op", "talks"),
    [
        ("atom.global.add.u32 %r1, [%rd1], 1;", True), ("red.global.add.u32 [%rd1], 1;", True), ("atom.add.u32 %r1, [%rd1], 1;", True),
        ("atom.shared.add.u32 %r1, [%r2], 1;", False), ("red.shared::cluster.add.u32 [%r2], 1;", False),
        ("ld.global.u32 %r1, [%rd1];", False), ("ld.volatile.global.u32 %r1, [%rd1];", True), ("ld.acquire.gpu.global.u32 %r1, [%rd1];", True),
        ("ld.relaxed.gpu.u32 %r1, [%rd1];", True), ("ld.volatile.shared.u32 %r1, [%r2];", False), ("st.release.gpu.global.u32 [%rd1], %r1;", False),
    ],
)  # fmt: skip
def test_what_clusters_may_wait_for_each_other_by(op: str, talks: bool) -> None:
    made = program(op)
    assert _talks(made.kernel.instructions[0]) is made.spins is talks


@pytest.mark.parametrize(
    ("op", "narrow"),
    [
        ("ld.shared.u8 %h1, [%r1];", 1), ("st.shared.b16 [%r1], %h1;", 2), ("ld.shared.u32 %r2, [%r1];", 4), ("ld.shared.v2.u64 {%rd1, %rd2}, [%r1];", 4),
        ("ld.u8 %h1, [%rd1];", 1), ("ld.global.u8 %h1, [%rd1];", 4), ("st.local.u8 [%rd1], %h1;", 4), ("atom.shared.cas.b16 %h1, [%r1], %h2, %h3;", 2),
        ("ld.param.u8 %h1, [%rd1];", 4), ("add.u16 %h1, %h1, %h2;", 4), ("red.shared.add.noftz.f16 [%r1], %h1;", 2),
    ],
)  # fmt: skip
def test_the_narrowest_access_to_shared_memory(op: str, narrow: int) -> None:
    made = program(op)
    assert _narrowest_shared(made.kernel) == made.narrowest == narrow


def test_shared_variables_lie_one_after_the_other_at_their_alignment() -> None:
    shared = ".extern .shared .align 128 .b8 dynamic[]; .shared .align 4 .b8 first[10]; .shared .align 64 .b8 second[70]; .shared .align 8 .b8 third[8];"
    made = program("bar.sync 0;", shared=shared)
    placed, end = _shared_layout(made.kernel)
    by = {name.partition("@")[0]: at for name, at in placed.items()}
    # What has no size comes last.
    assert by == {"first": 0x400, "second": 0x440, "third": 0x488, "dynamic": 0x500}
    assert end == made.static_shared == 0x500
    assert _shared_layout(program("bar.sync 0;").kernel) == ({}, 0x400)


def test_local_variables_lie_one_after_the_other_at_eight_bytes_at_least() -> None:
    shared = ".local .align 4 .b8 first[10]; .local .align 16 .b8 second[20]; .local .align 8 .b8 third[4];"
    placed, end = _local_layout(program("bar.sync 0;", shared=shared).kernel)
    assert {name.partition("@")[0]: at for name, at in placed.items()} == {
        "first": 0,
        "second": 16,
        "third": 40,
    }
    assert end == 44


def test_kernels_of_pairs_and_those_that_take_others_work() -> None:
    plain = program("bar.sync 0;")
    assert (plain.pairs, plain.claims, plain.atomics) == (False, False, [])
    pair = program("tcgen05.relinquish_alloc_permit.cta_group::2.sync.aligned;")
    assert (
        pair.pairs,
        program("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;").pairs,
    ) == (True, False)
    claim = program(
        "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%r1], [%r2];"
    )
    assert claim.claims
    counts = program(
        "atom.shared.add.u32 %r1, [%r2], 1;",
        "add.u32 %r1, %r1, 1;",
        "red.global.add.u32 [%rd1], 1;",
    )
    assert counts.atomics == [0, 2]


TRY = "W: mbarrier.try_wait.parity.shared.b64 %p1, [%r1], 0;"


@pytest.mark.parametrize(
    ("steps", "retries"),
    [
        ([TRY, "@!%p1 bra W;"], True),
        ([TRY, "@%p1 bra D;", "bra W;", "D:"], True),
        ([TRY, "@%p1 bra D;", "nanosleep.u32 20;", "bra W;", "D:"], False),
        ([TRY, "@%p1 bra W;"], False),
        ([TRY, "@!%p2 bra W;"], False),
        ([TRY, "add.u32 %r2, %r2, 1;", "@!%p1 bra W;"], False),
        ([TRY], False),
        ([TRY.replace("try_wait", "test_wait"), "@!%p1 bra W;"], False),
        ([TRY.replace("W: ", "W: @%p2 "), "@!%p1 bra W;"], False),
    ],
)
def test_waits_whose_no_only_leads_back_to_them(steps: list[str], retries: bool) -> None:
    assert program(*steps).retries == ({0: 1} if retries else {})


STEP = "add.u32 %r1, %r1, 1;"


@pytest.mark.parametrize(
    ("between", "short"),
    [
        ([STEP], True),
        ([STEP] * 64, True),
        ([STEP] * 65, False),
        ([STEP, "bar.sync 0;"], False),
        ([STEP, "shfl.sync.idx.b32 %r1, %r2, 0, 31, -1;"], False),
        ([STEP, "st.shared.u32 [%r2], %r1;", STEP], True),
    ],
)
def test_branches_that_jump_over_a_few_instructions(between: list[str], short: bool) -> None:
    made = program("@%p1 bra D;", *between, "D: " + STEP)
    assert made.passes(0, made.kernel.labels[made.kernel.instructions[0].args[0]]) is short
    assert program("D: " + STEP, "@%p1 bra D;").passes(1, 0) is False


# Registers that units hold ------------------------------------------------------------------------
MMA = "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {acc}, %rd{a}, %rd{b}, 1, 1, 1, 0, 0;"


def product(acc: str = "{%f1, %f2, %f3, %f4}", a: object = 1, b: object = 2) -> str:
    return MMA.format(acc=acc, a=a, b=b)


#: A product whose sum goes on where a predicate says so.
GUARDED = product().replace(" 1, 1, 1,", " %p2, 1, 1,")


def chained(*steps: str, lines: bool = True) -> tuple[set[int], set[int]]:
    """Queued and following products; all steps stand at one Python line, or none has one."""
    text = "\n".join([".loc 1 7 0"] * lines + list(steps))
    made = (
        program(text)
        if lines
        else Program(
            parse(
                Snippet({"x": text}, words=())
                .text()
                .replace(".loc 1 1 0", "")
                .replace("mov.u32 %r1, %tid.x;", "")
            )
        )
    )
    found = made.text(ProductText)
    return found.queued, found.followers


@pytest.mark.parametrize(
    ("steps", "queued", "followers"),
    [
        ([product()], set(), set()),
        ([product(), product(a=3, b=4)], {0}, {1}),
        ([product(), product(a=3), product(a=5)], {0, 1}, {1, 2}),
        ([product(), product(acc="{%f5, %f6, %f7, %f8}")], set(), set()),
        ([product(), "add.f32 %f9, %f9, %f9;", product(a=3)], {0}, {2}),
        ([product(), "add.f32 %f1, %f9, %f9;", product(a=3)], set(), set()),
        ([product(), "add.u64 %rd1, %rd1, 2;", product()], set(), set()),
        ([GUARDED, "setp.ne.u32 %p1|%p2, %r1, 0;", GUARDED], set(), set()),
        ([GUARDED, GUARDED], {0}, {1}),
        ([product(), "add.u64 %rd2, %rd2, 1;", product()], set(), set()),
        ([product(), "add.u64 %rd3, %rd2, 1;", product(b=3)], {0}, {2}),
        ([product(), "ld.shared.u32 %r2, [%r3];", product(a=3)], set(), set()),
        ([product(), "bar.sync 0;", product(a=3)], set(), set()),
        ([product(), "L: " + product(a=3)], set(), set()),
        ([product(), "@%p1 " + product(a=3), product(a=5)], set(), set()),
    ],
)  # fmt: skip
def test_products_of_one_accumulator_are_a_chain(
    steps: list[str], queued: set[int], followers: set[int]
) -> None:
    assert chained(*steps) == (queued, followers)


def test_products_at_two_lines_are_no_chain() -> None:
    made = program(product(), product(a=3))  # Each step has a line of its own.
    assert made.text(ProductText).queued == set()


def test_rows_that_units_hold_follow_each_other() -> None:
    made = program(
        "mov.u32 %r9, 0;",
        product(),
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f5, %f6, %f7, %f8}, {%r1, %r2, %r3, %r4}, %rd1, 1, 1, 1, 0;",
    )
    names = [*(f"%f{i}" for i in range(1, 9)), *(f"%r{i}" for i in range(1, 5))]
    assert made.text(ProductText).registers() == names
    assert [made.row(n) for n in names] == [("r", i) for i in range(12)]
    assert made.watched == frozenset(range(12))
    assert vector("{%r1,%r2 , %r3}") == ["%r1", "%r2", "%r3"]
    assert vector("%r1") == ["%r1"]


def test_a_segment_names_the_rows_that_it_reads_and_writes() -> None:
    made = program(
        product(),
        "add.f32 %f1, %f2, %f2;",
        "mov.f32 %f3, %f4;",
        "add.f32 %f2, %f1, %f9;",
        "st.shared.f32 [%r1], %f4;",
    )
    (_, after) = made.segments.values()
    # A plain move touches no accumulator: ptxas removes it.
    assert after.writes == {0: 1, 1: 3}
    assert after.reads == {1: 1, 0: 3, 3: 4}


def test_registers_are_held_until_their_operation_is_waited_for() -> None:
    m = machine(
        (64, 1, 1), snippet=Snippet({"a": "add.u32 %r1, %r1, 1;", "b": "add.u32 %r2, %r1, 1;"})
    )
    operation, other = (Operation(name, "pending-accumulator", "a wait") for name in ("a x", "a y"))
    (segment, *_) = m.program.segments.values()
    pending = m.pending
    segment.reads.update({3: 0})
    segment.writes.update({4: 1})
    for outputs, inputs, found in (
        ((3,), (), 1),
        ((4,), (), 1),
        ((), (3,), 0),
        ((), (4,), 1),
        ((5,), (6,), 0),
    ):
        m.reporter.found.clear()
        pending.hold(1, operation, 7, outputs, inputs, 2)
        pending.watch([0], segment)
        assert m.reporter.diagnostics == []
        pending.watch([0, 1], segment)
        assert len(m.reporter.diagnostics) == found
        assert pending.count == 1
        pending.release(0, operation, 9)
        pending.release(1, other, 9)
        pending.release(1, operation, 6)
        assert pending.count == 1
        pending.release(1, operation, 7)
        assert (pending.count, pending.held) == (0, [[], []])
    assert pending.written == [{4: 1}, {4: 1}]
    pending.hold(1, operation, 7, (4,), (), 2)
    pending.watch([1], segment)
    (one,) = m.reporter.diagnostics
    assert one.message == "warp 1 touches a register of a x that may still run"
    assert (one.kind, one.at.pc, one.other.pc, one.who, one.missing) == (
        "pending-accumulator",
        1,
        2,
        "warp 1",
        "a wait",
    )


def test_to_touch_a_register_may_be_to_wait() -> None:
    m, told = machine((64, 1, 1), snippet=Snippet({"a": "add.u32 %r1, %r1, 1;"})), []
    loading = Operation(
        "a load", "pending-load", "", lambda warp, number: told.append((warp, number))
    )
    strict = Operation("a x", "pending-accumulator", "a wait")
    (segment, *_) = m.program.segments.values()
    segment.reads.update({3: 0})
    m.pending.hold(0, loading, 4, (3,), (), 0)
    m.pending.hold(0, loading, 5, (3,), (), 0)
    m.pending.hold(0, strict, 1, (3,), (), 0)
    m.pending.watch([0, 1], segment)
    assert told == [(0, 4), (0, 5)]
    assert [d.kind for d in m.reporter.diagnostics] == ["pending-accumulator"]
