"""Real records, and what their version and their device speak against."""

from __future__ import annotations

import pytest

from mla_var3 import evidence
from mla_var3.app import refuting
from mla_var3.evidence import Record
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version


@pytest.fixture(scope="module")
def real() -> tuple[Record, Version]:
    """A timed record of two stages, with energy, and its version."""
    found = evidence.find(language="cutile-dsl", design="flash_mla_split_kv", mode="event")
    record = next(
        r for r in found if getattr(r.outcome, "energy", None) and len(r.outcome.stages) == 2
    )
    name = f"{record.kernel.design}@{record.kernel.language}"
    return record, registry.find(name, record.kernel.version)


def with_stages(record: Record, stages) -> Record:
    outcome = record.outcome.model_copy(update={"stages": stages})
    return record.model_copy(update={"outcome": outcome})


def test_a_real_record_holds(real):
    assert list(refuting.unlike_the_launch(*real)) == []
    assert list(refuting.beyond_the_device(real[0])) == []


def test_stages_that_the_version_does_not_launch(real):
    record, version = real
    first, second = record.outcome.stages
    other = first.model_copy(update={"name": "banana"})
    for stages in ([other, second], [second, first], [first]):
        assert list(refuting.unlike_the_launch(with_stages(record, stages), version))


def test_a_tiling_that_the_version_refuses(real):
    record, version = real
    first, second = record.outcome.stages
    other = first.model_copy(update={"tiling": {**first.tiling, "tile_m": 77}})
    (fault,) = refuting.unlike_the_launch(with_stages(record, [other, second]), version)
    assert "does not launch it" in fault


@pytest.mark.parametrize(
    ("clock", "watts", "window_s", "faults"),
    [
        (1980.0, 757.5, 1.0, 0),
        (5000.0, 700.0, 1.0, 1),
        (1980.0, 5000.0, 1.0, 1),
        (None, 700.0, 1.0, 0),
        (1980.0, 850.0, 1.0, 1),
        (1980.0, 850.0, 0.5, 0),  # a step of the counter is a larger share of half a second
        (1980.0, 1000.0, 0.5, 1),
    ],
)
def test_clocks_and_power_beyond_the_device(real, clock, watts, window_s, faults):
    record, _ = real
    timed = {"launches": 1000, "launch_us": window_s * 1e3}
    energy = record.outcome.energy.model_copy(
        update={"watts": watts, "sm_clock_mhz": clock, **timed}
    )
    made = record.model_copy(
        update={"outcome": record.outcome.model_copy(update={"energy": energy})}
    )
    assert len(list(refuting.beyond_the_device(made))) == faults
