"""``Timer``: times GPU work by CUDA events around graph replays, L2 flushed before each."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from typing import Any

import torch

from mla_var3.evidence import Duration, Protocol
from mla_var3.runtime import waiting

WARMUP_RUNS = 3


def capture(body: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    """A CUDA graph of one call of ``body``, compiled and warmed up beforehand."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARMUP_RUNS):
            body()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        body()
    return graph


class Timer:
    """Times GPU work; one instance holds the flush buffer for many measurements.

    The flush writes twice the L2's size, so that no run finds the last run's data there
    (without it bandwidth reads up to 1.6 times too high: NVIDIA/TileGym issue 118).
    """

    def __init__(self, bench_runs: int) -> None:
        self.bench_runs = bench_runs
        l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
        self._flush = torch.empty(2 * max(l2, 32 << 20), dtype=torch.int8, device="cuda")

    @property
    def protocol(self) -> Protocol:
        """What the numbers mean."""
        return Protocol(
            timer="cuda-events",
            warmup_runs=WARMUP_RUNS,
            bench_runs=self.bench_runs,
            l2_flush=True,
            graph_replay=True,
        )

    def samples_us(self, body: Callable[[], Any], runs: int | None = None) -> list[float]:
        """Microseconds of each of ``runs`` (default: all) replays of ``body``."""
        return self.replays_us(capture(body), runs or self.bench_runs)

    def replays_us(self, graph: torch.cuda.CUDAGraph, count: int) -> list[float]:
        """Microseconds of each of ``count`` replays of a graph."""
        events = [
            (torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True))
            for _ in range(count)
        ]
        for start, end in events:
            # The flush also keeps the GPU busy while the host enqueues the replay, so that the
            # events enclose no launch latency.
            self._flush.zero_()
            start.record()
            graph.replay()
            end.record()
        waiting.synchronize()
        return [start.elapsed_time(end) * 1e3 for start, end in events]

    def time(self, body: Callable[[], Any]) -> Duration:
        """Median, least and greatest time of ``body``."""
        return summarise(self.samples_us(body))


def summarise(samples_us: list[float]) -> Duration:
    """Samples in microseconds as a record keeps them (0.01 us resolution)."""
    return Duration(
        median_us=round(statistics.median(samples_us), 2),
        min_us=round(min(samples_us), 2),
        max_us=round(max(samples_us), 2),
        samples=len(samples_us),
    )
