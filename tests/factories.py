"""Records to try things on."""

from __future__ import annotations

import datetime
from typing import Any

from mla_var3 import records
from mla_var3.runtime import registry


def duration(median: float = 10.0, samples: int = 50) -> records.Duration:
    return records.Duration(
        median_us=median, min_us=median * 0.9, max_us=median * 1.2, samples=samples
    )


def prediction(device: str = "nvidia-h200-sxm", time_us: float = 5.0) -> records.Prediction:
    return records.Prediction(
        device=device, time_us=time_us, bound="memory", intensity=100.0, ridge=162.5,
        tflops_ceiling=694.0, gbps_ceiling=4270.0, ceiling_kind="measured",
    )  # fmt: skip


def static_facts(**changes: Any) -> dict[str, Any]:
    return {
        "registers": 168, "stack_bytes": 0, "spill_loads": 0, "spill_stores": 0,
        "shared_bytes": 1024, "mma_path": "HGMMA", "mma_note": None, "tma_loads": 3,
        "tma_stores": 1, "remarks": [],
        "occupancy": {"blocks_per_sm": 1, "warps": 12, "limiter": "registers"}, **changes,
    }  # fmt: skip


def stage(name: str = "flash_mla", **changes: Any) -> records.Stage:
    fields = {
        "kernel": name, "tiling": {"tile_m": 64, "num_worker_warps": 8, "occupancy": None},
        "grid": [1, 2], "flops": 10**9, "bytes": 10**6,
    }  # fmt: skip
    return records.Stage(name=name, **{**fields, **changes})


def correctness(status: str = "passed", **changes: Any) -> records.Correctness:
    fields = {
        "against": "torch fp32", "tolerance": 4e-3,
        "cases": [records.CheckedCase(problem={"b": 1}, max_relative_error=1e-3)],
    }  # fmt: skip
    return records.Correctness(status=status, **{**fields, **changes})


def passed(**changes: Any) -> records.Passed:
    fields = {"stages": [stage()], "flops": 10**9, "bytes": 10**6, "correctness": correctness()}
    return records.Passed(**{**fields, **changes})


def record(
    design: str = "flash_mla",
    version: str = "v0",
    outcome: records.Passed | records.Failed | None = None,
    **changes: Any,
) -> records.Record:
    found = registry.find(design, version)
    fields: dict[str, Any] = {
        "kernel": records.KernelIdentity(
            language=found.language, layer=found.layer, design=design, version=version,
            source_sha256=found.source_sha256(),
        ),
        "problem": {"b": 64, "causal": False, "dtype": "bf16", "n": None},
        "slug": "b64-bf16",
        "mode": "static",
        "target": "static/sm_90",
        "toolchain": {"cuda-tile": "1.7.0"},
        "outcome": outcome or passed(),
        "run": "aaaa",
        "git": records.Git(commit="c" * 40, dirty=False),
        "time": datetime.datetime(2026, 11, 21, tzinfo=datetime.UTC),
    }  # fmt: skip
    return records.Record(**{**fields, **changes})
