# ruff: noqa: E501  # A PTX statement stays on its line.
"""Each asynchronous operation ends by what PTX says and by nothing else."""

from dataclasses import replace

import numpy as np
import pytest

from mla_var3.emulator.clusters import Launch
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import DEFAULT, STRICT, Model, Options
from mla_var3.emulator.regions import Region
from tests.emulator.events import (
    FILLED_BY_PEERS,
    NEXT_GRID,
    PEERS,
    RELEASE,
    STORE_AND_FLAG,
    THROUGH_GLOBAL,
    TWO_LOADS,
    TWO_STORES,
    WRITTEN_THEN_LOADED,
    Snippet,
)

WAYS = [Options(), Options(seed=1), Options(seed=2, model=STRICT)]
ways = pytest.mark.parametrize("options", WAYS, ids=["lowest", "seed", "strict"])


def lines(done: Launch, kind: str = "race") -> set[tuple[int | None, int | None]]:
    """The lines of the findings of one kind."""
    found = [d for d in done.diagnostics if d.kind == kind]
    return {(d.at.line, d.other.line if d.other else None) for d in found}


def raced(snippet: Snippet, edits: dict[str, str], options: Options, kind: str = "race") -> set:
    """The steps between which a kernel with some steps replaced races."""
    names = dict(enumerate(snippet.steps, 1))
    _, done = snippet.run(edits, options)
    return {tuple(names.get(n) for n in pair) for pair in lines(done, kind)}


@ways
def test_two_loads_two_mbarriers_two_waits(options):
    (_, out), done = TWO_LOADS.run(options=options)
    assert not done.diagnostics, done.diagnostics[0]
    assert out[5] == 5 + 69


@ways
@pytest.mark.parametrize("left", ["first", "second"])
def test_a_wait_for_one_load_says_nothing_of_another(options, left):
    take = {"first": "take", "second": "take_second"}[left]
    assert raced(TWO_LOADS, {f"wait_{left}": ""}, options) == {(take, left)}


@ways
def test_stores_of_two_groups_are_waited_for_in_order(options):
    _, done = TWO_STORES.run(options=options)
    assert not done.diagnostics, done.diagnostics[0]


@ways
def test_a_buffer_under_its_store(options):
    found = raced(TWO_STORES, {"wait_second": ""}, options)
    assert ("again_second", "store_second") in found
    assert not any("store_first" in pair for pair in found)
    found = raced(TWO_STORES, {"wait_first": "cp.async.bulk.wait_group.read 2;"}, options)
    assert found == {("again_first", "store_first")}


@ways
def test_a_group_is_waited_for_by_the_thread_that_committed_it(options):
    other = "setp.ne.u32 %p2, %r1, 1; @!%p2 cp.async.bulk.wait_group.read 0;"
    found = raced(TWO_STORES, {"wait_second": other}, options)
    assert ("again_second", "store_second") in found


@ways
def test_a_store_in_no_group_is_waited_for_by_nobody(options):
    found = raced(TWO_STORES, {"commit_second": "", "wait_first": ""}, options)
    assert ("again_second", "store_second") in found


@ways
@pytest.mark.parametrize("snippet", [STORE_AND_FLAG, THROUGH_GLOBAL, WRITTEN_THEN_LOADED])
def test_order_in_global_memory(options, snippet):
    _, done = snippet.run(options=options)
    assert not done.diagnostics, done.diagnostics[0]


@ways
@pytest.mark.parametrize("wait", ["", "cp.async.bulk.wait_group.read 0;"])
def test_a_store_is_complete_before_its_flag(options, wait):
    found = raced(STORE_AND_FLAG, {"complete": wait}, options, "global-race")
    assert found == {("take", "store")}


@ways
def test_warps_of_a_cta_race_in_global_memory(options):
    found = raced(THROUGH_GLOBAL, {"barrier": ""}, options, "global-race")
    assert found in ({("read", "write")}, {("write", "read")})


