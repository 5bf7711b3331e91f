# ruff: noqa: E501  # A PTX statement stays on its line.
"""Warps that run together and store to one place at once race, as two instructions of theirs do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mla_var3.emulator.apart import TOGETHER, by_warps
from mla_var3.emulator.launcher import launch
from mla_var3.emulator.options import DEFAULT, STRICT, Options
from tests.emulator.events import INIT, Snippet

MODELS = pytest.mark.parametrize("model", [DEFAULT, STRICT], ids=lambda m: m.name)
SEEDS = pytest.mark.parametrize("seed", [None, 1])
SHARED = ".shared .align 128 .b8 a[8192]; .shared .align 8 .b8 bars[64];"
RUN = INIT.split(" @%p1 bra", maxsplit=1)[0]
#: Thread, lane and warp of the cluster, and what the thread is called there: its value.
WHO = (
    "mov.u32 %r2, a; mov.u32 %r3, bars; and.b32 %r11, %r1, 31; shr.u32 %r12, %r1, 5; mov.u32 %r13, %cluster_ctarank; "
    "mov.u32 %r14, %ntid.x; mad.lo.u32 %r15, %r13, %r14, %r1; cvt.u16.u32 %h0, %r15; cvt.u64.u32 %rd9, %r15; cvta.to.global.u64 %rd5, %rd0;"
)
#: How threads are laid over words: by index %r16; and whether warps meet.
PLACES = {
    "every warp": ("mov.u32 %r16, %r11;", True),
    "every other warp": ("and.b32 %r16, %r15, 63;", True),
    "an edge": ("mad.lo.u32 %r16, %r12, 31, %r11;", True),
    "a word": ("mov.u32 %r16, 3;", True),
    "none": ("mov.u32 %r16, %r1;", False),
    "lanes": ("mov.u32 %r16, %r12;", False),
}
STORES = {
    "global": (4, "st.global.b32 [%rd6], %r15;"),
    "global vector": (16, "st.global.v4.b32 [%rd6], {%r15, %r15, %r15, %r15};"),
    "global, 16 bits": (2, "st.global.b16 [%rd6], %h0;"),
    "global, 64 bits": (8, "st.global.b64 [%rd6], %rd9;"),
    "generic": (4, "st.b32 [%rd6], %r15;"),
    "shared": (4, "st.shared.b32 [%r18], %r15;"),
    "shared vector": (8, "st.shared.v2.b32 [%r18], {%r15, %r15};"),
    "shared, 16 bits": (2, "st.shared.b16 [%r18], %h0;"),
    "cluster": (4, "mapa.shared::cluster.u32 %r18, %r18, 0; st.shared::cluster.b32 [%r18], %r15;"),
}


def kernel(place: str, size: int, store: str, block: int = 128, cluster: int = 1) -> Snippet:
    """Each thread of all warps stores at once."""
    meet = "barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" if cluster > 1 else ""
    where = f"{WHO} {place} mul.lo.u32 %r17, %r16, {size}; add.u32 %r18, %r2, %r17; cvt.u64.u32 %rd7, %r17; add.u64 %rd6, %rd5, %rd7; {meet}"
    steps = {"where": where, "store": store, "end": meet}
    return Snippet(steps, (2048,), SHARED, block, cluster, cluster)


def races(snippet: Snippet, **options: Any) -> list[tuple[str, int | None]]:
    """Kinds and lines of what is found."""
    _, done = snippet.run(options=Options(**options))
    return [(d.kind, d.at.line) for d in done.diagnostics]


@SEEDS
@MODELS
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("store", STORES)
def test_warps_that_store_at_once_race_where_they_meet(store: str, place: str, model: Any, seed: int | None) -> None:  # fmt: skip
    where, meets = PLACES[place]
    snippet = kernel(where, *STORES[store])
    kind = "global-race" if store[0] == "g" else "race"
    found = races(snippet, model=model, seed=seed)
    assert set(found) == ({(kind, snippet.line("store"))} if meets else set())


@SEEDS
@pytest.mark.parametrize("block", [64, 96, 256])
@pytest.mark.parametrize("store", ["global", "shared"])
def test_however_many_warps_there_are(store: str, block: int, seed: int | None) -> None:
    snippet = kernel(PLACES["every warp"][0], *STORES[store], block)
    assert races(snippet, seed=seed)
    assert races(kernel(PLACES["none"][0], *STORES[store], block), seed=seed) == []


@SEEDS
@pytest.mark.parametrize(("store", "meets"), [("global", True), ("cluster", True), ("shared", False)])  # fmt: skip
def test_warps_of_two_ctas_meet_in_what_they_share(store: str, meets: bool, seed: int | None) -> None:  # fmt: skip
    snippet = kernel("mov.u32 %r16, %r1;", *STORES[store], 32, 2)
    assert bool(races(snippet, seed=seed)) == meets


def test_the_report_names_both_warps_and_the_line() -> None:
    snippet = kernel(PLACES["every warp"][0], *STORES["global"], 64)
    _, done = snippet.run()
    (found,) = done.diagnostics
    assert found.other is not None
    assert found.at.line == found.other.line == snippet.line("store")
    assert "global byte 0 of" in found.message
    assert found.other_who.startswith("thread 0 (warp 0, lane 0)")
    assert found.who == "thread 32 (warp 1, lane 0)"


@SEEDS
@MODELS
@pytest.mark.parametrize("block", [128, 256])
@pytest.mark.parametrize("store", ["global", "shared", "global vector", "shared vector", "shared, 16 bits", "stmatrix"])  # fmt: skip
def test_equal_values_are_excused_by_the_default_model_alone(store: str, block: int, model: Any, seed: int | None) -> None:  # fmt: skip
    """Triton's threads store the copies of a tile that they hold, whatever warp comes first."""
    rows = "and.b32 %r19, %r11, 7; shl.b32 %r19, %r19, 4; add.u32 %r18, %r2, %r19; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r18], {%r15};"
    size, text = STORES.get(store, (16, rows))
    snippet = kernel(PLACES["every warp"][0], size, f"mov.b32 %r15, 7; mov.b16 %h0, 7; {text}", block)  # fmt: skip
    kind = "global-race" if store[0] == "g" else "race"
    wanted = set() if model.equal_stores else {(kind, snippet.line("store"))}
    assert set(races(snippet, model=model, seed=seed)) == wanted


