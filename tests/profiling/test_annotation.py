from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas
import pytest

from mla_var3 import evidence, inputs
from mla_var3.errors import ToolchainError
from mla_var3.profiling import annotating, annotation, replay
from mla_var3.profiling.annotating import METRICS, annotate
from mla_var3.profiling.annotation import (
    DURATION,
    annotation_profile_plan,
    read_table,
    stage_values,
    with_reader,
)
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry
from mla_var3.runtime.ct_kernel import CtKernel
from tests.profiling.reports import FIXTURES

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)
STAGES = ["attention.latent", "attention.decompressed", "combine"]


def row(stage: str, metric: str | None, value: float, **changes) -> dict:
    return {"Annotation": stage, "AvgValue": value, **({"Metric": metric} if metric else {}),
            **changes}  # fmt: skip


class TestStageValues:
    def test_by_stage_and_metric(self):
        found = stage_values([row("a", "x", 2.00001), row("a", "y", 3), row("b", "x", 4.0)])
        assert found == {"a": {"x": 2.0, "y": 3.0}, "b": {"x": 4.0}}

    def test_a_table_of_one_metric_does_not_name_it(self):
        assert set(stage_values([row("a", None, 2.0)])["a"]) == {DURATION}

    @pytest.mark.parametrize("bad", [math.nan, math.inf, ""])
    def test_what_was_not_collected_is_left_out(self, bad):
        assert stage_values([row("a", "x", bad)]) == {}

    @pytest.mark.parametrize("column", ["Annotation", "AvgValue"])
    def test_a_missing_column_is_named_beside_those_there_are(self, column):
        broken = {k: v for k, v in row("a", "x", 1.0).items() if k != column}
        with pytest.raises(ToolchainError, match=f"no column '{column}'; it has .*Metric"):
            stage_values([broken])

    def test_what_is_no_number_is_one_sentence(self):
        with pytest.raises(ToolchainError, match=r"holds no number: .*'much'"):
            stage_values([row("a", "x", "much")])

    def test_the_table_of_an_h200(self):
        """nsight-python 0.9.6's, of mla_var6_plus v4, five runs each."""
        found = stage_values(read_table(inputs.read_text(FIXTURES / "nsight-python-0.9.6.csv")))
        assert list(found) == STAGES
        assert all(list(values) == list(METRICS) for values in found.values())
        assert found["combine"]["dram__bytes_read.sum"] == 101239910.4
        assert found["attention.latent"]["launch__registers_per_thread"] == 168.0

    def test_a_table_that_is_not_csv(self):
        with pytest.raises(ToolchainError, match="nsight-python's table cannot be read"):
            read_table('a,b\n"' + "x" * 200_000)


def test_the_reader_beside_ncu_is_found_by_the_child(monkeypatch):
    monkeypatch.setattr(annotation.ncu_rep, "extras", lambda: Path("/opt/extras/python"))
    assert with_reader({"A": "1"}) == {"A": "1", "PYTHONPATH": "/opt/extras/python"}
    path = os.pathsep.join(["/opt/extras/python", "src"])
    assert with_reader({"PYTHONPATH": "src"})["PYTHONPATH"] == path
    monkeypatch.setattr(annotation.ncu_rep, "extras", lambda: None)
    assert with_reader({"A": "1"}) == {"A": "1"}


@pytest.fixture
def nsight(monkeypatch):
    """nsight-python played: what is annotated is remembered, each metric reads 7."""
    fake = SimpleNamespace(annotated=[], asked={}, error=None, watched=False)

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
                rows = [row(n, m, 7.00001) for n in fake.annotated for m in asked["metrics"]]
                frame = pandas.DataFrame(rows)
                return None if fake.watched else SimpleNamespace(to_dataframe=lambda: frame)

            return profiled

        return decorate

    class ProfilerException(Exception):
        pass

    fake.module = SimpleNamespace(
        analyze=SimpleNamespace(kernel=kernel), annotate=annotate,
        exceptions=SimpleNamespace(ProfilerException=ProfilerException),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "nsight", fake.module)
    monkeypatch.setattr(annotation, "missing", lambda: None)
    return fake


@pytest.fixture
def child(gpu, monkeypatch):
    """The child's command runs in this process."""
    commands = []

    def run(arguments, tool, environment):
        assert environment["PATH"] == os.environ["PATH"]
        commands.append(arguments)
        if annotate(Path(arguments[-1])):
            raise ToolchainError(f"{tool} ended with code 1")
        return ""

    monkeypatch.setattr(replay, "run", run)
    return commands


