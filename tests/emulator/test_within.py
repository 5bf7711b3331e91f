# ruff: noqa: E501  # A PTX statement stays on its line.
"""Races of lanes of one warp: what orders two lanes, and what only looks so."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.options import DEFAULT, FENCED, STRICT, Options
from tests.emulator.events import COPY, INIT, OUT, Snippet, wait

WAYS = [Options(), Options(seed=1), Options(seed=2, model=STRICT)]
ways = pytest.mark.parametrize("options", WAYS, ids=["lowest", "seed", "strict"])
MODELS = pytest.mark.parametrize("model", [DEFAULT, STRICT], ids=lambda m: m.name)
SYNC = "bar.warp.sync -1;"
#: The lane's own word, and that of its neighbor.
WORDS = (
    "mov.u32 %r2, a; mov.u32 %r3, bars; and.b32 %r11, %r1, 31; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; "
    "xor.b32 %r6, %r4, 4; add.u32 %r7, %r2, %r6; cvt.u64.u32 %rd3, %r4; add.u64 %rd4, %rd0, %rd3; "
    "cvt.u64.u32 %rd5, %r6; add.u64 %rd6, %rd0, %rd5; mov.u32 %r8, 7; setp.ne.u32 %p2, %r11, 0; setp.ne.u32 %p1, %r1, 0;"
)
#: What a lane does to its word first, and then to that of its neighbor.
FIRST = {
    "store": "st.shared.u32 [%r5], %r1;",
    "load": "ld.shared.u32 %r8, [%r5];",
    "atomic": "atom.shared.add.u32 %r8, [%r5], %r1;",
    "global store": "st.global.u32 [%rd4], %r1;",
    "global load": "ld.global.u32 %r8, [%rd4];",
    "global atomic": "atom.global.add.u32 %r8, [%rd4], %r1;",
}
THEN = {name: text.replace("%r5", "%r7").replace("%rd4", "%rd6") for name, text in FIRST.items()}
LOADS, ATOMICS = {"load", "global load"}, {"atomic", "global atomic"}
MIDDLES = {
    "nothing": ("", False, False),
    "sync": (SYNC, True, True),
    "barrier": ("bar.sync 0;", True, True),
    "shuffle": ("shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;", True, False),
    "vote": ("vote.sync.ballot.b32 %r9, %p1, -1;", True, False),
    "elect": ("elect.sync %r9|%p4, -1;", False, False),
    "half": ("bar.warp.sync 0xffff;", None, None),
    "fence": ("fence.acq_rel.cta;", False, False),
}


def kernel(first: str, middle: str, then: str) -> Snippet:
    """Two accesses to the same words by neighbors, with something between."""
    if middle == "half":
        between = "setp.gt.u32 %p3, %r11, 15; @%p3 bra LATER; bar.warp.sync 0xffff; LATER:"
    else:
        between = MIDDLES[middle][0]
    return Snippet(
        {
            "start": f"{WORDS} st.shared.u32 [%r5], 0; bar.sync 0;",
            "first": FIRST[first],
            "between": between,
            "then": THEN[then],
            "end": "",
        }
    )


def pairs(snippet: Snippet, options: Options, edits: dict[str, str] | None = None) -> set:
    """Kinds, and the steps of each finding."""
    names = dict(enumerate(snippet.steps, 1))
    _, done = snippet.run(edits, options)
    return {
        (d.kind, names.get(d.other.line) if d.other else None, names[d.at.line])
        for d in done.diagnostics
    }


@MODELS
@given(
    st.sampled_from(sorted(FIRST)), st.sampled_from(sorted(THEN)), st.sampled_from(sorted(MIDDLES))
)
@settings(max_examples=60, deadline=None)
def test_two_lanes_race_unless_something_makes_them_meet(
    model, first: str, then: str, middle: str
) -> None:
    conflict = (
        ("global" in first) == ("global" in then)
        and not {first, then} <= LOADS
        and not {first, then} <= ATOMICS
    )
    ordered = MIDDLES[middle][1 if model is DEFAULT else 2]
    found = pairs(kernel(first, middle, then), Options(model=model))
    raced = conflict and not ordered  # Of a half that meets, the other half does not.
    assert found == ({("warp-race", "first", "then")} if raced else set())


@ways
def test_a_report_names_both_lanes(options) -> None:
    _, done = kernel("store", "nothing", "load").run(options=options)
    (found,) = done.diagnostics
    assert "is written by thread" in found.message
    assert "lane 1)" in found.other_who + found.who
    assert "lane 0)" in found.other_who + found.who
    assert "sync_warp" in found.missing


@ways
def test_a_lane_may_use_its_own_bytes_again(options) -> None:
    snippet = kernel("store", "nothing", "store")
    assert not pairs(
        snippet, options, {"then": "ld.shared.u32 %r9, [%r5]; st.shared.u32 [%r5], 1;"}
    )


@MODELS
@pytest.mark.parametrize(("value", "alike"), [("7", True), ("%r1", False)])
def test_lanes_that_all_store_the_same_word(model, value: str, alike: bool) -> None:
    """Each finds what it stored, if all store the same; by the letter it is a race anyway."""
    edits = {
        "first": f"@!%p3 st.shared.u32 [%r2], {value};",
        "then": "@!%p3 ld.shared.u32 %r9, [%r2];",
    }
    edits["between"] = ""
    edits["start"] = f"{WORDS} setp.gt.u32 %p3, %r1, 31;"
    found = pairs(kernel("store", "nothing", "load"), Options(model=model), edits)
    assert found == (set() if alike and model is DEFAULT else {("warp-race", "first", "then")})


#: Lanes of warp 0 write, one of them arrives for all, and warp 1 reads.
ARRIVAL = Snippet(
    {
        "init": WORDS
        + " "
        + INIT.split("mov.u32 %r3, bars;", 1)[1]
        + " setp.gt.u32 %p3, %r1, 31; @%p3 bra OTHER;",
        "write": "st.shared.u32 [%r5], %r1;",
        "sync": SYNC,
        "arrive": "@!%p2 mbarrier.arrive.shared.b64 _, [%r3];",
        "over": "bra DONE; OTHER:",
        "wait": wait("%r3"),
        "read": "ld.shared.u32 %r9, [%r5+-128];",
        "done": "DONE: bar.sync 0;",
    }
)


@ways
def test_one_lane_arrives_for_its_warp(options) -> None:
    assert not pairs(ARRIVAL, options)
    (found,) = ARRIVAL.run({"sync": ""}, options)[1].diagnostics
    assert (found.kind, found.other.line, found.at.line) == (
        "race",
        ARRIVAL.line("write"),
        ARRIVAL.line("read"),
    )
    assert found.missing.startswith("sync_warp before one lane tells for its warp, at kernel.py:4")


@ways
def test_one_lane_gives_back_what_its_warp_has_read(options) -> None:
    """As consumer_release of NVIDIA's pipelines does; by the letter it takes a bar.warp.sync."""
    written = "st.shared.u32 [%r5], %r1; bar.warp.sync 0xffffffff;"
    reads = {
        "init": ARRIVAL.steps["init"].replace(" setp.gt", f" {written} setp.gt"),
        "write": "ld.shared.u32 %r9, [%r5];",
        "read": "st.shared.u32 [%r5+-128], 1;",
    }
    assert not pairs(ARRIVAL, options, reads)
    found = pairs(ARRIVAL, options, reads | {"sync": ""})
    assert found == ({("race", "write", "read")} if options.model is STRICT else set())


