"""Interleaved rounds on a GPU that is played: order, records, failures and absent libraries."""

from __future__ import annotations

import types

import pytest

from mla_var3 import evidence
from mla_var3.errors import NotExecutableError
from mla_var3.profiling import energy, rounds
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import RuntimeObject, registry
from mla_var3.runtime.ct_kernel import CtKernel

SMALL = {"b": 1, "h": 16, "s": 1, "t": 20, "k": 32, "p": 16}
DRAWN = evidence.Energy(launches=20, launch_us=9.0, joules=0.1, watts=600.0, samples=3)


@pytest.fixture
def played(gpu, monkeypatch):
    """Graphs are the bodies themselves; replays are noted and take 100 us, then 101 us, ..."""
    replayed = []

    class Timer:
        protocol = evidence.Protocol(
            timer="fake", warmup_runs=0, bench_runs=5, l2_flush=True, graph_replay=True
        )

        def __init__(self, bench_runs):
            pass

        def replays_us(self, graph, count):
            replayed.append((version_of(graph), count))
            return [100.0 + len(replayed)] * count

    monkeypatch.setattr(rounds, "Timer", Timer)
    monkeypatch.setattr(rounds, "capture", lambda body: body)
    monkeypatch.setattr(energy, "meter", lambda: "energy is not measured: why")
    return replayed


def version_of(launched: RuntimeObject) -> str:
    """The module that a kernel stands in, where it is one: its name is that of all versions."""
    if isinstance(launched, CtKernel):
        return launched.kernel_fn._pyfunc.__module__.rpartition(".")[2]
    return launched.name


def jobs(settings: Settings, *keys: str):
    found = [registry.find(*key.split()) for key in keys]
    return [Job(version, version.plan_class()(**SMALL), None, settings) for version in found]


def timed(*keys: str, **settings):
    given = Settings(no_autotune=True, **settings)
    return rounds.timed(jobs(given, *keys), given, rounds=2)


def test_versions_take_turns_and_the_first_round_does_not_count(played):
    told = []
    made = timed("flash_mla v0", "flash_mla v1", bench_runs=7, progress=told.append)
    assert [name for name, _ in played] == ["flash_mla", "flash_mla_v1"] * 3
    assert {count for _, count in played} == {4}
    first, second = (record.outcome for _, record in made)
    assert first.total == evidence.Duration(median_us=104, min_us=103, max_us=105, samples=8)
    assert (second.total.min_us, second.total.max_us) == (104, 106)
    assert (first.protocol.rounds, first.protocol.bench_runs) == (2, 8)
    assert first.correctness.status == "passed"
    assert len({record.run for _, record in made}) == 1
    assert "energy is not measured: why" in told


def test_energy_comes_with_the_times(played, monkeypatch):
    asked = []
    monkeypatch.setattr(energy, "meter", object)
    monkeypatch.setattr(
        energy, "in_turn",
        lambda meter, runs: asked.extend(us for _, us in runs) or [DRAWN for _ in runs],
    )  # fmt: skip
    ((_, record),) = timed("flash_mla v0", bench_runs=2)
    assert record.outcome.energy == DRAWN
    assert asked == [record.outcome.total.median_us]
    assert evidence.Record.model_validate_json(record.model_dump_json()) == record


@pytest.mark.parametrize("error", [RuntimeError("no memory"), NotExecutableError("absent: why")])
def test_what_cannot_run_leaves_the_others_their_rounds(played, monkeypatch, error):
    launch = CtKernel.__call__

    def refuse(self):
        if version_of(self) == "flash_mla_v1":
            raise error
        return launch(self)

    monkeypatch.setattr(CtKernel, "__call__", refuse)
    (_, sound), (entry, record) = timed("flash_mla v0", "flash_mla v1")
    assert sound.outcome.total.samples == 50
    assert {name for name, _ in played} == {"flash_mla"}
    if isinstance(error, RuntimeError):
        assert record.outcome.error == "no memory"
    else:
        assert (record, entry.absent) == (None, "absent: why")


def test_each_stage_has_its_times_beside_the_whole(played, monkeypatch):
    monkeypatch.setattr(rounds, "capture", lambda body: types.SimpleNamespace(name=str(body)))
    ((_, record),) = timed("flash_mla_split_kv v0", bench_runs=2)
    whole, first, second = (name for name, _ in played[:3])
    assert [name for name, _ in played] == [whole, first, second] * 3
    stages = record.outcome.stages
    assert [stage.duration.min_us for stage in stages] == [105, 106]
    assert record.outcome.total.min_us == 104