@ways
@pytest.mark.parametrize("fence", ["", "fence.proxy.async.shared::cta;"])
def test_bytes_that_threads_wrote_reach_a_load_past_a_fence_for_global(options, fence):
    found = raced(WRITTEN_THEN_LOADED, {"fence": fence}, options, "missing-proxy-fence")
    assert found == {("load", "write")}


@ways
@pytest.mark.parametrize(
    ("fence", "enough"),
    [
        ("fence.proxy.async.shared::cluster;", True),
        ("fence.proxy.async;", True),
        ("fence.proxy.async.shared::cta;", False),
        ("fence.proxy.async.global;", False),
        ("", False),
    ],
)
def test_bytes_written_for_another_cta_reach_its_store_past_a_fence_for_the_cluster(
    options, fence, enough
):
    """A fence for a CTA's own shared memory says nothing of what its threads wrote elsewhere."""
    arrays, done = FILLED_BY_PEERS.run({"fence": fence}, options)
    assert arrays[0].tolist() == [*range(64)] * 2
    found = {("store", "write")} if not enough else set()
    assert raced(FILLED_BY_PEERS, {"fence": fence}, options, "missing-proxy-fence") == found
    assert {d.kind for d in done.diagnostics} == ({"missing-proxy-fence"} if found else set())
    own = {"fence": fence, "write": "st.shared.u32 [%r5], %r1;"}
    enough = enough or "cta" in fence
    found = set() if enough else {("store", "write")}
    assert raced(FILLED_BY_PEERS, own, options, "missing-proxy-fence") == found


@ways
def test_who_stores_its_own_memory_may_fence_what_others_wrote_there(options):
    """By assumption, as where the writer is of the same CTA; strict asks the writer for it."""
    late = {"fence": "", "late": "fence.proxy.async.shared::cta;"}
    found = {("store", "write")} if options.model is STRICT else set()
    assert raced(FILLED_BY_PEERS, late, options, "missing-proxy-fence") == found


@pytest.mark.parametrize("left_out", ["meet", "part"])
@pytest.mark.parametrize(
    "take",
    [
        "ld.shared::cluster.u32 %r6, [%r9];",
        "st.shared::cluster.u32 [%r9], %r1;",
        "atom.shared::cluster.add.u32 %r6, [%r9], 1;",
        "red.shared::cluster.add.u32 [%r9], 1;",
    ],
)
def test_whatever_touches_another_cta_s_memory_has_to_know_that_it_is_there(
    take: str, left_out: str
) -> None:
    """It has begun, and has not ended; what is its own is always there."""
    _, done = PEERS.run({"take": take})
    assert "cluster-exit" not in {d.kind for d in done.diagnostics}
    _, done = PEERS.run({"take": take, left_out: "bar.sync 0;"})
    said = [d.message for d in done.diagnostics if d.kind == "cluster-exit"]
    what = {"meet": "has begun", "part": "has not ended"}[left_out]
    assert any(m.endswith(f"nothing says that the CTA {what}") for m in said)
    assert {d.at.line for d in done.diagnostics if d.kind == "cluster-exit"} == {PEERS.line("take")}
    own = take.replace("[%r9]", "[%r5]")
    _, done = PEERS.run({"take": own, left_out: "bar.sync 0;"})
    assert "cluster-exit" not in {d.kind for d in done.diagnostics}


@ways
@pytest.mark.parametrize("snippet", [PEERS, RELEASE], ids=["peers", "release"])
@pytest.mark.parametrize("seed", range(3))
def test_ctas_of_a_cluster_meet_before_and_after(options, snippet, seed):
    _, done = snippet.run(options=replace(options, seed=seed))
    assert not done.diagnostics, done.diagnostics[0]


@ways
@pytest.mark.parametrize("part", ["", "bar.sync 0;"])
def test_a_cta_may_not_end_while_others_read_its_memory(options, part):
    _, done = PEERS.run({"part": part}, options)
    assert {(d.kind, d.at.line) for d in done.diagnostics} == {("cluster-exit", PEERS.line("take"))}
    assert "has not ended" in done.diagnostics[0].message