@ways
def test_a_lane_that_arrives_tells_of_what_it_did_itself(options) -> None:
    own = {
        "sync": "",
        "write": "@!%p2 st.shared.u32 [%r5], %r1;",
        "read": "ld.shared.u32 %r9, [%r2];",
    }
    assert not pairs(ARRIVAL, options, own)


@ways
def test_what_one_lane_did_not_tell_of_a_later_barrier_does(options) -> None:
    later = {"sync": "", "read": "", "done": "DONE: bar.sync 0; @!%p3 ld.shared.u32 %r9, [%r7];"}
    assert not pairs(ARRIVAL, options, later)


@ways
def test_each_lane_may_arrive_by_itself(options) -> None:
    each = {"sync": "", "init": ARRIVAL.steps["init"].replace("[%r3], 1;", "[%r3], 32;")}
    assert not pairs(ARRIVAL, options, each | {"arrive": "mbarrier.arrive.shared.b64 _, [%r3];"})
    halves = "@!%p4 mbarrier.arrive.shared.b64 _, [%r3]; @%p4 mbarrier.arrive.shared.b64 _, [%r3];"
    assert not pairs(ARRIVAL, options, each | {"arrive": f"setp.gt.u32 %p4, %r11, 15; {halves}"})


@ways
def test_an_unrelated_arrival_in_between_hides_no_fence(options) -> None:
    """The lanes fence what they wrote, one lane arrives elsewhere, and all arrive for a copy."""
    other = "@!%p2 mbarrier.arrive.shared.b64 _, [%r3+8];"
    edits = {
        "init": ARRIVAL.steps["init"].replace("[%r3], 1;", "[%r3], 32;"),
        "write": "st.shared.u32 [%r5], %r1; fence.proxy.async.shared::cta;",
        "sync": other,
        "arrive": "mbarrier.arrive.shared.b64 _, [%r3];",
        "read": f"@%p2 bra DONE; {OUT} [%rd0], [%r2], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;",
    }
    assert not pairs(ARRIVAL, options, edits)
    unfenced = edits | {"write": "st.shared.u32 [%r5], %r1;"}
    assert {kind for kind, _, _ in pairs(ARRIVAL, options, unfenced)} == {"missing-proxy-fence"}


