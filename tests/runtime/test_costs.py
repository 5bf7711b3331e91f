"""Costs and bounds of records, by today's cost models."""

from __future__ import annotations

from typing import Any

import pytest

from mla_var3 import devices, evidence, roofline
from mla_var3.roofline.prediction import device_of, devices_of, dtype_of
from mla_var3.runtime import costs, registry
from mla_var3.workloads import Cost
from tests.evidence.making import duration, passed, record, stage, timed, timed_record

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)


def real(**changes: Any) -> evidence.Record:
    """A record whose version takes its problem."""
    return record(**{"problem": {"b": 64, "dtype": "bf16"}, **changes})


def of_plan(plan: Any, **changes: Any) -> evidence.Record:
    stages = [
        stage(path, tiling=kernel.tiling.values(), **changes)
        for path, kernel in plan.plan(*plan.prepare_inputs("meta")).stages()
    ]
    kernel = {"design": VERSION.design, "version": VERSION.version}
    return record(passed(stages=stages), kernel=kernel, problem=plan.problem())


def test_the_cost_is_the_plans() -> None:
    made = of_plan(PLAN)
    assert costs.cost(made) == PLAN._algorithmic_flops_bytes()
    planned = dict(PLAN.plan(*PLAN.prepare_inputs("meta")).stages())
    assert isinstance(made.outcome, evidence.Passed)
    assert len(made.outcome.stages) == 3
    for each in made.outcome.stages:
        assert costs.cost(made, each) == planned[each.name].cost


def test_a_stage_costs_what_it_did_on_the_device_of_the_record() -> None:
    """Of three splits or of eight a combine reads another amount."""
    version = registry.find("mla_var6_plus", "v1")
    plan = version.plan_class()(s=1, n=64)
    kernel = {"design": version.design, "version": version.version}
    found = {}
    for target in ("static/sm_90", "static/sm_120"):
        made = record(
            passed(stages=[stage("combine", tiling={})]), kernel=kernel, target=target,
            problem=plan.problem(),
        )  # fmt: skip
        assert isinstance(made.outcome, evidence.Passed)
        found[target] = costs.cost(made, made.outcome.stages[0])
    assert None not in found.values()


@pytest.mark.parametrize("design", ["mla_var6_plus", "mla_shared_prefix"])
@pytest.mark.parametrize("s", [1, 16, 64])
def test_a_problem_has_one_bound_however_it_is_cut(design: str, s: int) -> None:
    """What a plan keeps decompressed is how it works: the least over all ways bounds each."""
    version = registry.find(design, "v0")
    axis = "n" if design == "mla_var6_plus" else "prefix"
    made = [
        record(passed(), kernel={"design": design, "version": "v0"}, target="static/sm_90",
               problem=version.plan_class()(s=s, **{axis: kept}).problem() | extra)
        for extra in [{"shared": 3072} if axis == "prefix" else {}]
        for kept in (0, 640, 3072)
    ]  # fmt: skip
    bounds = {costs.bound(each).time_us for each in made}
    assert len(bounds) == 1
    device = roofline.device_of(made[0])
    rates = roofline.rates_of(device, "bf16", bound=True)
    for each in made:
        own = costs.cost(each)
        assert roofline.predict(own.flops, own.bytes, rates).time_us >= min(bounds) * (1 - 1e-12)


@pytest.mark.parametrize(
    "change",
    [
        {"problem": {"heads_of_old": 3}},
        {"kernel": {"version": "v99"}},
        {"kernel": {"design": "gone"}},
    ],
)
def test_what_todays_version_does_not_tell_is_not_known(change: dict[str, Any]) -> None:
    made = record(**change)
    assert costs.cost(made) is None
    assert isinstance(made.outcome, evidence.Passed)
    assert costs.cost(made, made.outcome.stages[0]) is None
    assert costs.bound(made) is None


def test_nor_is_a_stage_or_a_tiling_that_is_gone() -> None:
    made = real(outcome=passed(stages=[stage("gone"), stage("attention", tiling={"gone": 1})]))
    assert isinstance(made.outcome, evidence.Passed)
    assert [costs.cost(made, each) for each in made.outcome.stages] == [None, None]


#: Compute at 989.5 TFLOP/s, and at the 694 that cuBLAS attained.
HEAVY = Cost(989_500_000_000, 48_000_000)


@pytest.fixture
def heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cost model: all bytes are a stage's, all FLOPs are of the whole."""

    def cost(record: evidence.Record, stage: evidence.Stage | None = None) -> Cost:
        return HEAVY if stage is None else Cost(0, HEAVY.bytes)

    monkeypatch.setattr(costs, "cost", cost)
    monkeypatch.setattr(costs, "ways", lambda record: (HEAVY,))


