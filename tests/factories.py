"""Records to try things on."""

from __future__ import annotations

import datetime
from typing import Any

from mla_var3 import evidence
from mla_var3.languages.cutile.facts import CutileFacts
from mla_var3.runtime import costs, registry
from mla_var3.workloads import Cost

COMMIT = "c" * 40


def costs_as(monkeypatch: Any, flops: int = 10**9, bytes: int = 10**6) -> None:
    """Give every record and stage this cost, whatever its version says."""
    monkeypatch.setattr(costs, "cost", lambda record, stage=None: Cost(flops, bytes))
    monkeypatch.setattr(costs, "ways", lambda record: (Cost(flops, bytes),))


def duration(median: float = 1000.0, samples: int = 50) -> evidence.Duration:
    return evidence.Duration(
        median_us=median, min_us=median * 0.9, max_us=median * 1.2, samples=samples
    )


def protocol() -> evidence.Protocol:
    return evidence.Protocol(
        timer="cuda-events", warmup_runs=3, bench_runs=50, l2_flush=True, graph_replay=True
    )


def static_facts(arch: str = "sm_90", **changes: Any) -> CutileFacts:
    fields = {
        "kernel": "flash_mla", "registers": 168, "shared_bytes": 1024, "threads_per_block": 384,
        "warps_per_block": 12, "instructions": 900, "mma_path": "HGMMA",
        "mma_instructions": {"HGMMA.64x64x16.F32.BF16": 9}, "tma_loads": 3, "tma_stores": 1,
    }  # fmt: skip
    return CutileFacts(arch=arch, **{**fields, **changes})


def stage(name: str = "attention", **changes: Any) -> evidence.Stage:
    fields = {
        "kernel": name, "tiling": {"tile_m": 64, "num_worker_warps": 8, "occupancy": None},
        "grid": [1, 2],
    }  # fmt: skip
    return evidence.Stage(name=name, **{**fields, **changes})


def correctness(status: str = "passed", **changes: Any) -> evidence.Correctness:
    fields = {
        "against": "torch fp32", "tolerance": 4e-3,
        "cases": [evidence.CheckedCase(problem={"b": 1}, max_relative_error=1e-3)],
    }  # fmt: skip
    return evidence.Correctness(status=status, **{**fields, **changes})


def passed(**changes: Any) -> evidence.Passed:
    fields = {"stages": [stage()], "correctness": correctness()}
    fields |= changes
    if fields.get("total") or any(s.duration for s in fields["stages"]):
        fields.setdefault("protocol", protocol())
    return evidence.Passed(**fields)


def device(key: str = "nvidia-h200-sxm", arch: str = "sm_90") -> evidence.Device:
    return evidence.Device(key=key, name="NVIDIA H200", arch=arch, driver="580.159")


def record(
    design: str = "flash_mla",
    version: str = "v0",
    outcome: evidence.Outcome | None = None,
    **changes: Any,
) -> evidence.Record:
    """A record of a version; static unless the target is a device."""
    found = registry.find(design, version)
    kernel = evidence.KernelIdentity(
        language=found.language, package=found.package, layer=found.layer,
        design=found.design, version=version, sources=found.sources(),
    )  # fmt: skip
    target = changes.get("target", "static/sm_90")
    if "/" not in target and target != "cpu":
        changes = {"device": device(target), **changes}
    return record_of(**{"kernel": kernel, "outcome": outcome or passed(), **changes})


def record_of(kernel: evidence.KernelIdentity, **changes: Any) -> evidence.Record:
    """A static record of a kernel; ``changes`` hold its outcome."""
    fields = {
        "problem": {"b": 64, "causal": False, "dtype": "bf16", "n": None}, "slug": "b64-bf16",
        "mode": "static", "target": "static/sm_90", "toolchain": {"cuda-tile": "1.7.0"},
        "run": "aaaa", "git": evidence.Git(commit=COMMIT, dirty=False),
        "time": datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
    }  # fmt: skip
    return evidence.Record(kernel=kernel, **{**fields, **changes})
