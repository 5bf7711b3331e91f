"""All records as one table."""

from __future__ import annotations

import pandas

from mla_var3 import evidence
from mla_var3.evidence.frame import COLUMNS

from .making import correctness, passed, record, timed_record


def test_one_row_per_record_with_the_axes_after_the_columns(tmp_path):
    evidence.write(record(), tmp_path)
    evidence.write(timed_record(12.5, problem={"m": 7, "dtype": "fp16"}), tmp_path)
    table = evidence.frame(root=tmp_path)
    assert list(table.columns[: len(COLUMNS)]) == list(COLUMNS)
    assert list(table.columns[len(COLUMNS) :]) == [
        "problem.m", "problem.dtype", "problem.b", "problem.causal", "problem.n",
    ]  # fmt: skip
    assert list(table["mode"]) == ["event", "static"]
    timed, static = (table.iloc[i] for i in range(2))
    assert (timed["median_us"], timed["min_us"], timed["samples"]) == (12.5, 11.25, 50)
    assert pandas.isna(static["median_us"])
    assert (timed["driver"], static["error"]) == ("580.159", 1e-3)
    assert static["record"] == evidence.address(record())
    assert (timed["problem.m"], static["problem.b"]) == (7, 64)
    assert pandas.isna(timed["problem.b"])


def test_a_run_without_numbers_has_none():
    table = evidence.frame(
        [record(evidence.Failed(error="no")), record(evidence.Skipped(reason="x"))]
    )
    assert list(table["status"]) == ["failed", "skipped"]
    assert table[["median_us", "samples", "error"]].isna().all(axis=None)


def test_an_error_that_is_not_finite_is_missing():
    case = evidence.CheckedCase(problem={}, max_relative_error=None)
    table = evidence.frame([record(passed(correctness=correctness(cases=[case])))])
    assert table["error"].isna().all()


def test_staleness_is_todays():
    gone = record(kernel={"sources": {"kernels/gone.py": "0" * 40}})
    assert list(evidence.frame([record(), gone])["stale"]) == [False, True]


def test_no_records():
    table = evidence.frame([])
    assert list(table.columns) == list(COLUMNS)
    assert table.empty
    assert evidence.frame(root=evidence.store.results_dir() / "missing").empty


def test_every_committed_record_is_a_row():
    assert len(evidence.frame()) == sum(len(evidence.records_of(path)) for path in evidence.files())
