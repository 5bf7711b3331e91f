"""A launch on a clock: rates of the table, resources that are shared, and who waits for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.emulator import launch
from mla_var3.emulator.durations import Durations
from mla_var3.emulator.options import Options
from mla_var3.emulator.replay import Replay, Span
from mla_var3.emulator.trace import Trace
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import Instruction
from tests.emulator.kernels import GEMM, PAIR, RING

TABLE = Durations(terms=64, load=1, peer=1, global_latency=10, peer_latency=5, word_latency=7)


def instruction(pc: int, op: str) -> Instruction:
    return Instruction(pc, op, (), None, False, None, op, tuple(op.split(".")))


#: Two cycles each at 64 results per cycle and multiprocessor.
PLAIN = [instruction(pc, "add.s32") for pc in range(8)]


def played(trace: Trace, instructions: Sequence[Instruction] = PLAIN) -> list[Span]:
    return Replay(trace.close(), instructions, TABLE).spans


def times(spans: list[Span], what: str) -> list[tuple[int, float, float]]:
    return [(s.warp, s.start, s.end) for s in spans if s.what == what]


def test_warps_go_on_by_themselves_and_wait_for_the_last_at_a_barrier() -> None:
    trace = Trace(4)
    trace.run(0, [0, 1], 0, 4)
    trace.add(0, [0], "arrive", 1, "all")
    trace.add(0, [0], "wait", 1, "all")
    trace.add(0, [1], "arrive", 3, "all")
    spans = played(trace)
    assert times(spans, "run") == [(0, 0, 4), (1, 0, 8), (0, 8, 12)]
    assert times(spans, "wait") == [(0, 4, 8)]


def test_products_of_two_warpgroups_follow_each_other() -> None:
    trace = Trace(8)
    for first in (0, 4):
        trace.product(0, first, 100, 0)
        trace.add(0, range(first, first + 4), "commit", 0)
        trace.add(0, range(first, first + 4), "settle", 0, amount=0)
    spans = played(trace)
    assert times(spans, "product") == [(0, 0, 100), (4, 100, 200)]
    assert {end for warp, _, end in times(spans, "wait") if warp >= 4} == {200}


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("left", [0, 1, 2, 3, 4])
def test_all_groups_of_products_but_the_last_so_many_are_waited_for(groups: int, left: int) -> None:
    """Those that are waited for are not waited for again, whatever comes behind them."""
    trace = Trace(4)
    for _ in range(groups):
        trace.product(0, 0, 100, 0)
        trace.add(0, range(4), "commit", 0)
    trace.add(0, range(4), "settle", 0, amount=left)
    trace.run(0, [0], 0, 1)
    trace.add(0, range(4), "settle", 0, amount=0)
    spans = played(trace)
    over = 100 * max(groups - left, 0)
    (issued,) = [s.start for s in spans if s.what == "run"]
    assert issued == over
    waits = [(start, end) for warp, start, end in times(spans, "wait") if warp == 1]
    assert waits == [w for w in ((0, over), (over, 100 * groups)) if w[0] < w[1]]


def test_a_product_starts_with_the_last_of_its_warps() -> None:
    trace = Trace(4)
    trace.run(0, [3], 0, 3)
    trace.product(0, 0, 10, 2)
    assert times(played(trace), "product") == [(0, 6, 16)]


def test_copies_share_the_way_in_and_come_late() -> None:
    trace = Trace(4)
    trace.copy(0, 0, "a", 20, 0, 0)
    trace.copy(0, 1, "b", 30, 0, 0)
    trace.add(0, [2], "wait", 0, "b")
    assert times(played(trace), "wait") == [(2, 0, 20 + 30 + 10)]


def test_bytes_of_one_instruction_are_one_copy() -> None:
    trace = Trace(4)
    for _ in range(3):
        trace.copy(0, 0, "a", 4, 0, 0)
    assert [step.amount for step in trace.steps[0, 0]] == [12]


def test_a_copy_from_the_peer_has_a_way_of_its_own() -> None:
    instructions = [instruction(0, "st.async.weak"), instruction(1, "cp.async.bulk.tensor")]
    trace = Trace(1)
    trace.copy(0, 0, "near", 20, 0, 1)
    trace.copy(0, 0, "far", 20, 1, 1)
    trace.add(0, [1], "wait", 0, "near")
    trace.add(0, [2], "wait", 1, "far")
    assert [end for *_, end in times(played(trace, instructions), "wait")] == [25, 30]


def test_who_asks_for_a_word_again_and_again_has_waited_once() -> None:
    import numpy as np

    at, warp = np.array([64]), np.array([0])
    trace = Trace(1)
    trace.run(1, [0], 0, 3)
    trace.write_words(1, at, warp, 2)
    for _ in range(5):
        trace.run(0, [0], 4, 6)
        trace.read_words(0, at, warp, 4)
    kinds = [step.kind for step in trace.close().steps[0, 0]]
    assert kinds == ["run", "wait", "run"]
    spans = Replay(trace, PLAIN, TABLE).spans
    assert [(s.cta, s.start, s.end) for s in spans if s.what == "wait"] == [(0, 2, 6 + 7)]


def test_stores_of_a_group_are_waited_for() -> None:
    trace = Trace(1)
    trace.add(0, [0], "store", 0, amount=40)
    trace.add(0, [0], "store commit", 0)
    trace.add(0, [0], "store wait", 0, amount=0)
    assert times(played(trace), "wait") == [(0, 0, 40)]


def test_what_nobody_tells_cannot_be_waited_for_for_ever() -> None:
    trace = Trace(2)
    trace.add(0, [0], "wait", 3, "b")
    trace.add(0, [0], "arrive", 0, "a")
    trace.add(0, [1], "wait", 5, "a")
    trace.add(0, [1], "arrive", 0, "b")
    with pytest.raises(EmulatorError, match="2 warps wait for what it does not hold"):
        played(trace)


@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.integers(1, 4))
def test_more_time_for_anything_ends_nothing_earlier(runs: list[int], slower: int) -> None:
    def end(table: Durations) -> float:
        trace = Trace(4)
        for i, length in enumerate(runs):
            trace.run(0, [i % 4], 0, length)
            trace.copy(0, i % 4, i, 16 * length, 0, 0)
            trace.add(0, [(i + 1) % 4], "wait", 0, i)
        return Replay(trace.close(), PLAIN, table).end

    assert end(replace(TABLE, load=TABLE.load / slower)) >= end(TABLE)


@pytest.mark.parametrize("kernel", [RING, GEMM, PAIR], ids=["ring", "gemm", "pair"])
@pytest.mark.parametrize("seed", [None, 3])
def test_kernels_are_put_on_a_clock(kernel, seed: int | None) -> None:
    _, done = kernel.run(options=Options(timeline=True, seed=seed))
    assert done.trace is not None
    replay = Replay(done.trace, done.counts.program.kernel.instructions)
    assert replay.end > 0
    last: dict[tuple[int, int], float] = {}
    for s in sorted((s for s in replay.spans if s.what in ("run", "wait")), key=lambda s: s.start):
        assert s.end > s.start >= last.get((s.cta, s.warp), 0.0)  # A warp does one thing at a time.
        last[s.cta, s.warp] = s.end
    assert {s.what for s in replay.timeline().spans} <= {
        "run", "wait", "wgmma", "TMA load", "TMA store",
    }  # fmt: skip


@pytest.mark.parametrize("seed", [None, 3])
def test_products_of_a_trace_have_all_terms(seed: int | None) -> None:
    """Of each warpgroup's products, however many of them are one."""
    _, done = GEMM.run(options=Options(timeline=True, seed=seed))
    assert done.trace is not None
    terms = {
        who: sum(step.amount for step in steps if step.kind == "product")
        for who, steps in done.trace.steps.items()
    }
    assert set(terms.values()) - {0} == {64 * 256}
    assert sum(terms.values()) == 4 * done.counts.tensor_flops // (2 * 64)