#: Lanes wait for their own cp.async, and read what others sent for.
COPIED = Snippet(
    {
        "copy": WORDS + " cp.async.ca.shared.global [%r5], [%rd4], 4; cp.async.commit_group;",
        "wait": "cp.async.wait_group 0;",
        "sync": SYNC,
        "read": "ld.shared.u32 %r9, [%r7];",
        "end": "",
    }
)


@ways
@pytest.mark.parametrize("sync", [SYNC, "bar.sync 0;", ""])
def test_each_lane_waits_for_its_own_copies(options, sync: str) -> None:
    raced = set() if sync else {("warp-race", "copy", "read")}
    assert pairs(COPIED, options, {"sync": sync}) == raced
    assert not pairs(COPIED, options, {"sync": sync, "read": "ld.shared.u32 %r9, [%r5];"})


#: One lane stores what its warp wrote, and loads over what its warp read.
ELECTED = Snippet(
    {
        "init": WORDS + " " + INIT.split("mov.u32 %r3, bars;", 1)[1],
        "write": "st.shared.u32 [%r5], %r1; fence.proxy.async.shared::cta;",
        "sync": SYNC,
        "store": f"@!%p2 {OUT} [%rd4], [%r5], 128;",
        "meet": "bar.sync 0;",
        "read": "ld.shared.u32 %r9, [%r5+512];",
        "sync_again": SYNC,
        "load": f"@%p1 bra DONE; mbarrier.arrive.expect_tx.shared.b64 _, [%r3], 128; {COPY} [%r2+512], [%rd0], 128, [%r3];",
        "end": "DONE: bar.sync 0; " + wait("%r3"),
    }
)


@ways
@pytest.mark.parametrize(
    ("left", "raced"),
    [
        ("", set()),
        ("sync", {("warp-race", "write", "store")}),
        ("sync_again", {("warp-race", "read", "load")}),
    ],
)
def test_what_a_unit_does_for_one_lane(options, left: str, raced: set) -> None:
    edits = {
        "meet": "cp.async.bulk.commit_group; cp.async.bulk.wait_group 0; bar.sync 0; st.shared.u32 [%r5+512], 1; bar.sync 0;"
    }
    assert pairs(ELECTED, options, edits | ({left: ""} if left else {})) == raced


@ways
def test_lanes_that_meet_in_parts_are_told_apart(options) -> None:
    """Two halves each meet among themselves: neighbors are ordered, and the halves are not."""
    halves = "setp.gt.u32 %p3, %r11, 15; @%p3 bra HIGH; bar.warp.sync 0x0000ffff; bra ON; HIGH: bar.warp.sync 0xffff0000; ON:"
    snippet = kernel("store", "nothing", "load")
    assert not pairs(snippet, options, {"between": halves})
    one = halves.replace("HIGH: bar.warp.sync 0xffff0000;", "HIGH:")
    assert pairs(snippet, options, {"between": one}) == {("warp-race", "first", "then")}


#: A release of lane 0 on global memory, for what its warp stored.
FLAG = Snippet(
    {
        "start": WORDS + " setp.gt.u32 %p3, %r1, 31; @%p3 bra OTHER;",
        "store": "st.global.u32 [%rd4], 7;",
        "sync": SYNC,
        "flag": "@!%p2 red.release.gpu.global.add.u32 [%rd1], 1;",
        "over": "bra DONE; OTHER:",
        "wait": "ld.acquire.gpu.global.u32 %r9, [%rd1]; setp.eq.u32 %p4, %r9, 1000; @%p4 bra OTHER;",
        "read": "ld.global.u32 %r10, [%rd4+-128]; cvt.u64.u32 %rd7, %r4; add.u64 %rd8, %rd1, %rd7; st.global.u32 [%rd8+128], %r10;",
        "end": "DONE:",
    }
)


