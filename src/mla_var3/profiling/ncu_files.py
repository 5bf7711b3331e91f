"""Writes the files of mode ``ncu`` per stage: counters, SASS and annotated sources of a launch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from mla_var3.paths import write_atomic
from mla_var3.profiling import hot
from mla_var3.profiling.ncu_rep import Profiled
from mla_var3.tables import csv_text

DETAILS, SASS, PTX, SOURCES = "ncu-details.csv", "sass-metrics.csv", "source.ptx", "annotated-src"


def write(folder: Path, launch: Profiled) -> None:
    """Leave a launch's files in a folder; what its report does not hold is left out."""
    write_atomic(folder / DETAILS, details(launch))
    if launch.instructions:
        write_atomic(folder / SASS, sass(launch))
    if launch.ptx:
        write_atomic(folder / PTX, launch.ptx)
    for name, text in annotated(launch):
        write_atomic(folder / SOURCES / f"{name}.txt", text)


def details(launch: Profiled) -> str:
    """All counters as CSV, those that a section of the report shows first."""
    ordered = sorted(launch.metrics, key=lambda m: (not m.section, m.section, m.name))
    rows = ((m.section, m.name, m.unit, number(m.value)) for m in ordered)
    return csv_text(("section", "metric", "unit", "value"), rows)


def sass(launch: Profiled) -> str:
    """All instructions as CSV, with every counter that is known of each."""
    names = sorted({name for x in launch.instructions for name in x.values})
    rows: Iterable[Sequence[object]] = (
        (f"{x.offset:#06x}", x.sass, x.ptx, x.file, x.line or "",
         *(number(x.values[name]) if name in x.values else "" for name in names))
        for x in launch.instructions
    )  # fmt: skip
    return csv_text(("offset", "sass", "ptx", "file", "line", *names), rows)


def annotated(launch: Profiled) -> list[tuple[str, str]]:
    """The sources that the report holds, by name, each line with what it cost."""
    found = hot.lines(launch)
    samples = hot.total(launch.instructions, hot.SAMPLES)
    touched = {line.file for line in found}
    return [
        (Path(name).name, hot.annotated(name, text, found, samples))
        for name, text in sorted((launch.sources or {}).items())
        if name in touched
    ]


def number(value: float | str) -> str:
    """A value without the decimals that a whole number does not have."""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)