class TestProfile:
    def test_counters_of_each_stage_beside_the_event_times(self, nsight, child, root):
        result = annotation_profile_plan(PLAN, no_autotune=True)
        made = evidence.records_of(result.record_paths[-1])[-1]
        assert made.mode == "annotation"
        assert nsight.annotated == STAGES
        assert [s.name for s in made.outcome.stages] == STAGES
        for stage in made.outcome.stages:
            assert stage.counters == dict.fromkeys(METRICS, 7.0)
            assert stage.duration is not None
        assert nsight.asked["metrics"] == list(METRICS)
        names = [Path(name).name for name in made.outcome.artefacts]
        assert names == ["nsight_formatted_metrics.csv", "nsight_raw_metrics.csv", "plan.json"]
        text = (result.report.parent / annotation.FORMATTED).read_text()
        rows = {line["counter"]: line for line in read_table(text)}
        assert rows["registers per thread"] == {
            "counter": "registers per thread", **dict.fromkeys(STAGES, "7"),
        }  # fmt: skip
        beside = read_table((result.report.parent / "roofline_metrics.csv").read_text())
        assert [line["stage"] for line in beside] == STAGES
        assert {line["counted_bytes"] for line in beside} == {"14.0"}
        assert "### Counters beside the roofline" in result.report.read_text()
        assert all((root / "out" / name).is_file() for name in made.outcome.artefacts)
        assert made.outcome.artefacts[0].startswith("profiles/annotation/cutile/mla/mla_var6_plus/")
        (command,) = child
        assert command[1:3] == ["-m", "mla_var3.profiling.annotating"]

    @pytest.mark.parametrize("kind", [RuntimeError, OSError, ValueError, "ProfilerException"])
    def test_a_refusal_is_one_sentence_and_keeps_the_event_record(
        self, nsight, child, root, kind, capsys
    ):
        if isinstance(kind, str):
            kind = getattr(nsight.module.exceptions, kind)
        nsight.error = kind("no permission\n")
        with pytest.raises(ToolchainError, match="nsight-python ended"):
            annotation_profile_plan(PLAN, no_autotune=True, check=False)
        assert capsys.readouterr().err == "nsight-python could not profile: no permission\n"
        assert [r.mode for r in evidence.find(root / "results")] == ["event"]

    def test_a_failed_run_is_not_profiled(self, nsight, child, monkeypatch):
        monkeypatch.setattr(CtKernel, "__call__", lambda self: dict(self.output_tensors))
        result = annotation_profile_plan(PLAN, no_autotune=True)
        assert isinstance(result.record.outcome, evidence.Failed)
        assert not nsight.annotated

    def test_the_watched_process_only_runs_the_stages(self, nsight, gpu, tmp_path):
        nsight.watched = True
        assert annotate(replay.write(tmp_path, Job.of(PLAN, Settings(version=VERSION)))) == 0
        assert nsight.annotated == STAGES
        assert not (tmp_path / annotating.RAW).exists()


@pytest.mark.parametrize(
    ("package", "command", "reader", "said"),
    [
        (None, "/opt/ncu", None, "nsight-python is not installed"),
        (object(), None, None, "ncu is not on PATH"),
        (object(), "/opt/ncu", "no reader", "no reader"),
    ],
)
def test_what_is_missing_is_said(package, command, reader, said, monkeypatch):
    monkeypatch.setattr(annotation.ncu_rep, "missing", lambda: reader)
    monkeypatch.setattr(annotation.importlib.util, "find_spec", lambda _: package)
    monkeypatch.setattr(annotation.shutil, "which", lambda _: command)
    with pytest.raises(ToolchainError, match=f"mode annotation cannot run: .*{said}.*=event"):
        annotation_profile_plan(PLAN)


def test_a_plan_written_to_a_file_is_read_back(tmp_path):
    stage = next(iter(PLAN.tiling_types))
    plan = dataclasses.replace(PLAN, tilings={stage: PLAN.tiling(stage)})
    path = replay.write(tmp_path, Job.of(plan, Settings(version=VERSION)))
    assert replay.read(path) == plan
    assert json.loads(path.read_text())["design"] == "mla_var6_plus@cutile-dsl"


def test_nothing_beside_the_child_hides_what_it_imports():
    """nsight-python runs it by its path, which puts its folder first among those of imports."""
    beside = {path.stem for path in Path(annotating.__file__).parent.glob("*.py")}
    others = {"nsight", "ncu_report", "nvtx", "numpy", "pandas", "torch", "cuda", "cutlass"}
    assert beside.isdisjoint(sys.stdlib_module_names)
    assert beside.isdisjoint(others)


def test_the_child_loads_nsight_python_before_torch():
    code = "import sys, mla_var3.profiling.annotating; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
