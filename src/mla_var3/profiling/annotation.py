"""Mode ``annotation``: times a plan, then collects counters of each stage by nsight-python.

nsight-python runs the command it is called from once more under Nsight Compute, so it is called
from a process of its own (``mla_var3.profiling.annotating``).
"""

from __future__ import annotations

import csv
import importlib.util
import io
import math
import os
import shutil
from collections.abc import Iterable, Mapping
from typing import Any

from mla_var3 import inputs
from mla_var3.errors import ToolchainError
from mla_var3.paths import write_atomic
from mla_var3.profiling import annotating, counted, ncu_rep, prologue, recording, replay
from mla_var3.profiling.prologue import Observed, Run
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.tables import csv_text

DURATION = "gpu__time_duration.sum"
#: nsight-python's table in words and units.
FORMATTED = "nsight_formatted_metrics.csv"


def missing() -> str | None:
    """What mode annotation lacks here; None where it has all that it needs."""
    if importlib.util.find_spec("nsight") is None:
        return "nsight-python is not installed (mla_var3[gpu] brings it)"
    if shutil.which("ncu") is None:
        return "Nsight Compute's command ncu is not on PATH"
    return ncu_rep.missing()


def annotation_profile_plan(plan: Any, **settings: Any) -> ProfileResult:
    """Time ``plan`` with events, then collect counters of each stage under Nsight Compute.

    The times are those of the events, since a profiler's own hold its overhead.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.

    Raises:
        ToolchainError: There is no GPU; nsight-python or Nsight Compute is missing or refuses.
    """
    if (lacking := missing()) is not None:
        raise ToolchainError(f"mode annotation cannot run: {lacking}; use --prof_type=event")
    return prologue.profile("annotation", plan, Settings(**settings), _collect)


def _collect(run: Run) -> Observed:
    run.job.say("profiling each stage with nsight-python")
    spec = replay.write(run.folder, run.job)
    replay.run(replay.command(spec, annotating.__name__), "nsight-python", with_reader(os.environ))
    values = stage_values(read_table(inputs.read_text(run.folder / annotating.RAW)))
    header, rows = counted.columns(values)
    write_atomic(run.folder / FORMATTED, csv_text(header, rows))
    return Observed(values, recording.toolchain(["nsight-python"]))


def with_reader(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment in which nsight-python finds NVIDIA's reader of reports."""
    folders = [str(ncu_rep.extras() or ""), environment.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, folders))
    return {**environment, **({"PYTHONPATH": path} if path else {})}


def read_table(text: str) -> list[dict[str, Any]]:
    """Rows of nsight-python's table as CSV.

    Raises:
        ToolchainError: It is not CSV.
    """
    try:
        return list(csv.DictReader(io.StringIO(text)))
    except csv.Error as error:
        raise ToolchainError(f"nsight-python's table cannot be read: {error}") from error


def stage_values(rows: Iterable[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Mean value by stage and metric from nsight-python's table.

    Args:
        rows: Rows with Annotation, Metric and AvgValue. Older releases leave the metric out where
            only one was asked for.

    Raises:
        ToolchainError: The table lacks a column, so that another release changed it.
    """
    values: dict[str, dict[str, float]] = {}
    for row in rows:
        try:
            name, value = str(row["Annotation"]), float(row["AvgValue"] or math.nan)
        except KeyError as error:
            raise ToolchainError(
                f"nsight-python's result has no column {error}; it has "
                f"{', '.join(sorted(map(str, row))):.200}"
            ) from error
        except ValueError as error:
            raise ToolchainError(
                f"nsight-python's result holds no number: {error!s:.200}"
            ) from error
        if math.isfinite(value):
            values.setdefault(name, {})[str(row.get("Metric", DURATION))] = round(value, 4)
    return values
