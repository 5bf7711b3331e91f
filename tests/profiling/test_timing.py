from __future__ import annotations

import contextlib
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.profiling import timing
from mla_var3.profiling.timing import Timer, summarise
from mla_var3.runtime import waiting


@given(st.lists(st.floats(0.01, 1e9), min_size=1, max_size=30))
def test_a_summary_lies_between_its_extremes(samples):
    found = summarise(samples)
    assert found.samples == len(samples)
    assert found.min_us == round(min(samples), 2)
    assert found.max_us == round(max(samples), 2)
    assert found.min_us <= found.median_us <= found.max_us


def test_the_median_of_an_even_number_is_the_middle():
    assert summarise([4.0, 1.0, 2.0, 9.0]).median_us == 3.0


@pytest.fixture
def cuda(monkeypatch):
    """torch.cuda played by a log; replays take 3 ms each."""
    log: list[str] = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            log.append("record")

        def elapsed_time(self, end):
            return 3.0

    class Graph:
        def replay(self):
            log.append("replay")

    class Stream:
        def wait_stream(self, other):
            log.append("wait")

    @contextlib.contextmanager
    def stream(_):
        log.append("side")
        yield
        log.append("main")

    @contextlib.contextmanager
    def graph(_):
        log.append("capture")
        yield
        log.append("captured")

    def empty(size, **kwargs):
        log.append(f"flush buffer {size}")
        return SimpleNamespace(zero_=lambda: log.append("flush"))

    monkeypatch.setattr(timing, "torch", SimpleNamespace(
        empty=empty,
        int8=None,
        cuda=SimpleNamespace(
            Event=Event, CUDAGraph=Graph, Stream=Stream, stream=stream, graph=graph,
            current_stream=Stream, current_device=lambda: 0,
            get_device_properties=lambda _: SimpleNamespace(L2_cache_size=50 << 20),
        ),
    ))  # fmt: skip
    monkeypatch.setattr(waiting, "synchronize", lambda: log.append("synchronise"))
    return log


def test_each_run_is_flushed_then_replayed_between_its_events(cuda):
    timer = Timer(2)
    assert cuda == [f"flush buffer {100 << 20}"]
    cuda.clear()
    assert timer.samples_us(lambda: cuda.append("body")) == [3000.0, 3000.0]
    warm_up = ["wait", "side", "body", "body", "body", "main", "wait"]
    run = ["flush", "record", "replay", "record"]
    assert cuda == [*warm_up, "capture", "body", "captured", *run, *run, "synchronise"]


def test_the_number_of_runs_may_differ_from_the_default(cuda):
    timer = Timer(5)
    assert len(timer.samples_us(lambda: None, 2)) == 2
    assert timer.time(lambda: None).samples == 5
    assert timer.time(lambda: None).median_us == 3000.0


def test_the_protocol_says_what_was_done(cuda):
    found = Timer(5).protocol
    assert (found.bench_runs, found.warmup_runs) == (5, timing.WARMUP_RUNS)
    assert found.l2_flush
    assert found.graph_replay


@pytest.mark.gpu
def test_a_larger_copy_takes_longer_on_a_gpu():
    import torch

    small, large = (torch.ones(n, device="cuda") for n in (1 << 20, 1 << 26))
    timer = Timer(10)
    assert (
        timer.time(lambda: large.mul_(1.0)).median_us
        > timer.time(lambda: small.mul_(1.0)).median_us
    )