def test_a_warp_that_is_not_full_is_one_of_its_cta() -> None:
    text = (
        ".version 8.8\n.target sm_90a\n.address_size 64\n.visible .entry k(.param .u64 x)\n"
        "{\n.reg .b32 %r<2>;\nmov.u32 %r1, %tid.x;\nadd.u32 %r1, %r1, 1;\n"
        "bar.sync 0;\nadd.u32 %r1, %r1, 1;\nret;\n}\n"
    )
    done = launch(text, [0], 2, 33, cluster=2, options=Options(timeline=True))
    assert done.trace is not None
    replay = Replay(done.trace, done.counts.program.kernel.instructions)
    assert {(s.cta, s.warp) for s in replay.spans} == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_what_copies_bring_takes_their_bytes_over_the_rate() -> None:
    _, done = RING.run(options=Options(timeline=True))
    assert done.trace is not None
    instructions = done.counts.program.kernel.instructions
    moved = sum(
        step.amount for steps in done.trace.steps.values() for step in steps if step.kind == "copy"
    )
    assert moved == done.counts.total_bytes("global read")
    slow = Replay(done.trace, instructions, replace(Durations(), load=0.1)).end
    assert slow >= moved / 0.1


def test_loads_of_a_warp_are_in_flight_together_until_it_meets_another() -> None:
    instructions = [*PLAIN[:6], instruction(6, "ld.global.f32"), instruction(7, "ld.global.f32")]
    trace = Trace(2)
    trace.run(0, [0], 6, 7)
    trace.run(0, [0], 7, 8)
    trace.add(0, [0], "arrive", 7, "loaded")
    trace.add(0, [1], "wait", 7, "loaded")
    replay = Replay(trace.close(), instructions, TABLE)
    each = TABLE.memory(instructions[6])
    assert times(replay.spans, "wait") == [(0, 2 * each, 2 * each + 10), (1, 0, 2 * each + 10)]


