# ruff: noqa: E501  # A PTX statement stays on its line.
"""The machine's own bookkeeping: where threads belong, what a cluster begins with."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from mla_var3.emulator.launcher import launch
from mla_var3.emulator.machine import Machine
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError
from tests.emulator.events import COPY, INIT, Snippet
from tests.emulator.machines import machine


@pytest.mark.parametrize("threads", [1, 32, 33, 96, 160, 256])
@pytest.mark.parametrize("ctas", [1, 2, 3])
def test_where_each_thread_belongs(threads: int, ctas: int) -> None:
    m = machine((threads, 1, 1), (ctas, 1, 1))
    warps, groups = -(-threads // 32), -(-threads // 128)
    assert (m.threads, m.per_cta, m.warps_per_cta) == (threads * ctas, threads, warps)
    for t in range(m.threads):
        cta, own = divmod(t, threads)
        assert (m.cta[t], m.own[t], m.lane[t]) == (cta, own, own % 32)
        assert m.warp[t] == cta * warps + own // 32
        assert m.place[t] == cta * groups + own // 128
        assert m.cta_offset[t] == cta * m.shared.size
    assert m.live == [min(32, threads - 32 * w) for _ in range(ctas) for w in range(warps)]
    assert m.alive.all()
    assert len(m.scheduler.order) == groups * ctas


def test_warps_of_threads() -> None:
    m = machine((160, 1, 1), (2, 1, 1))
    for first, last in [(0, 1), (0, 32), (31, 33), (32, 64), (0, 320), (150, 170), (319, 320)]:
        wanted = sorted({int(m.warp[t]) for t in range(first, last)})
        assert m.warps_of(slice(first, last)) == wanted
        assert m.warps_of(np.arange(first, last)) == wanted
    assert m.warps_of(np.array([1, 40, 2, 319])) == [0, 1, 9]


def test_threads_and_warps_in_words() -> None:
    m = machine((96, 1, 1))
    assert m.thread(slice(0, 96), 70) == "thread 70 (warp 2, lane 6)"
    assert m.thread(np.array([5, 40]), 1) == "thread 40 (warp 1, lane 8)"
    assert m.warp_name(2) == "warp 2"
    assert [m.who(slice(0, n)) for n in (32, 33, 96)] == [
        "warp 0",
        "warp 0 and 1 more",
        "warp 0 and 2 more",
    ]
    pair = machine((40, 1, 1), (2, 1, 1))
    assert pair.thread(slice(0, 80), 39) == "thread 39 (warp 1, lane 7) of CTA 0 of the cluster"
    assert pair.thread(slice(0, 80), 79) == "thread 39 (warp 1, lane 7) of CTA 1 of the cluster"
    assert pair.warp_name(2) == "warp 0 of CTA 1 of the cluster"


@pytest.mark.parametrize(
    ("threads", "ids", "whole"),
    [
        (64, slice(0, 64), True),
        (64, slice(32, 64), True),
        (48, slice(0, 48), False),
        (96, np.r_[0:32, 64:96], True),
        (96, np.r_[1:33, 64:96], True),
        (96, np.r_[0:31, 33:34], False),
        (96, np.r_[0:32, 64:95, 33], False),
    ],
)
def test_whole_warps_in_order(threads: int, ids: Any, whole: bool) -> None:
    assert machine((threads, 1, 1)).whole(ids) is whole


@pytest.mark.parametrize("negated", [False, True])
def test_a_guard_lets_all_some_or_none_through(negated: bool) -> None:
    m = machine((64, 1, 1))
    guard = np.arange(64) < 40
    test = ~guard if negated else guard
    for s in (slice(0, 64), slice(0, 40), slice(40, 64), np.array([3, 39, 40, 50])):
        ids = m.ids[s]
        through = ids[test[s]]
        chosen = m.select(guard, s, negated, 0)
        if len(through) == len(ids):
            assert chosen == (s,)
        else:
            assert [c.tolist() for c in chosen] == ([through.tolist()] if len(through) else [])


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_schedule_is_of_its_seed_and_cluster(seed: int) -> None:
    """The same numbers again, and others for the next cluster of the launch."""
    m = machine(seed=seed)
    m.start((1, 0, 0), 1)
    first = m.scheduler.random.integers(0, 1 << 30, 4).tolist()
    m.start((2, 0, 0), 2)
    second = m.scheduler.random.integers(0, 1 << 30, 4).tolist()
    m.start((1, 0, 0), 1)
    assert m.scheduler.random.integers(0, 1 << 30, 4).tolist() == first != second
    wanted = np.random.default_rng(seed * 1_000_003 + 1).integers(0, 1 << 30, 4).tolist()
    assert first == wanted
    assert machine().scheduler.random is None


def test_a_cluster_begins_with_nothing_of_the_last() -> None:
    uses = "mov.b16 %h1, 1; mov.b32 %r2, 2; mov.b64 %rd3, 3; setp.eq.u32 %p1, %r2, 2;"
    m = machine(
        (64, 1, 1), (2, 1, 1), grid=(8, 3, 2), snippet=Snippet({"uses": uses}), multiprocessors=132
    )
    for bank in (m.r, m.q, m.h):
        bank[:] = 0
    m.p[:] = True
    m.alive[:], m.live[0], m.steps, m.asked, m.ticks, m.progress = False, 0, 5, 6, 7, 8
    m.shared.bytes[:], m.shared.last.every().known[:], m.shared.swizzles[:] = 1, True, 1
    m.start((3, 2, 1), 40)
    assert (m.index, m.number) == ((6, 2, 1), 40)
    assert set(m.r.ravel().tolist()) == {0x7FBADBAD}
    assert set(m.q.ravel().tolist()) == {0x7FBADBAD7FBADBAD}
    assert set(m.h.ravel().tolist()) == {0xDBAD}
    assert m.p.size
    assert not m.p.any()
    assert m.alive.all()
    assert m.live == [32] * 4
    assert (m.steps, m.asked, m.ticks, m.progress) == (0, 0, 0, 0)
    assert set(m.shared.bytes.tolist()) == {m.options.fill}
    assert not m.shared.last.every().known.any()
    assert not m.shared.swizzles.any()
    assert m.special["ctaid_x"].tolist() == [6] * 64 + [7] * 64
    assert [set(m.special[f"ctaid_{a}"].tolist()) for a in "yz"] == [{2}, {1}]
    assert m.special["smid"].tolist() == [80] * 64 + [81] * 64


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (256, None), (512, "is left with 256 bytes expected that nothing brings"),
        (0, "got 256 bytes more than expected"), (255, "got 1 bytes more than expected"),
        (257, "is left with 1 bytes expected that nothing brings"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("second", [False, True])
def test_bytes_that_are_left_at_the_end_are_told(
    expected: int, said: str | None, second: bool
) -> None:
    """Of either CTA of a cluster, by the address that its threads know."""
    kernel = Snippet(
        {
            "init": INIT + f" mov.u32 %r9, %cluster_ctarank; setp.ne.u32 %p4, %r9, {int(second)}; @%p1 bra END; @%p4 bra END;",
            "load": f"mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%r3+8], {expected}; {COPY} [%r2], [%rd0], 256, [%r3+8];",
            "end": "END: barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;",
        },
        words=(64,),
        grid=2,
        cluster=2,
    )  # fmt: skip
    _, done = kernel.run({} if expected else {"load": f"{COPY} [%r2], [%rd0], 256, [%r3+8];"})
    found = [d.message for d in done.diagnostics if d.kind == "barrier-bytes"]
    assert found == ([] if said is None else [f"the mbarrier at shared 0xc08 {said}"])


@pytest.mark.parametrize("cluster", [(1, 1, 1), (2, 1, 1), (1, 2, 2), (4, 2, 1)])
@pytest.mark.parametrize("block", [(32, 1, 1), (7, 3, 2), (96, 2, 1)])
def test_a_kernel_is_told_of_its_shape(
    cluster: tuple[int, int, int], block: tuple[int, int, int]
) -> None:
    """What does not depend on the thread, in every CTA of a cluster."""
    grid = tuple(3 * n for n in cluster)
    m = machine(block, cluster, grid)
    threads, ctas = int(np.prod(block)), int(np.prod(cluster))
    wanted = {
        "cluster_nctarank": ctas, "is_explicit_cluster": int(ctas > 1),
        "nwarpid": -(-threads // 32), "nsmid": 4,
        **{f"ntid_{axis}": n for axis, n in zip("xyz", block, strict=True)},
        **{f"nctaid_{axis}": n for axis, n in zip("xyz", grid, strict=True)},
        **{f"nclusterid_{axis}": 3 for axis in "xyz"},
        **{f"cluster_nctaid_{axis}": n for axis, n in zip("xyz", cluster, strict=True)},
    }  # fmt: skip
    assert {name: set(m.special[name].tolist()) for name in wanted} == {
        name: {value} for name, value in wanted.items()
    }
    assert m.special["cluster_ctarank"].tolist() == [t // threads for t in range(threads * ctas)]


@pytest.fixture
def patience() -> Iterator[None]:
    """What would wait for ever, asleep, fails after 20 s."""

    def late(*_: Any) -> None:
        raise TimeoutError("it waits for a process that has died")

    handler = signal.signal(signal.SIGALRM, late)
    before = signal.setitimer(signal.ITIMER_REAL, 20)
    yield
    signal.setitimer(signal.ITIMER_REAL, *before)
    signal.signal(signal.SIGALRM, handler)


@pytest.mark.usefixtures("patience")
def test_a_process_that_dies_ends_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters are spread over two, and neither says anything."""
    monkeypatch.setattr(Machine, "run", lambda self, quantum=None: os._exit(3))
    out = np.zeros(4, np.uint32)
    with pytest.raises(EmulatorError, match="a process of the emulator died"):
        launch(Snippet({"all": ""}, words=(4,)).text(), [out], 64, 64, options=Options(jobs=2))
