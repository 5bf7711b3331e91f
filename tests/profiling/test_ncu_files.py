from __future__ import annotations

import csv
import dataclasses
import io

from mla_var3.profiling import hot, ncu_files
from mla_var3.profiling.ncu_rep import Metric, Profiled
from tests.profiling import reports


def rows(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_all_counters_those_of_sections_first():
    found = rows(ncu_files.details(reports.gemm()))
    by_name = {row["metric"]: row for row in found}
    assert by_name["gpu__time_duration.sum"] == {
        "section": "GPU Speed Of Light Throughput", "metric": "gpu__time_duration.sum",
        "unit": "ns", "value": "6272",
    }  # fmt: skip
    assert by_name["launch__func_cache_config"]["value"] == "CachePreferNone"
    shown = [bool(row["section"]) for row in found]
    assert shown == sorted(shown, reverse=True)
    assert True in shown
    assert False in shown


def test_all_instructions_with_their_counters():
    launch = reports.gemm()
    found = rows(ncu_files.sass(launch))
    assert [int(row["offset"], 16) for row in found] == [x.offset for x in launch.instructions]
    hgmma = [row for row in found if row["sass"].startswith("HGMMA")]
    assert hgmma
    assert any(row["ptx"].startswith("wgmma.mma_async") for row in hgmma)
    assert {row["file"] for row in hgmma} <= {"hopper_gemm_v1.py", "common.py"}
    assert sum(float(row[hot.SAMPLES] or 0) for row in found) == 61


def test_files_of_a_launch(tmp_path):
    ncu_files.write(tmp_path / "k", reports.gemm())
    found = sorted(str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_file())
    assert found == [
        "k/annotated-src/hopper_gemm_v1.py.txt", "k/ncu-details.csv", "k/sass-metrics.csv",
        "k/source.ptx",
    ]  # fmt: skip
    text = (tmp_path / "k/annotated-src/hopper_gemm_v1.py.txt").read_text()
    assert "long_scoreboard" in text
    assert (tmp_path / "k/source.ptx").read_text().startswith(".version")


def test_what_a_report_lacks_is_left_out(tmp_path):
    ncu_files.write(tmp_path, Profiled("k", (Metric("a", 0.5), Metric("b", "nan"))))
    assert [p.name for p in tmp_path.iterdir()] == ["ncu-details.csv"]
    assert rows(ncu_files.details(Profiled("k", (Metric("b", "nan"), Metric("a", 0.5)))))[0] == {
        "section": "", "metric": "a", "unit": "", "value": "0.5",
    }  # fmt: skip


def test_a_source_that_no_instruction_stems_from_is_left_out():
    launch = dataclasses.replace(reports.gemm(), sources={"other.py": "x = 1\n"})
    assert ncu_files.annotated(launch) == []
