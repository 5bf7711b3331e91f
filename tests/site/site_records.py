"""Records that no run made, so that pages of every kind exist whatever is committed."""

from __future__ import annotations

from pathlib import Path

from mla_var3 import evidence
from mla_var3.evidence import Duration, Record
from mla_var3.runtime import registry
from tests import factories

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
    name = registry.find(design, version).name
    time = Duration(median_us=time_us, min_us=time_us * 0.99, max_us=time_us * 1.02, samples=50)
    tiling = {"tile_m": 64, "tile_n": 64, "occupancy": None}
    stages = [factories.stage(name, tiling=tiling, grid=[48, 2], duration=time)]
    made = factories.record(
        design, version, factories.passed(stages=stages, total=time, correctness=None),
        problem={**SIZES, "s": s, "causal": False}, slug=f"b24-h128-s{s}-t4096-bf16",
        mode="event", target=GPU, run="5e55104",
    )  # fmt: skip
    return made if fresh else _stale(made)


def failed() -> Record:
    """A record of a run that did not end, with markup in its error."""
    made = timed("flash_mla", "v2", 1, 1.0)
    error = "launch failed: <script>document.title = 'owned'</script> | `x` [a](javascript:b)"
    return made.model_copy(update={"outcome": evidence.Failed(error=error), "mode": "annotation"})


def _stale(made: Record) -> Record:
    others = {"sources": dict.fromkeys(made.kernel.sources, "0" * 40)}
    return made.model_copy(update={"kernel": made.kernel.model_copy(update=others)})


def write_all(results: Path) -> None:
    """Write every synthetic record below a results folder."""
    for row in TIMED:
        evidence.write(timed(*row), results)
    evidence.write(failed(), results)
