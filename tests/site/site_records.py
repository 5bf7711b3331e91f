"""Records that no run made, so that pages of every kind exist whatever is committed."""

from __future__ import annotations

import datetime
from pathlib import Path

from mla_var3 import records
from mla_var3.records import Duration, Record
from mla_var3.runtime import registry

GPU = "nvidia-h200-sxm"
#: Sizes that no committed record has.
SIZES = {"b": 24, "h": 128, "t": 4096, "d": 128, "k": 512, "p": 64, "dtype": "bf16"}
#: Design, version, query tokens, microseconds, whether the sources are today's.
TIMED = (
    ("flash_mla", "v0", 1, 212.5, True),
    ("flash_mla", "v1", 1, 81.25, True),
    ("flash_attention", "v0", 1, 955.0, False),
    ("mla_var6_plus", "v3", 16, 1201.0, True),
    ("mla_var6_plus", "v4", 16, 1075.0, True),
    ("flash_mla", "v1", 16, 1100.0, True),
)


def timed(design: str, version: str, s: int, time_us: float, fresh: bool = True) -> Record:
    """A record of a run on a GPU."""
    found = registry.find(design, version)
    problem = {**SIZES, "s": s, "causal": False}
    flops, traffic = 2 * 24 * 128 * s * 4096 * 1088, 24 * 4096 * 576 * 2
    time = Duration(median_us=time_us, min_us=time_us * 0.99, max_us=time_us * 1.02, samples=50)
    stage = records.Stage(
        name=found.name, kernel=found.name, tiling={"tile_m": 64, "tile_n": 64, "occupancy": None},
        grid=[48, 2], flops=flops, bytes=traffic, duration=time,
    )  # fmt: skip
    return Record(
        kernel=_identity(found, fresh),
        problem=problem,
        slug=f"b24-h128-s{s}-t4096-bf16",
        mode="event",
        target=GPU,
        device=records.Device(key=GPU, name="NVIDIA H200", arch="sm_90", driver="580.159.04"),
        toolchain={"cuda-tile": "1.7.0"},
        outcome=records.Passed(
            protocol=records.Protocol(
                timer="cuda-events", warmup_runs=3, bench_runs=50, l2_flush=True, graph_replay=True
            ),
            stages=[stage],
            total=time,
            flops=flops,
            bytes=traffic,
        ),
        run="5e55104",
        git=records.Git(commit="0" * 40, dirty=False),
        time=datetime.datetime(2026, 11, 21, 12, tzinfo=datetime.UTC),
    )


def failed() -> Record:
    """A record of a run that did not end, with markup in its error."""
    made = timed("flash_mla", "v2", 1, 1.0)
    error = "launch failed: <script>document.title = 'owned'</script> | `x` [a](javascript:b)"
    return made.model_copy(update={"outcome": records.Failed(error=error), "mode": "annotation"})


def _identity(version: registry.Version, fresh: bool) -> records.KernelIdentity:
    return records.KernelIdentity(
        language=version.language, package=version.package, layer=version.layer,
        design=version.design, version=version.version,
        sources=version.sources() if fresh else dict.fromkeys(version.sources(), "0" * 40),
    )  # fmt: skip


def write_all(results: Path) -> None:
    """Write every synthetic record below a results folder."""
    for row in TIMED:
        records.write(timed(*row), results)
    records.write(failed(), results)