def test_a_bound_is_of_the_records_own_device(heavy: None) -> None:
    made = timed_record(2000.0, outcome=timed(2000.0))
    least = costs.bound(made)
    assert least is not None
    assert (least.device, least.bound) == ("nvidia-h200-sxm", "compute")
    assert least.time_us == pytest.approx(1000.0)
    assert least.memory_us == pytest.approx(10.0)
    assert costs.fraction(made) == pytest.approx(0.5)


def test_a_reference_is_slower_than_the_bound_and_says_whose_rate_it_is(heavy: None) -> None:
    made = timed_record(2000.0, outcome=timed(2000.0))
    least, attained = costs.bound(made), costs.reference(made)
    assert least is not None
    assert attained is not None
    assert attained.compute_us == pytest.approx(989.5e3 / 694)
    assert attained.time_us == max(attained.compute_us, attained.power_us)
    assert attained.time_us > least.time_us
    assert "measured_tensor_bf16" in attained.rates.sources[0]


def test_a_stage_has_a_bound_and_a_share_of_its_own(heavy: None) -> None:
    part = stage(duration=duration(20.0))
    made = timed_record(outcome=timed(100.0, stages=[part]))
    least = costs.bound(made, part)
    assert least is not None
    assert (least.time_us, least.bound) == (pytest.approx(10.0), "memory")
    assert costs.fraction(made, part) == pytest.approx(0.5)
    assert costs.fraction(made, stage()) is None  # Not timed alone.


def test_a_stage_that_finds_nothing_to_do_has_no_bound() -> None:
    """A second kernel that looks whether the first one's results hold."""
    idle, busy = stage("again", duration=duration(2.0)), stage("first", duration=duration(20.0))
    made = timed_record(outcome=timed(22.0, stages=[busy, idle]))
    with costs.given(costs.Given({"again": Cost(0, 0), "first": HEAVY})):
        assert costs.bound(made, idle) is None
        assert costs.fraction(made, idle) is None
        assert costs.bound(made, busy) is not None


def test_a_time_that_no_kernel_can_take_shows(heavy: None) -> None:
    forged = timed_record(1.0, outcome=timed(1.0))
    share = costs.fraction(forged)
    assert share is not None
    assert share > 1


def test_runs_without_times_or_numbers() -> None:
    assert costs.fraction(record()) is None
    assert costs.bound(real()) is not None
    for outcome in (evidence.Failed(error="no"), evidence.Skipped(reason="no")):
        made = record(outcome)
        assert (costs.bound(made), costs.reference(made), costs.fraction(made)) == (
            None,
            None,
            None,
        )
    on_cpu = record(passed(), target="cpu", mode="disabled")
    assert (device_of(on_cpu), devices_of(on_cpu), costs.bound(on_cpu)) == (None, [], None)


@pytest.mark.parametrize("target", ["static/sm_87", "static/sm_70"])
def test_an_arch_that_no_device_stands_for(target: str) -> None:
    made = record(passed(), target=target)
    assert device_of(made) is None
    assert costs.bound(made) is None


def test_an_element_type_without_a_rate() -> None:
    assert costs.bound(real(problem={"dtype": "complex64"})) is None
    assert dtype_of(record(problem={})) == "bf16"


def test_a_device_that_nobody_knows() -> None:
    unknown = evidence.Device(key="nvidia-x1", name="X", arch="sm_90", driver="1")
    made = timed_record(device=unknown, target="nvidia-x1")
    assert (device_of(made), devices_of(made), costs.fraction(made)) == (None, [], None)


def test_a_compile_speaks_of_all_devices_of_its_arch() -> None:
    found = {device.key for device in devices_of(record(target="static/sm_90a"))}
    assert {"nvidia-h200-sxm", "nvidia-h100-sxm"} <= found
    assert found <= {device.key for device in devices.all_devices() if device.sm == "sm_90"}
    assert [device.key for device in devices_of(timed_record())] == ["nvidia-h200-sxm"]
    for device in devices_of(real()):
        assert costs.bound(real(), device=device) is not None


def test_no_committed_record_beats_its_bound() -> None:
    shares = []
    for made in evidence.find():
        parts = [None, *getattr(made.outcome, "stages", ())]
        for part in parts:
            if (share := costs.fraction(made, part)) is not None:
                assert share <= 1, (made.key, part)
                shares.append(share)
    assert len(shares) > 100
