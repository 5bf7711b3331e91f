from __future__ import annotations

import csv
import io

import pytest
from factories import costs_as, duration, passed, record, stage
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.profiling import annotation, counted
from mla_var3.profiling.report import render_one
from mla_var3.runtime import costs
from tests.profiling.reports import FIXTURES

H200 = "nvidia-h200-sxm"
ROWS = annotation.read_table((FIXTURES / "nsight-python-0.9.6.csv").read_text(encoding="utf-8"))
VALUES = annotation.stage_values(ROWS)


@pytest.fixture(autouse=True)
def cost(monkeypatch):
    """A cost model that is easily followed."""
    costs_as(monkeypatch)


def of(*stages):
    return record(outcome=passed(stages=list(stages)), target=H200, mode="annotation")


def test_counters_in_words_and_units():
    assert list(counted.formatted(VALUES["combine"]).items())[:4] == [
        ("DRAM bytes read (MB)", "101.2"),
        ("DRAM bytes written (MB)", "12.09"),
        ("DRAM throughput (%)", "34.86"),
        ("SM throughput (%)", "24.99"),
    ]
    assert counted.formatted({"something_else": 1.0}) == {}


def test_a_column_per_stage_and_a_row_per_counter_of_any():
    name = "launch__waves_per_multiprocessor"
    header, rows = counted.columns({**VALUES, "more": {name: 0.5}, "bare": {}})
    assert header == ["counter", *VALUES, "more", "bare"]
    assert ["registers per thread", "168", "168", "168", "", ""] in rows
    assert ["waves per SM", "", "", "", "0.5", ""] in rows
    assert counted.columns({"bare": {}}) == (["counter", "bare"], [])


@given(st.integers(1, 10**13), st.integers(1, 10**10), st.floats(1, 1e5), st.floats(1, 1e10))
def test_a_place_is_plain_arithmetic(flops, size, median, read):
    counters = {counted.READ: read, counted.WRITTEN: 8.0}
    one = stage(duration=duration(median), counters=counters)
    with pytest.MonkeyPatch.context() as patch:
        costs_as(patch, flops, size)
        (place,) = counted.places(of(one))
        found, least = place.figures, costs.bound(of(one), one)
    assert found["counted_bytes"] == read + 8.0
    assert found["tflops"] == pytest.approx(flops / median / 1e6)
    assert found["counted_gbps"] == pytest.approx((read + 8.0) / median / 1e3)
    assert found["model_flop_per_byte"] == pytest.approx(flops / size)
    assert found["counted_flop_per_byte"] == pytest.approx(flops / (read + 8.0))
    assert found["times_the_bound"] == pytest.approx(median / least.time_us)


def test_only_timed_stages_whose_bytes_were_counted_have_a_place():
    timed = stage("a", duration=duration(), counters={counted.READ: 1.0})
    untimed = stage("b", counters={counted.READ: 1.0, counted.WRITTEN: 1.0})
    assert counted.places(of(timed, untimed)) == []
    assert counted.roofline_csv([]) == ""


def test_as_csv_what_is_not_known_is_empty(monkeypatch):
    counters = {counted.READ: 0.0, counted.WRITTEN: 0.0}
    one = stage(duration=duration(100.0), counters=counters)
    costs_as(monkeypatch, bytes=0)
    (row,) = csv.DictReader(io.StringIO(counted.roofline_csv(counted.places(of(one)))))
    assert (row["stage"], row["counted_bytes"], row["median_us"]) == ("attention", "0.0", "100.0")
    assert row["counted_flop_per_byte"] == row["model_flop_per_byte"] == ""


def test_the_report_shows_counters_beside_the_roofline():
    one = stage("combine", duration=duration(71.3), counters=VALUES["combine"])
    text = render_one(of(one)).partition("### Counters beside the roofline")[2]
    # 113.3 MB in 71.3 us are 1590 GB/s.
    assert "| combine | 1,000.0 | 8.8 | 206.1 | 14.0 | 1,589.5 | 71.3 |" in text
    assert "| counter | combine |" in text
    assert "| DRAM throughput (%) | 34.86 |" in text
    assert "### Counters" not in render_one(of(stage(duration=duration())))
