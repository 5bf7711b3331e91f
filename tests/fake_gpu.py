"""A GPU that is played: an H200 whose tensors lie on the CPU; times count up."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import pytest
import torch

from mla_var3 import devices, evidence
from mla_var3.profiling import gpu_lock, recording, running
from mla_var3.profiling.timing import summarise
from mla_var3.workloads import Problem


@dataclass
class FakeGpu:
    """What was asked of the GPU that is played here, and what it answers."""

    timed: list[object] = field(default_factory=list)
    synchronised: int = 0


def play_gpu(monkeypatch: pytest.MonkeyPatch) -> FakeGpu:
    """Let everything that asks for a GPU find the played one."""
    fake = FakeGpu()
    clock = itertools.count(1)

    class Timer:
        protocol = evidence.Protocol(
            timer="fake", warmup_runs=0, bench_runs=5, l2_flush=True, graph_replay=True
        )

        def __init__(self, bench_runs):
            self.bench_runs = bench_runs

        def samples_us(self, body, runs=None):
            fake.timed.append(body)
            start = next(clock) * 100.0
            return [start + i for i in range(runs or self.bench_runs)]

        def time(self, body):
            return summarise(self.samples_us(body))

    state = evidence.Device(
        key="nvidia-h200-sxm", name="NVIDIA H200", arch="sm_90", driver="580.159"
    )
    random = Problem.random

    def synchronise():
        fake.synchronised += 1

    monkeypatch.setattr(
        Problem, "random",
        lambda self, device, *shapes: random(self, "cpu" if device == "cuda" else device, *shapes),
    )  # fmt: skip
    monkeypatch.setattr(recording, "gpu", lambda: (devices.load("nvidia-h200-sxm"), state))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", synchronise)
    monkeypatch.setattr(gpu_lock, "gpu_uuid", lambda: "played")
    monkeypatch.setattr(running, "Timer", Timer)
    return fake
