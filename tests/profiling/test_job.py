"""What travels through profiling."""

from __future__ import annotations

import pytest

from mla_var3 import devices, languages
from mla_var3.errors import UnknownNameError
from mla_var3.profiling import static
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.runtime import registry

VERSION = registry.find("flash_mla", "v1")
PLAN = VERSION.plan_class()(b=1, h=16, s=2, t=70, k=32, p=16)


@pytest.mark.parametrize("named", [None, "flash_mla v1", VERSION])
def test_the_version_is_that_of_the_plan_or_the_settings(named):
    assert Job.of(PLAN, Settings(version=named)).version == VERSION


def test_a_version_that_is_not_there_is_named():
    with pytest.raises(UnknownNameError, match="v99"):
        Job.of(PLAN, Settings(version="flash_mla v99"))


def test_another_plan_keeps_the_rest():
    told = []
    h200 = devices.load("nvidia-h200-sxm")
    job = Job.of(PLAN, Settings(progress=told.append, label="x"), h200)
    other = job.with_(PLAN.shrunk())
    assert (other.version, other.device, other.settings) == (VERSION, h200, job.settings)
    assert other.plan == PLAN.shrunk()
    other.say("hello")
    assert told == ["x: hello"]
    assert job.with_(PLAN, devices.load("nvidia-b200")).device.key == "nvidia-b200"


def test_static_mode_asks_for_the_language_once(monkeypatch, tmp_path):
    """Of the version; compilers and occupancy have the kernel's own."""
    asked = []
    find = languages.find

    def counted(key):
        asked.append(key)
        return find(key)

    monkeypatch.setattr("mla_var3.profiling.job.languages.find", counted)
    monkeypatch.setattr(static, "_refused", lambda *_: "no compiler here")
    monkeypatch.setattr(static, "check_plan", lambda _: None)
    place = {"out_dir": tmp_path / "out", "results": tmp_path / "results"}
    result = static.static_profile_plan(PLAN, archs=["sm_90", "sm_100"], **place)
    assert [record.outcome.reason for record in result.records] == ["no compiler here"] * 2
    assert asked == [VERSION.language]
