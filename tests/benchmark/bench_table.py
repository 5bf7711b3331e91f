"""What the bench scripts share: run the project's commands, then a CSV of what they recorded."""

from __future__ import annotations

import csv
import datetime
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from mla_var3 import evidence
from mla_var3.paths import out_dir
from mla_var3.runtime import costs

BENCH = ("mla_var3.app.commands", "bench")
KERNEL = ("mla_var3.kernel",)
BAD_INPUT = 2
#: Query tokens per sequence: decode, speculative decode, a short prefill.
QUERY_TOKENS = (1, 2, 4, 8, 16, 32, 64, 128)


def recorded(folder: Path) -> Iterator[evidence.Record]:
    """The records below a run's folder: the one place that reads them."""
    for path in sorted((folder / "results").rglob("*.json")):
        yield from evidence.records_of(path)


def row(record: evidence.Record) -> dict[str, Any]:
    """A record as a line of the table; a run that failed has its error and no time."""
    fields: dict[str, Any] = {
        "run": record.run, "language": record.kernel.language, "design": record.kernel.design,
        "version": record.kernel.version, "target": record.target, "mode": record.mode,
        **record.problem,
    }  # fmt: skip
    if isinstance(record.outcome, evidence.Failed):
        return {**fields, "error": record.outcome.error}
    if record.outcome.total is None:
        return fields
    total, work = record.outcome.total, costs.cost(record)
    rates = {
        "tflops": work.flops / total.median_us / 1e6, "gbps": work.bytes / total.median_us / 1e3,
    } if work else {}  # fmt: skip
    return {
        **fields,
        "median_us": total.median_us,
        "min_us": total.min_us,
        "max_us": total.max_us,
        **rates,
    }


def compared(rows: Sequence[dict[str, Any]], sizes: Sequence[str]) -> list[dict[str, Any]]:
    """The rows with how many times slower each is than the fastest of its run and problem.

    Args:
        rows: Lines of the table.
        sizes: Columns that make a problem; ``n``, which a version chooses, is none.
    """

    def group(line: dict[str, Any]) -> tuple[Any, ...]:
        return tuple(line.get(name) for name in ("run", "target", *sizes))

    best: dict[tuple[Any, ...], float] = {}
    for line in rows:
        if "median_us" in line:
            best[group(line)] = min(line["median_us"], best.get(group(line), float("inf")))
    return [
        {**line, "times_the_fastest": line["median_us"] / best[group(line)]}
        if "median_us" in line
        else line
        for line in rows
    ]


def write(rows: Iterable[dict[str, Any]], path: Path) -> None:
    """Write the table of a run."""
    lines = compared(list(rows), sizes=("b", "h", "s", "t", "dtype", "causal"))
    with path.open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, list(dict.fromkeys(c for line in lines for c in line)))
        table.writeheader()
        table.writerows(lines)


def problems(flags: Sequence[str]) -> list[list[str]]:
    """The flags for each number of query tokens, unless they name one."""
    if any(flag.partition("=")[0] == "--s" for flag in flags):
        return [list(flags)]
    return [[f"--s={tokens}", *flags] for tokens in QUERY_TOKENS]


def run(command: Sequence[str], folder: Path | None = None) -> int:
    """Run a module of the project, its records and artefacts below ``folder``."""
    environment = {} if folder is None else {"HYPERMLA_ROOT": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", *command], env={**os.environ, **environment}
    ).returncode


def main(name: str, command: Sequence[str], flags: Sequence[str]) -> int:
    """Run a command of the project on each problem and write a table of what it recorded.

    The records stay below ``out/benchmark/<name>/<time>/``, beside the table; those in
    ``results/`` come from ``nox -s bench``.

    Args:
        name: Of the script, for the folder.
        command: Module and first arguments.
        flags: Passed on; ``--help`` explains them.

    Returns:
        The exit code: the first of the commands' that is not 0.
    """
    if "--help" in flags:
        return run([*command, "--help"])
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%S.%fZ")
    folder = out_dir() / "benchmark" / name / now
    code = 0
    for arguments in problems(flags):
        ended = run([*command, *arguments], folder)
        if ended == BAD_INPUT:  # The next problem has the same.
            return BAD_INPUT
        code = code or ended
    if rows := [row(record) for record in recorded(folder)]:
        write(rows, folder / "comparison.csv")
        print(f"table: {folder / 'comparison.csv'}")
    return code
