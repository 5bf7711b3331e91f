"""Subprocess that runs nsight-python on a plan's file and leaves its table of counters beside it.

nsight-python is imported before torch: its reader of reports, as Nsight Compute 2025.3 ships it,
crashes in a process that loaded torch first. So nothing that loads torch stands above.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mla_var3 import front
from mla_var3.paths import write_atomic

#: Nsight Compute's names of what is collected for each stage.
METRICS = (
    "gpu__time_duration.sum",
    "dram__bytes_read.sum",
    "dram__bytes_write.sum",
    "sm__throughput.avg.pct_of_peak_sustained_elapsed",
    "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
    "sm__inst_executed_pipe_tensor.sum",
    "sm__warps_active.avg.pct_of_peak_sustained_active",
    "smsp__warps_eligible.avg.per_cycle_active",
    "launch__registers_per_thread",
)
#: Times that Nsight Compute runs each stage.
RUNS = 5
#: nsight-python's own table.
RAW = "nsight_raw_metrics.csv"


def annotate(spec: Path) -> int:
    """Profile the plan of a file and leave nsight-python's table beside it.

    In the process that Nsight Compute watches nothing is left: there the stages only run.
    """
    import nsight  # Before CUDA starts: newer releases attach at import.

    from mla_var3.profiling import replay

    @nsight.analyze.kernel(
        runs=RUNS, metrics=list(METRICS), output="quiet", output_prefix=f"{spec.parent}/"
    )
    def profiled() -> None:
        for path, kernel in replay.bind(spec).stages():
            with nsight.annotate(path):
                kernel()

    try:
        found = profiled()
    except (RuntimeError, OSError, ValueError, nsight.exceptions.ProfilerException) as error:
        print(f"nsight-python could not profile: {str(error).strip()}", file=sys.stderr)
        return 1
    if found is not None:
        write_atomic(spec.parent / RAW, found.to_dataframe().to_csv(index=False))
    return 0


def main() -> int:
    """Annotate the plan of the file that the process's first argument names."""
    return annotate(Path(sys.argv[1]))


if __name__ == "__main__":
    front.run("mla_var3.profiling.annotating:main")
