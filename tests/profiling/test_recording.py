from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from factories import protocol, static_facts

from mla_var3 import devices, evidence
from mla_var3.errors import UnknownNameError
from mla_var3.languages import Compiled
from mla_var3.profiling import recording
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry
from mla_var3.runtime.check import CaseResult, OutputError, check_plan
from mla_var3.workloads import Tolerance

VERSION = registry.find("mla_var6_plus", "v4")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=64, p=16, d=32, n=30)
JOB = Job.of(PLAN, Settings(version=VERSION))
H200 = devices.load("nvidia-h200-sxm")


class TestToolchain:
    def test_installed_versions_verbatim(self):
        tools = ("torch", *JOB.tools)
        found = recording.toolchain(tools)
        assert list(found) == list(tools)
        assert found["cuda-tile"] == "1.7.0"

    @pytest.mark.parametrize(
        ("said", "version"),
        [("Cuda compilation tools, release 13.0, V13.0.88\n", "13.0.88"),
         ("tool release 13.4\n", "13.4"), ("odd\n", None)],
    )  # fmt: skip
    def test_a_compiler_without_its_package_is_asked(self, monkeypatch, said, version):
        asked = []

        def run(arguments, **_kwargs):
            asked.append(arguments)
            return SimpleNamespace(stdout=said)

        monkeypatch.setattr(recording.shutil, "which", lambda name: f"/opt/{name}")
        monkeypatch.setattr(recording, "subprocess", SimpleNamespace(run=run))
        expected = {} if version is None else {"no-such-tool": version}
        assert recording.toolchain(["no-such-tool"]) == expected
        assert asked == [["/opt/tool", "--version"]]

    def test_what_is_nowhere_is_left_out(self):
        assert recording.toolchain(["no-such-package", "no-other-nonesuch"]) == {}


def test_the_identity_names_the_sources():
    found = recording.identity(VERSION)
    assert (found.language, found.layer, found.design, found.version) == (
        "cutile-dsl", "mla", "mla_var6_plus", "v4",
    )  # fmt: skip
    assert found.sources == VERSION.sources()


def test_stages_carry_what_is_known_of_each():
    obj = PLAN.plan(*PLAN.prepare_inputs("meta"))
    time = evidence.Duration(median_us=1.0, min_us=1.0, max_us=1.0, samples=1)
    facts = static_facts(registers=9)
    made = {"attention.latent": Compiled(facts, {})}
    outcome = recording.passed(obj, durations={"combine": time}, compiled=made, protocol=protocol())
    found = outcome.stages
    assert [s.name for s in found] == ["attention.latent", "attention.decompressed", "combine"]
    assert found[2].kernel == "combine"
    assert [s.duration for s in found] == [None, None, time]
    assert [s.static for s in found] == [facts, None, None]
    for stage, (path, kernel) in zip(found, obj.stages(), strict=True):
        assert stage.name == path
        assert tuple(stage.grid) == kernel.grid()
    assert found[0].tiling["tile_m"] == 64


def test_a_grid_that_compiled_host_code_makes_goes_first():
    obj = PLAN.plan(*PLAN.prepare_inputs("meta"))
    made = {"combine": Compiled(static_facts(), {}, grid=(7, 3, 1))}
    stages = {s.name: s.grid for s in recording.passed(obj, compiled=made).stages}
    assert stages["combine"] == [7, 3, 1]
    assert stages["attention.latent"] != [7, 3, 1]


class TestCorrectness:
    def test_counts_of_the_interpreter(self):
        result = check_plan(PLAN)
        found = recording.correctness([result], "torch")
        assert (found.status, found.against, found.tolerance) == ("passed", "torch", 4e-3)
        (case,) = found.cases
        assert case.problem == PLAN.problem()
        assert case.mma_flops == sum(r.mma_flops for r in result.executions) > 0
        assert case.bytes_loaded == sum(r.bytes_loaded for r in result.executions) > 0
        assert case.bytes_stored == sum(r.bytes_stored for r in result.executions) > 0

    def test_no_counts_without_reports_and_the_first_fault_is_the_message(self):
        def result(relative):
            return CaseResult(PLAN, (OutputError("o", relative, relative, Tolerance(4e-3, 1e-2)),))

        found = recording.correctness([result(0.00123456), result(0.5)], "torch")
        assert found.status == "failed"
        assert found.message.startswith("o: relative error 5.00e-01")
        assert [c.max_relative_error for c in found.cases] == [0.0012, 0.5]
        assert found.cases[0].mma_flops is None
        nan = recording.correctness([result(math.nan)], "torch")
        assert nan.cases[0].max_relative_error is None


def test_a_record_states_the_run(root):
    found = recording.make(JOB, "static", "static/sm_90", evidence.Failed(error="no"))
    assert (found.slug, found.problem, found.run) == (PLAN.slug(), PLAN.problem(), recording.RUN)
    assert found.time.microsecond == 0
    assert found.git is None
    assert set(found.toolchain) == set(JOB.tools)


class TestGpu:
    @pytest.fixture
    def cuda(self, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (9, 0))
        monkeypatch.setattr(recording.gpu_lock, "gpu_uuid", lambda: "1-2")

    def smi(self, monkeypatch, answer):
        def run(command, **_kwargs):
            assert "--id=GPU-1-2" in command  # By its place it would be another's where some hide.
            if isinstance(answer, Exception):
                raise answer
            return SimpleNamespace(stdout=answer)

        fake = SimpleNamespace(run=run, SubprocessError=recording.subprocess.SubprocessError)
        monkeypatch.setattr(recording, "subprocess", fake)

    def test_state_as_the_driver_tells_it(self, cuda, monkeypatch):
        self.smi(monkeypatch, "580.159, 1980, 3201.5\n")
        device, state = recording.gpu()
        assert device == H200
        assert state == evidence.Device(
            key="nvidia-h200-sxm", name="NVIDIA H200", arch="sm_90", driver="580.159",
            sm_clock_mhz=1980.0, memory_clock_mhz=3201.5,
        )  # fmt: skip

    @pytest.mark.parametrize(
        "answer",
        [FileNotFoundError("nvidia-smi"), "", "no devices\n", "580.1, [N/A]\n"],
    )
    def test_what_it_does_not_tell_is_unknown(self, cuda, monkeypatch, answer):
        self.smi(monkeypatch, answer)
        _, state = recording.gpu()
        assert (state.driver, state.sm_clock_mhz, state.memory_clock_mhz) == ("unknown", None, None)

    def test_clocks_that_are_no_numbers(self, cuda, monkeypatch):
        self.smi(monkeypatch, "580.1, [N/A], 5\n")
        _, state = recording.gpu()
        assert (state.driver, state.sm_clock_mhz, state.memory_clock_mhz) == ("580.1", None, 5.0)

    def test_a_gpu_without_a_device_file_is_refused(self, cuda, monkeypatch):
        monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H2000")
        with pytest.raises(UnknownNameError, match="unknown device 'NVIDIA H2000'"):
            recording.gpu()


@pytest.mark.gpu
def test_the_gpu_here_is_known():
    device, state = recording.gpu()
    assert state.key == device.key
    assert state.driver != "unknown"