@SEEDS
@MODELS
@pytest.mark.parametrize("store", ["global", "shared"])
def test_equal_values_at_two_lines(store: str, model: Any, seed: int | None) -> None:
    """In shared memory they are a race in both models: a barrier may be missing there."""
    size, text = STORES[store]
    in_turn = " ".join(f"setp.eq.u32 %p1, %r12, {w}; @%p1 {text}" for w in range(4))
    snippet = kernel(PLACES["every warp"][0], size, f"mov.b32 %r15, 7; {in_turn}")
    found = races(snippet, model=model, seed=seed)
    assert bool(found) == (store == "shared" or not model.equal_stores)


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_stores_at_once_race_as_those_in_turn_do(data: st.DataObject) -> None:
    """Of random places and values: warp by warp the same findings and the same memory."""
    words = data.draw(st.sampled_from([3, 40, 1000]))
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 20)))
    values = rng.integers(0, data.draw(st.sampled_from([1, 2, 1000])), 96, np.uint32)
    # Lanes of a warp keep out of each other's way: which of theirs stays is not said.
    places = np.concatenate([rng.permutation(max(words, 32))[:32] for _ in range(3)])
    options = Options(model=data.draw(st.sampled_from([DEFAULT, STRICT])))
    text = "st.global.b32 [%rd6], %r15;"
    take = "mul.wide.u32 %rd7, %r1, 4; add.u64 %rd7, %rd7, %rd1; ld.global.b32 %r15, [%rd7]; ld.global.b32 %r16, [%rd7+384];"
    whose = "mov.u32 %r30, %r1; shr.u32 %r12, %r1, 5; mul.wide.u32 %rd8, %r16, 4; add.u64 %rd6, %rd0, %rd8;"
    results = []
    for store in (
        text,
        " ".join(f"setp.eq.u32 %p1, %r12, {w}; @%p1 {text}" for w in range(3)),
    ):
        snippet = Snippet({"take": take, "whose": whose, "store": store}, (1024, 192), "", 96)
        arrays = [np.zeros(1024, np.uint32), np.concatenate([values, places.astype(np.uint32)])]
        results.append((_launch(snippet, arrays, options), arrays[0]))
    assert results[0][0] == results[1][0]
    assert (results[0][1] == results[1][1]).all()


def _launch(snippet: Snippet, arrays: list[Any], options: Options) -> set[tuple[str, int | None]]:
    done = launch(snippet.text(), arrays, 1, snippet.block, options=options)
    return {(d.kind, d.at.line) for d in done.diagnostics}


COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
OUT = "cp.async.bulk.global.shared::cta.bulk_group"
FILL = "shl.b32 %r20, %r1, 4; add.u32 %r20, %r20, %r2; st.shared.v4.b32 [%r20], {%r1, %r1, %r1, %r1}; fence.proxy.async; bar.sync 0; "
FIRST = "setp.ne.u32 %p2, %r11, 0; @%p2 bra END; "
EXPECT = "mbarrier.arrive.expect_tx.shared.b64 _, [%r21], 128; "
OWN_BAR = "shl.b32 %r21, %r12, 3; add.u32 %r21, %r21, %r3; "
#: Other writes of several warps at once: what they do, where %r22 is apart for each warp or 0.
OTHERS = {
    "stmatrix": ("race", FILL.split(" fence")[0] + " bar.sync 0; add.u32 %r23, %r22, %r2; shl.b32 %r24, %r11, 4; add.u32 %r23, %r23, %r24; stmatrix.sync.aligned.m8n8.x1.shared.b16 [%r23+2048], {%r15};"),
    "cp.async": ("race", "add.u32 %r23, %r22, %r2; shl.b32 %r24, %r11, 2; add.u32 %r23, %r23, %r24; cp.async.ca.shared.global [%r23], [%rd5], 4; cp.async.wait_all;"),
    "bulk load": ("race", FIRST + OWN_BAR + f"add.u32 %r23, %r22, %r2; {EXPECT} {COPY} [%r23], [%rd5], 128, [%r21];"),
    "bulk load, one barrier": ("race", FIRST + f"mov.u32 %r21, %r3; add.u32 %r23, %r22, %r2; {EXPECT} {COPY} [%r23], [%rd5], 128, [%r21];"),
    "bulk store": ("global-race", FILL + FIRST + f"shl.b32 %r23, %r12, 7; add.u32 %r23, %r23, %r2; cvt.u64.u32 %rd8, %r22; add.u64 %rd8, %rd8, %rd5; {OUT} [%rd8], [%r23], 128; cp.async.bulk.commit_group; cp.async.bulk.wait_group 0;"),
    "st.async": ("race", FIRST + OWN_BAR + f"add.u32 %r23, %r22, %r2; mapa.shared::cluster.u32 %r23, %r23, 0; mapa.shared::cluster.u32 %r24, %r21, 0; {EXPECT.replace('128', '4')} st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%r23], %r15, [%r24];"),
}  # fmt: skip


@SEEDS
@MODELS
@pytest.mark.parametrize("meets", [True, False])
@pytest.mark.parametrize("other", OTHERS)
def test_other_writes_of_several_warps_at_once(other: str, meets: bool, model: Any, seed: int | None) -> None:  # fmt: skip
    kind, text = OTHERS[other]
    count = 2 if "one" in other else 1
    start = RUN.replace("[%r3], 1;", f"[%r3], {count};")
    apart = f"mul.lo.u32 %r22, %r12, {0 if meets else 512};"
    end = "END: bar.sync 0;"
    snippet = Snippet({"start": start + WHO, "write": f"{apart} {text}", "end": end}, (2048,), SHARED)  # fmt: skip
    found = races(snippet, model=model, seed=seed)
    assert {k for k, _ in found if k.endswith("race")} == ({kind} if meets else set())


@SEEDS
@MODELS
@pytest.mark.parametrize("space", ["global", "shared"])
@pytest.mark.parametrize("op", ["red.{0}.add.u32 [{1}], %r15;", "atom.{0}.exch.b32 %r20, [{1}], %r15;", "st.relaxed.gpu.global.b32 [%rd6], %r15;"])  # fmt: skip
def test_atomics_are_no_stores(op: str, space: str, model: Any, seed: int | None) -> None:
    start = "st.shared.b32 [%r18], 0; bar.sync 0; " if space == "shared" else ""
    text = op.format(space, "%rd6" if space == "global" else "%r18")
    place = "setp.gt.u32 %p1, %r1, 31; mov.u32 %r16, %r11;"
    snippet = kernel(place, 4, start.replace("st.", "@!%p1 st.") + text)
    assert races(snippet, model=model, seed=seed) == []


def test_stores_are_taken_apart_only_where_warps_meet() -> None:
    warp = np.repeat([3, 4, 6], [2, 3, 1])
    apart = (slice(0, 2), slice(2, 5), slice(5, 6))
    for places, wanted in (
        ([0, 1, 2, 3, 4, 5], TOGETHER),
        ([0, 0, 2, 3, 3, 5], TOGETHER),
        ([0, 1, 2, 3, 4, 0], apart),
        ([7, 7, 5, 4, 7, 0], apart),
    ):
        assert by_warps(np.array(places), warp) == wanted
    one = np.zeros(4, np.int64)
    assert by_warps(one, one) == by_warps(one[:0], one[:0]) == TOGETHER
