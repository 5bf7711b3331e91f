"""Reports, diagnostics and recording."""

from __future__ import annotations

import cuda.tile as ct
import pytest
import torch

from mla_var3.interpreter import Diagnostic, LaunchReport, launch, recording
from mla_var3.interpreter.launch_report import ArrayTraffic, DiagnosticLog, LineTraffic, record


@ct.kernel
def copy(x, y, TILE: ct.Constant[int]):
    i = ct.bid(0)
    ct.store(y, (i,), ct.load(x, (i,), (TILE,)) * 2.0 + 1.0)


def test_a_diagnostic_reads_as_one_line() -> None:
    d = Diagnostic("out-of-bounds", "block (0, 0, 0) reads x[9]", "k.py", 12, "error", 3)
    assert str(d) == "k.py:12: error: out-of-bounds: block (0, 0, 0) reads x[9] (seen 3 times)"
    assert "seen" not in str(Diagnostic("a", "b", "c", 1, "info"))
    assert "seen 2 times" in str(Diagnostic("a", "b", "c", 1, "info", 2))


def test_the_log_counts_and_sorts() -> None:
    log = DiagnosticLog()
    assert not log.seen("b", ("f", 2))
    log.add("b", ("f", 2), "first", "warning")
    assert log.seen("b", ("f", 2))
    assert not log.seen("b", ("f", 2), "other subject")
    log.add("b", ("f", 2), "second", "warning", count=4)
    log.add("c", ("f", 9), "an error")
    log.add("a", ("a", 1), "a hint", "info")
    found = log.diagnostics()
    assert [(d.kind, d.count) for d in found] == [("c", 1), ("b", 6), ("a", 1)]
    assert found[1].message == "first"


def test_sums() -> None:
    report = LaunchReport(
        "k",
        (1, 1, 1),
        {"mma": 10, "add": 3},
        {("f", 1): LineTraffic(100, 0, 2, 0), ("f", 2): LineTraffic(50, 20, 1, 1)},
        {"x": ArrayTraffic("x", 64, 60, 0), "y": ArrayTraffic("y", 32, 0, 16)},
        [Diagnostic("k", "m", "f", 1, "warning"), Diagnostic("k", "m", "f", 1, "error")],
    )
    assert (report.mma_flops, report.total_flops) == (10, 13)
    assert (report.bytes_loaded, report.bytes_stored) == (150, 20)
    assert (report.unique_bytes_loaded, report.unique_bytes_stored) == (60, 16)
    assert [d.severity for d in report.errors] == ["error"]
    assert LaunchReport("k", (1, 1, 1)).mma_flops == 0


def test_the_summary_names_work_traffic_and_findings() -> None:
    x, y = torch.ones(10), torch.empty(10)
    text = launch((3,), copy, (x, y, 4)).summary()
    assert text.startswith("copy: grid (3, 1, 1)")
    assert "fma 24" in text
    assert "bytes loaded 40 (distinct 40), stored 40 (distinct 40)" in text
    assert "no findings" in text
    text = launch((2,), copy, (x, y, 4)).summary()
    assert "never-written" in text
    assert "FLOPs: none" in LaunchReport("k", (1, 1, 1)).summary()


def test_traffic_by_line_and_reuse() -> None:
    x, y = torch.ones(8), torch.empty(8)
    report = launch((2,), copy, (x, y, 4))
    [(place, traffic)] = report.bytes_by_line.items()
    assert place[0].endswith("test_launch_report.py")
    assert traffic == LineTraffic(32, 32, 2, 2)
    assert report.arrays["x"] == ArrayTraffic("x", 32, 32, 0)
    assert report.arrays["y"] == ArrayTraffic("y", 32, 0, 32)


def test_recorders_nest_and_close() -> None:
    x, y = torch.ones(4), torch.empty(4)
    with recording() as outer:
        launch((1,), copy, (x, y, 4))
        with recording() as inner:
            launch((1,), copy, (x, y, 4))
        with pytest.raises(RuntimeError), recording():
            raise RuntimeError
        launch((1,), copy, (x, y, 4))
    record(LaunchReport("late", (1, 1, 1)))
    assert [r.kernel for r in outer] == ["copy"] * 3
    assert len(inner) == 1
    assert inner[0] is outer[1]
