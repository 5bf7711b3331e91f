"""Each asynchronous operation ends by what PTX says and by nothing else."""

import pytest

from mla_var3.emulator.launcher import Launch
from mla_var3.emulator.options import STRICT, Options
from tests.emulator.events import (
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
