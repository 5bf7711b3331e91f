from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import KnowledgeError, UnknownNameError
from mla_var3.evidence import Skipped
from mla_var3.knowledge import metrics
from mla_var3.knowledge.metrics import reading, readings, regime_of
from mla_var3.workloads import Cost, workloads

from .trees import DURATION, PROTOCOL, failed_record, make_record, timed_record


def values(record):
    return {r.metric.name: r.value for r in readings(record)}


def test_the_table_is_whole():
    for name, metric in metrics.catalogue().items():
        assert metric.name == name == name.lower()
        assert metric.description.endswith(".")
        assert metric.source
        assert metric.type == "number" or not metric.unit


def test_values_of_a_static_record():
    found = values(make_record("v0"))
    assert found["registers"] == 200
    assert found["spill_instructions"] == 3
    assert found["mma_path"] == "HMMA"
    assert found["mma_fast_path"] is False  # HMMA, where the arch has HGMMA.
    # Two missed and one failed; what passed is not a fault.
    assert found["missed_remarks"] == 3
    assert found["occupancy"] == 0.125  # Two blocks of four warps, by 200 registers.
    assert found["regime"] == "speculative"
    assert found["shared_rows"] == 128 * 16
    assert found["arch"] == "sm_90"
    assert found["num_worker_warps"] == 0
    assert found["tile_m"] == 64
    assert found["blocks"] == 198
    assert found["waves"] == pytest.approx(198 / 264)
    assert found["last_wave_fill"] == pytest.approx(198 / 264)
    assert found["intensity"] == 10
    assert "duration_us" not in found
    assert "device" not in found


def test_a_share_of_a_bound_says_whose_bound_in_brief():
    record = timed_record()
    [share] = metrics.readings_of(record, metrics.metric("bound_fraction"))
    assert share.brief.endswith(f" of stage {record.outcome.stages[0].name}'s own bound")
    [time] = metrics.readings_of(record, metrics.metric("duration_us"))
    assert time.brief == "duration_us = 10"


def test_values_of_a_timed_record():
    found = values(timed_record())
    assert found["duration_us"] == found["total_us"] == 10.0
    assert found["stage_share"] == 1.0
    assert found["bound"] == "memory"
    assert found["bound_us"] == pytest.approx(100 / 4.8e6)
    assert found["bound_fraction"] == pytest.approx(100 / 4.8e6 / 10)
    assert found["reference_us"] == pytest.approx(100 / 4.27e6)
    assert found["intensity_over_ridge"] == pytest.approx(10 * 4.8 / 989.5)
    assert found["achieved_tflops"] == pytest.approx(1000 / 10e-6 / 1e12)
    assert found["achieved_gbps"] == pytest.approx(100 / 10e-6 / 1e9)
    assert found["time_spread"] == pytest.approx(0.3)
    assert found["dram_percent"] == 40
    assert found["dram_bytes"] == 64
    assert found["local_memory_bytes"] == 96
    assert found["loaded_bytes"] == 30
    assert found["counted_mma_flops"] == 7
    assert "stored_bytes" not in found
    assert found["max_relative_error"] == 0.002
    assert found["device"] == "nvidia-h200-sxm"


def test_a_failed_record_states_its_problem_alone():
    origins = {r.metric.origin for r in readings(failed_record())}
    assert origins == {"plan"}


def test_what_cannot_be_known_is_left_out(cost):
    cost[""] = Cost(1000, 0)
    odd = make_record(target="cpu", mode="disabled", problem={"s": None}, stage={"static": None})
    found = values(odd)
    for name in ("arch", "regime", "shared_rows", "waves", "intensity", "missed_remarks"):
        assert name not in found
    unknown = make_record(target="static/sm_75")
    assert "waves" not in values(unknown)
    assert "bound" not in values(unknown)
    huge = make_record(static={"shared_bytes": 1 << 20, "mma_path": "none"})
    assert not {"waves", "mma_fast_path"} & set(values(huge))
    assert values(huge)["occupancy_limiter"] == "block too large"
    chosen = make_record(stage={"grid": []})
    assert not {"blocks", "waves"} & set(values(chosen))


def test_device_with_unknown_figures_gives_no_waves(monkeypatch):
    from mla_var3 import devices
    from mla_var3.errors import DeviceFigureError

    def fail(self):
        raise DeviceFigureError("UNKNOWN")

    monkeypatch.setattr(devices.Device, "sm_count", property(fail))
    assert "waves" not in values(make_record())