@ways
def test_arrivals_that_order_execution_alone_keep_a_cta(options):
    relaxed = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
    _, done = PEERS.run({"part": relaxed}, options)
    strict = options.model is STRICT
    assert {d.kind for d in done.diagnostics} == ({"cluster-exit"} if strict else set())


@ways
def test_a_cta_has_begun_before_others_read_its_memory(options):
    _, done = PEERS.run({"meet": "bar.sync 0;"}, options)
    found = {d.kind for d in done.diagnostics if d.at.line == PEERS.line("take")}
    assert "cluster-exit" in found
    assert any("has begun" in d.message for d in done.diagnostics)


@ways
def test_the_last_arrival_at_another_cta_is_waited_for(options):
    _, done = RELEASE.run({"wait": ""}, options)
    assert {(d.kind, d.at.line) for d in done.diagnostics} == {
        ("cluster-exit", RELEASE.line("arrive"))
    }
    _, done = RELEASE.run({"wait": "", "end": "END: " + RELEASE.steps["meet"]}, options)
    assert not done.diagnostics, done.diagnostics[0]


def in_a_row(edits: dict[str, str], options: Options, overlaps: bool) -> Launch:
    """The second of two launches, the second of which reads what the first wrote."""
    a, b = (np.arange(n, dtype=np.uint32) for n in NEXT_GRID.words)
    one = launch(NEXT_GRID.text(), [a, b], NEXT_GRID.grid, NEXT_GRID.block, options=options)
    return launch(
        NEXT_GRID.text(edits),
        [b, a],
        NEXT_GRID.grid,
        NEXT_GRID.block,
        options=options,
        after=one if overlaps else None,
    )


@ways
def test_a_grid_waits_for_the_one_that_it_overlaps(options):
    assert not in_a_row({}, options, True).diagnostics
    assert not in_a_row({"wait": ""}, options, False).diagnostics
    one_warp = "mov.u32 %r8, %tid.x; setp.ge.u32 %p1, %r8, 32; @!%p1 griddepcontrol.wait;"
    assert not in_a_row({"wait": one_warp + " bar.sync 0;"}, options, True).diagnostics


@ways
@pytest.mark.parametrize(
    "wait",
    [
        "",
        "griddepcontrol.launch_dependents;",
        "mov.u32 %r8, %tid.x; setp.ge.u32 %p1, %r8, 32; @!%p1 griddepcontrol.wait;",
    ],
)
def test_a_grid_that_does_not_wait_for_the_one_before(options, wait):
    found = in_a_row({"wait": wait}, options, True).diagnostics
    assert {(d.kind, d.at.line) for d in found} == {
        ("global-race", NEXT_GRID.line("read")),
        ("global-race", NEXT_GRID.line("write")),
    }
    assert all("griddepcontrol.wait" in d.missing for d in found)
    assert f"kernel.py:{NEXT_GRID.line('write')}" in found[0].message


@ways
def test_a_grid_may_do_other_things_first(options):
    own = "mov.u32 %r2, a; mad.lo.u32 %r2, %r1, 4, %r2; st.shared.u32 [%r2], 1;"
    assert not in_a_row({"early": own}, options, True).diagnostics
    early = {"early": "ld.global.u32 %r6, [%rd4];", "read": ""}
    found = in_a_row(early, options, True).diagnostics
    assert [d.at.line for d in found] == [NEXT_GRID.line("early")]


def chained(edits: dict[str, str], options: Options) -> Launch:
    """The last of three launches, each over the one before: what the first wrote it reads."""
    a, b, c = (np.arange(256, dtype=np.uint32) for _ in range(3))
    shape = NEXT_GRID.grid, NEXT_GRID.block
    first = launch(NEXT_GRID.text(), [a, b], *shape, options=options)
    between = launch(NEXT_GRID.text(edits), [c, c], *shape, options=options, after=first)
    return launch(NEXT_GRID.text(), [b, c], *shape, options=options, after=between)