def test_the_other_ctas_shared_memory_is_slower_than_the_own() -> None:
    own, other = (instruction(0, f"st.shared{to}.v4.f32") for to in ("", "::cluster"))
    table = Durations()
    assert table.memory(other) == table.memory(own) * table.shared / table.peer


def test_warps_are_of_their_cluster_and_cta() -> None:
    """Two clusters of two CTAs of two warps; a timeline has those of the first."""
    trace = Trace(2)
    for cluster in (0, 1):
        trace.run(cluster, [0, 1, 2, 3], 0, 2 + 2 * cluster)
    replay = Replay(trace.close(), PLAIN, TABLE)
    found = {(s.cta, s.warp, s.start, s.end) for s in replay.spans}
    assert found == {(cta, warp, 0, 4 + 4 * (cta // 2)) for cta in range(4) for warp in range(2)}
    assert replay.end == 8
    drawn = [(s.warp, s.start, s.end) for s in replay.timeline().spans]
    assert sorted(drawn) == [(warp, 0, 4) for warp in range(4)]


def test_a_copy_goes_to_the_cta_that_it_is_for() -> None:
    """Two copies into one CTA follow each other, one into each goes on beside the other."""
    for ctas, ends in (((0, 0), {30, 50}), ((0, 1), {30})):
        trace = Trace(1)
        for warp, cta in enumerate(ctas):
            trace.copy(0, warp, f"bytes {warp}", 20, 0, cta)
        spans = played(trace, [instruction(0, "cp.async.bulk.shared::cluster.global"), *PLAIN[1:]])
        assert {s.end for s in spans if s.what == "load"} == ends
        assert sorted(s.cta for s in spans if s.what == "load") == [0, 1]


def test_a_commit_arrives_once_its_threads_products_are_done():
    """Two products of 64 rows and 100 terms follow each other; the second is of both CTAs."""
    trace = Trace(4)
    trace.tensor(0, 0, (0,), 60, 0)
    trace.tensor(0, 0, (0,), 40, 0)
    trace.tensor(0, 4, (0, 1), 100, 1)
    trace.add(0, [4], "told", 1, "done")
    trace.add(0, [1], "wait", 0, "done")
    spans = played(trace)
    assert [(s.start, s.end) for s in spans if s.what == "product"] == [(0, 100), (100, 200)]
    assert times(spans, "wait") == [(1, 0, 200)]


def test_the_clock_of_tensor_memory_is_that_of_compute_capability_10():
    assert Durations.of(PLAIN).terms == 2048
    mma = instruction(0, "tcgen05.mma.cta_group::1.kind::f16")
    assert Durations.of([mma]).terms == 4096
    load = replace(
        instruction(0, "tcgen05.ld.sync.aligned.32x32b.x2.b32"), args=("{%r1, %r2}", "[%r3]")
    )
    assert Durations().issue(load) == 2


@pytest.mark.parametrize("stuck", [1, 2, 3])
def test_the_first_of_those_that_wait_for_ever_is_named(stuck: int) -> None:
    trace = Trace(4)
    trace.run(0, [3], 0, 2)
    for warp in range(stuck):
        trace.add(0, [warp], "wait", 4 + warp, f"its own {warp}")
        trace.add(0, [warp], "arrive", 0, f"its own {warp}")
    said = f"{stuck} warps wait for what it does not hold, the first at instruction 4"
    with pytest.raises(EmulatorError, match=said):
        played(trace)


@pytest.mark.parametrize("between", [1, 2, 3, 4])
@pytest.mark.parametrize("rounds", [1, 2, 5])
def test_a_loop_of_any_length_that_asks_for_a_word_has_waited_once(
    between: int, rounds: int
) -> None:
    """Whatever runs between two looks, the last of them stands, behind what came before."""
    import numpy as np

    at, warp = np.array([64]), np.array([0])
    trace = Trace(1)
    trace.run(0, [0], 0, 1)
    trace.write_words(1, at, warp, 2)
    for _ in range(rounds):
        trace.run(0, [0], 2, 3)
        trace.read_words(0, at, warp, 2)
        for step in range(between):
            trace.run(0, [0], 3 + step, 4 + step)
    steps = trace.close().steps[0, 0]
    kinds = [step.kind for step in steps]
    assert kinds.count("wait") == 1
    assert kinds[kinds.index("wait") + 1 :] == ["run"] * between
    assert [s.pc for s in steps[kinds.index("wait") + 1 :]] == [3 + i for i in range(between)]
