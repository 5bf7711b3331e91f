"""Makes one pandas table of all records, a row per record, for CSV files and notebooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_var3.evidence import store
from mla_var3.evidence.model import Passed, Record
from mla_var3.evidence.states import is_stale

if TYPE_CHECKING:
    import pandas

#: Columns that every table has, in order; axes of the problems follow as ``problem.<axis>``.
COLUMNS = (
    "record", "target", "language", "layer", "design", "version", "mode", "slug", "status",
    "median_us", "min_us", "max_us", "samples", "error", "device", "driver", "sm_clock_mhz", "run",
    "stale", "time",
)  # fmt: skip


def frame(
    found: Iterable[Record] | None = None,
    *,
    root: Path | None = None,
    stale: Callable[[Record], bool] = is_stale,
) -> pandas.DataFrame:
    """Records as a table.

    Args:
        found: The records; all below ``root`` by default.
        root: Results folder; the checkout's by default.
        stale: Tells whether a record's code is no longer today's.

    Returns:
        A row per record. Times are microseconds of the whole version, ``error`` the largest
        relative error of its check; what a record does not state is missing. Times compare only
        where ``run`` is equal.
    """
    import pandas

    records = store.find(root) if found is None else found
    rows = [_row(record, stale(record)) for record in records]
    axes = dict.fromkeys(name for row in rows for name in row if name.startswith("problem."))
    return pandas.DataFrame(rows, columns=[*COLUMNS, *axes])


def _row(record: Record, stale: bool) -> dict[str, Any]:
    kernel, outcome = record.kernel, record.outcome
    row: dict[str, Any] = {
        "record": store.address(record),
        "target": record.target,
        "language": kernel.language,
        "layer": kernel.layer,
        "design": kernel.design,
        "version": kernel.version,
        "mode": record.mode,
        "slug": record.slug,
        "status": outcome.status,
        "run": record.run,
        "stale": stale,
        "time": record.time,
    }
    if record.device is not None:
        row |= {
            "device": record.device.key,
            "driver": record.device.driver,
            "sm_clock_mhz": record.device.sm_clock_mhz,
        }
    if isinstance(outcome, Passed):
        if outcome.total is not None:
            row |= outcome.total.model_dump()
        if outcome.correctness is not None:
            row["error"] = outcome.correctness.max_relative_error
    return row | {f"problem.{name}": value for name, value in record.problem.items()}
