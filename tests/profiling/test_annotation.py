from __future__ import annotations

import contextlib
import math
import sys
from types import SimpleNamespace

import pytest

from mla_var3 import records
from mla_var3.errors import ToolchainError
from mla_var3.profiling import annotation
from mla_var3.profiling.annotation import (
    DURATION,
    METRICS,
    annotation_profile_plan,
    load_nsight,
    stage_values,
)
from mla_var3.runtime import CtKernel, registry

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)


def row(stage: str, metric: str | None, value: float, **changes) -> dict:
    fields = {"Annotation": stage, "AvgValue": value, "MinValue": value - 1, "MaxValue": value + 1,
              "NumRuns": 5}  # fmt: skip
    return {**fields, **({"Metric": metric} if metric else {}), **changes}


class TestStageValues:
    def test_by_stage_and_metric(self):
        found = stage_values([row("a", "x", 2.0), row("a", "y", 3), row("b", "x", 4.0)])
        assert found == {
            "a": {"x": (2.0, 1.0, 3.0, 5.0), "y": (3.0, 2.0, 4.0, 5.0)},
            "b": {"x": (4.0, 3.0, 5.0, 5.0)},
        }

    def test_a_table_of_one_metric_does_not_name_it(self):
        assert set(stage_values([row("a", None, 2.0)])["a"]) == {DURATION}

    @pytest.mark.parametrize("bad", [math.nan, math.inf])
    def test_what_was_not_collected_is_left_out(self, bad):
        assert stage_values([row("a", "x", bad), row("a", "y", 1.0, MaxValue=bad)]) == {}

    @pytest.mark.parametrize("column", ["Annotation", "AvgValue", "NumRuns"])
    def test_a_missing_column_is_named_beside_those_there_are(self, column):
        broken = {k: v for k, v in row("a", "x", 1.0).items() if k != column}
        with pytest.raises(ToolchainError, match=f"no column '{column}'; it has .*MinValue"):
            stage_values([broken])


class TestProfile:
    @pytest.fixture
    def nsight(self, gpu, monkeypatch):
        """nsight-python played: what is annotated is remembered, each metric reads 7."""
        fake = SimpleNamespace(annotated=[], asked={}, error=None)

        @contextlib.contextmanager
        def annotate(name):
            fake.annotated.append(name)
            yield

        def kernel(**asked):
            fake.asked = asked

            def decorate(body):
                def profiled():
                    if fake.error is not None:
                        raise fake.error
                    body()
                    (annotation.Path(asked["output_prefix"]) / "x.csv").touch()
                    rows = [row(n, m, 7.00001) for n in fake.annotated for m in asked["metrics"]]
                    frame = SimpleNamespace(to_dict=lambda kind: rows)
                    return SimpleNamespace(to_dataframe=lambda: frame)

                return profiled

            return decorate

        class ProfilerException(Exception):
            pass

        fake.module = SimpleNamespace(
            analyze=SimpleNamespace(kernel=kernel), annotate=annotate,
            exceptions=SimpleNamespace(ProfilerException=ProfilerException),
        )  # fmt: skip
        monkeypatch.setitem(sys.modules, "nsight", fake.module)
        return fake

    def test_counters_of_each_stage_beside_the_event_times(self, nsight, root):
        result = annotation_profile_plan(PLAN, version="mla_var6_plus v4", no_autotune=True)
        made = records.read(result.paths[-1])
        assert made.mode == "annotation"
        stages = ["attention.latent", "attention.decompressed", "combine"]
        assert nsight.annotated == stages
        assert [s.name for s in made.outcome.stages] == stages
        for stage in made.outcome.stages:
            assert stage.counters == dict.fromkeys(METRICS, 7.0)
            assert stage.duration is not None
        folder = root / "out/mla_var6_plus/v4/annotation"
        assert made.outcome.artefacts == [str(folder / "x.csv")]
        assert nsight.asked["metrics"] == list(METRICS)

    @pytest.mark.parametrize("kind", [RuntimeError, OSError, ValueError, "ProfilerException"])
    def test_a_refusal_is_one_sentence_and_keeps_the_event_record(self, nsight, root, kind):
        if isinstance(kind, str):
            kind = getattr(nsight.module.exceptions, kind)
        nsight.error = kind("no permission\n")
        with pytest.raises(ToolchainError, match=r"python could not profile: no permission$"):
            annotation_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert [p.name for p in root.glob("results/**/*.json")] == ["event.json"]

    def test_a_failed_run_is_not_profiled(self, nsight, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = annotation_profile_plan(PLAN, version=VERSION, no_autotune=True)
        assert isinstance(result.record.outcome, records.Failed)
        assert not nsight.annotated


def test_without_nsight_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "nsight", None)
    with pytest.raises(
        ToolchainError, match=r"mode annotation needs nsight-python .*mla_var3\[gpu\]"
    ):
        load_nsight()