def test_a_failed_compile_has_no_figures():
    found = values(make_record(static={"error": "it broke"}))
    assert not {"registers", "mma_path", "occupancy", "missed_remarks"} & set(found)
    assert found["tile_m"] == 64


def test_share_needs_both_times():
    found = values(make_record(stage={"duration": DURATION}, outcome={"protocol": PROTOCOL}))
    assert "stage_share" not in found
    assert found["duration_us"] == 10.0


def test_one_reading():
    record = make_record("v0")
    assert reading(record, "registers").value == 200
    assert reading(record, "registers", "main").stage == "main"
    assert reading(record, "query_tokens", "main").stage is None
    assert str(reading(record, "registers")) == "registers = 200 registers in stage main"
    assert str(reading(record, "query_tokens")) == "query_tokens = 16"
    with pytest.raises(UnknownNameError, match="metric"):
        reading(record, "nothing")
    with pytest.raises(UnknownNameError, match="stage"):
        reading(record, "registers", "tail")
    with pytest.raises(KnowledgeError, match="states no total_us"):
        reading(record, "total_us")
    with pytest.raises(KnowledgeError, match="run failed"):
        reading(failed_record(), "registers")
    with pytest.raises(UnknownNameError, match="stage"):
        reading(failed_record(), "registers", "main")
    skipped = record.model_copy(update={"outcome": Skipped(reason="another arch")})
    with pytest.raises(KnowledgeError, match="states no registers: the run was skipped"):
        reading(skipped, "registers")


def test_several_stages_must_be_told_apart():
    record = make_record("v0")
    stage = record.outcome.stages[0]
    stages = [stage, stage.model_copy(update={"name": "tail"})]
    two = record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"stages": stages})}
    )
    with pytest.raises(KnowledgeError, match="main, tail"):
        reading(two, "registers")
    assert reading(two, "registers", "tail").stage == "tail"
    assert reading(two, "stages").value == 2


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("total_us", 1594.2, "1,594 us"),
        ("total_us", 75.53, "75.5 us"),
        ("total_us", 7.0, "7 us"),
        ("occupancy", 0.1875, "0.188"),
        ("max_relative_error", 0.00012, "0.00012"),
        ("registers", 255, "255 registers"),
        ("mma_path", "HGMMA", "HGMMA"),
        ("causal", True, "yes"),
        ("mma_fast_path", False, "no"),
        ("time_spread", 0.0, "0"),
        ("flops", 36_500_000_000, "36,500,000,000 FLOP"),
    ],
)
def test_values_as_people_read_them(name, value, text):
    assert metrics.metric(name).text(value) == text


@given(st.floats(min_value=1e-6, max_value=1e12, allow_nan=False))
def test_shown_numbers_keep_three_digits(value):
    shown = float(metrics.metric("occupancy").text(value).replace(",", ""))
    assert math.isclose(shown, value, rel_tol=6e-2 if value < 1e-3 else 6e-3)


@given(st.integers(1, 10**6))
def test_regimes_are_those_of_the_workload(s):
    order = [regime.name for regime in workloads()["mla"].regimes]
    here, after = (regime_of(make_record(problem={"s": size})) for size in (s, s + 1))
    assert order.index(here) <= order.index(after)
    assert (here == "decode") is (s == 1)


def test_a_metric_of_a_workload_is_read_by_its_own_axes():
    record = make_record("v0")
    other = record.model_copy(
        update={"kernel": record.kernel.model_copy(update={"layer": "elsewhere"})}
    )
    assert values(record)["heads"] == 128
    assert not {"heads", "query_tokens", "regime"} & set(values(other))


def test_a_metric_of_a_language_is_read_of_its_kernels_alone():
    record = make_record("v0")
    other = record.model_copy(
        update={"kernel": record.kernel.model_copy(update={"language": "library"})}
    )
    assert values(record)["num_worker_warps"] == 0
    assert not {"num_worker_warps", "missed_remarks"} & set(values(other))


def test_two_metrics_of_one_name_are_refused(monkeypatch):
    from mla_var3.workloads import AxisMetric

    extra = AxisMetric("registers", "Text.", "problem", lambda p: 1)
    changed = workloads()["mla"]
    both = type(changed)(**{**vars(changed), "metrics": (extra,)})
    monkeypatch.setattr(metrics, "workloads", lambda: {"mla": both})
    with pytest.raises(KnowledgeError, match="two metrics are called registers"):
        metrics.catalogue.__wrapped__()


def test_unknown_metric_names_the_nearest():
    with pytest.raises(UnknownNameError, match="spill_instructions"):
        metrics.metric("spill_instruction")