@ways
def test_who_waits_for_a_grid_that_waits_for_none_does_not_wait_for_the_one_before(options):
    one = "mov.u32 %r8, %ctaid.x; setp.eq.u32 %p1, %r8, 0; @%p1 bra ON; griddepcontrol.wait; ON:"
    assert not chained({}, options).diagnostics
    assert not chained({"wait": "", "next": one}, options).diagnostics, "its last block waits"
    found = chained({"wait": ""}, options).diagnostics
    assert {(d.kind, d.at.line) for d in found} == {("global-race", NEXT_GRID.line("read"))}


@pytest.mark.parametrize(
    "touch",
    [
        "ld.shared::cluster.u32 %r6, [%r9];", "st.shared::cluster.u32 [%r9], %r1;",
        "atom.shared::cluster.add.u32 %r6, [%r9], 1;", "red.shared::cluster.add.u32 [%r9], 1;",
    ],
)  # fmt: skip
def test_the_memory_of_a_cta_that_may_have_ended_is_not_touched(touch):
    kernel = Snippet(
        {
            "own": "mov.u32 %r2, a; shl.b32 %r4, %r1, 2; add.u32 %r5, %r2, %r4; st.shared.u32 [%r5], %r1;",
            "meet": "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;",
            "who": "mov.u32 %r7, %cluster_ctarank; setp.ne.u32 %p1, %r7, 0; @%p1 bra END;",
            "touch": f"mapa.shared::cluster.u32 %r9, %r5, 1; {touch}",
            "end": "END:",
            "part": "",
        },
        grid=2,
        cluster=2,
    )
    _, done = kernel.run()
    assert {(d.kind, d.at.line) for d in done.diagnostics} == {
        ("cluster-exit", kernel.line("touch"))
    }
    part = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
    assert not kernel.run({"part": part})[1].diagnostics


@pytest.mark.parametrize(
    ("model", "compiled", "said"),
    [(DEFAULT, False, True), (DEFAULT, True, False), (STRICT, True, True)],
)
def test_who_writes_in_triton_cannot_fence_an_initialization(
    model: Model, compiled: bool, said: bool
) -> None:
    """Its compiler emits no fence; of a kernel that somebody wrote it is asked."""
    unfenced = TWO_LOADS.steps["init"].replace("fence.mbarrier_init.release.cluster; ", "")
    _, done = TWO_LOADS.run({"init": unfenced}, Options(model=model, compiled=compiled))
    assert {d.kind for d in done.diagnostics} == ({"missing-proxy-fence"} if said else set())


@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.parametrize(
    ("snippet", "edits"),
    [
        (TWO_LOADS, {"wait_first": ""}), (TWO_STORES, {"wait_first": ""}),
        (STORE_AND_FLAG, {"complete": ""}), (THROUGH_GLOBAL, {"barrier": ""}),
        (WRITTEN_THEN_LOADED, {"fence": ""}),
        (PEERS, {"meet": ""}), (RELEASE, {"wait": ""}), (PEERS, {"part": ""}),
    ],
    ids=range(8),
)  # fmt: skip
def test_without_checks_values_alone_are_made(snippet, edits, seed):
    """Each of these is reported with them."""
    assert any(snippet.run(edits, way)[1].diagnostics for way in WAYS)
    _, done = snippet.run(edits, Options(seed=seed, checks=False))
    assert done.diagnostics == []


@pytest.mark.parametrize("checks", [True, False])
def test_a_copy_of_what_nothing_wrote_is_told_where_it_is_looked_for(checks):
    room, out = np.zeros(272, np.uint32), np.zeros(256, np.uint32)
    base = room.ctypes.data + -room.ctypes.data % 16
    region = Region(base, 1024, "mine", unwritten=True)
    done = launch(
        TWO_LOADS.text(), [base, out], 1, 64, options=Options(checks=checks), regions=[region]
    )
    kinds = {d.kind for d in done.diagnostics}
    assert kinds == ({"uninitialized-read"} if checks else set())