@ways
def test_one_lane_tells_of_global_memory(options) -> None:
    assert not pairs(FLAG, options)
    assert pairs(FLAG, options, {"sync": ""}) == {("global-race", "store", "read")}


def test_values_stay_as_they_are() -> None:
    (out, _), _ = kernel("global store", "nothing", "global load").run()
    assert (out[:64] == np.arange(64)).all()


#: A warp fills a word for each lane of another, which one lane of that awaits for all.
AWAITED = Snippet(
    {
        "init": WORDS
        + " "
        + INIT.split("mov.u32 %r3, bars;", 1)[1].replace("[%r3], 1", "[%r3], 32")
        + " setp.gt.u32 %p3, %r1, 31; @%p3 bra OTHER;",
        "write": "st.shared.u32 [%r5+128], %r1;",
        "arrive": "mbarrier.arrive.shared.b64 _, [%r3];",
        "over": "bra DONE; OTHER: @%p2 bra WAITED;",
        "wait": wait("%r3"),
        "waited": "WAITED:",
        "meet": SYNC,
        "use": "ld.shared.u32 %r9, [%r5];",
        "done": "DONE: bar.sync 0;",
    }
)


@pytest.mark.parametrize("model", [FENCED, STRICT], ids=lambda m: m.name)
@pytest.mark.parametrize("use", ["ld.shared.u32 %r9, [%r5];", "st.shared.u32 [%r5], 1;"])
def test_what_one_lane_has_waited_for_the_others_do_not_use(model, use: str) -> None:
    options = Options(model=model)
    assert not pairs(AWAITED, options, {"use": use})
    assert pairs(AWAITED, options, {"use": use, "meet": ""}) == {("race", "write", "use")}
    (found,) = AWAITED.run({"use": use, "meet": ""}, options)[1].diagnostics
    assert "sync_warp after one lane has waited" in found.missing
    assert not pairs(AWAITED, Options(), {"use": use, "meet": ""}), "nor does NVIDIA"


@pytest.mark.parametrize(
    "edits",
    [
        {"use": "@!%p2 ld.shared.u32 %r9, [%r5];", "meet": ""},  # The lane that waited.
        {"over": "bra DONE; OTHER:", "meet": ""},  # All have waited.
        {"meet": "setp.gt.u32 %p4, %r11, 7; @%p4 bra DONE; bar.warp.sync 0xff;"},
        {"meet": "shfl.sync.bfly.b32 %r9, %r1, 1, 31, -1;"},
    ],
    ids=["its own use", "all wait", "those who use it meet", "a shuffle"],
)
def test_lanes_use_what_they_know_to_be_there(edits: dict[str, str]) -> None:
    assert not pairs(AWAITED, Options(model=FENCED), edits)


def test_lanes_that_wait_for_the_same_one_after_the_other_know_it() -> None:
    again = wait("%r3").replace("W:", "V:").replace("bra W", "bra V").replace("D", "E")
    edits = {"waited": f"WAITED: @!%p2 bra ALL; {again} ALL:", "meet": ""}
    assert not pairs(AWAITED, Options(model=FENCED), edits)


#: The same through a word of global memory, of another CTA's values.
FLAGGED = Snippet(
    {
        "start": f"{WORDS} mov.u32 %r10, %ctaid.x; setp.ne.u32 %p5, %r10, 0; @%p5 bra OTHER;",
        "write": "st.global.u32 [%rd4], %r1;",
        "sync": SYNC,
        "tell": "@!%p2 st.release.gpu.global.u32 [%rd1], 7;",
        "over": "bra DONE; OTHER: @%p2 bra WAITED;",
        "spin": "SPIN: ld.acquire.gpu.global.u32 %r8, [%rd1]; setp.ne.u32 %p3, %r8, 7; @%p3 bra SPIN;",
        "waited": "WAITED:",
        "meet": SYNC,
        "use": "ld.global.u32 %r9, [%rd4];",
        "done": "DONE:",
    },
    block=32,
    grid=2,
)


def test_a_flag_that_one_lane_has_seen_orders_nothing_for_the_others() -> None:
    options = Options(model=FENCED)
    assert not pairs(FLAGGED, options)
    assert pairs(FLAGGED, options, {"meet": ""}) == {("global-race", "write", "use")}
    assert not pairs(FLAGGED, Options(), {"meet": ""})
