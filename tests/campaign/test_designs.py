"""Campaigns on designs of ours: what is known at the start, and the whole way in a checkout."""

from __future__ import annotations

import json

import pytest

from mla_var3.app import campaign
from mla_var3.campaign import memory, seeding, subjects, workspace
from mla_var3.errors import DeviceFigureError, HyperMlaError, UsageError
from mla_var3.runtime import registry
from tests.test_adding import checkout, run


@pytest.fixture(scope="module")
def known():
    problem = {"b": 32, "s": 1}
    return {e.version: e for e in seeding.entries(registry.find("flash_mla@cute-dsl"), problem)}


def test_memory_begins_with_every_version_of_the_design(known):
    versions = [version.version for version in registry.select("flash_mla@cute-dsl")]
    assert list(known) == versions
    assert {entry.origin for entry in known.values()} == {"history"}
    assert [entry.parent for entry in known.values()] == [None, *versions[:-1]]
    assert known["v3"].change.startswith("two CTAs per row tile")


def test_failures_of_the_devlog_are_failures_of_the_memory(known):
    negative = {version for version, entry in known.items() if entry.negative}
    assert {"v6", "v7"} <= negative
    assert memory.tried(known.values())["cute-dependent-launch"].version == "v6"


def test_times_of_the_memory_are_of_one_run_at_the_nearest_problem(known):
    timed = [entry for entry in known.values() if entry.performance is not None]
    assert timed
    for entry in timed:
        times = entry.performance
        assert times.run == times.parent_run
        assert times.device == "nvidia-h200-sxm"
        assert entry.evidence[0].startswith(f"results/{times.device}/")
        assert entry.facts[0].endswith(f" on {times.device}")


def test_no_macro_and_no_link_is_left(known):
    for entry in known.values():
        for text in (entry.change, entry.hypothesis):
            assert "{{" not in text
            assert "](" not in text


def test_the_first_version_has_the_time_that_a_record_states(tmp_path):
    def subject(**problem):
        return subjects.DesignSubject(tmp_path, problem, "hopper_gemm@cute-dsl", "nvidia-h200-sxm")

    size = {"m": 8192, "n": 8192, "k": 8192}
    record = subject(**size).recorded("v4")
    assert record is not None
    assert (record.target, record.mode) == ("nvidia-h200-sxm", "event")
    assert size.items() <= record.problem.items()
    assert subject(**{**size, "k": 7}).recorded("v4") is None


@pytest.fixture
def out(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    return tmp_path / "out"


def test_a_campaign_on_a_design_begins_with_its_history(out, capsys):
    assert campaign.main(["init", "mine", "mla_var6_plus", "v3", "--problem=b=32,s=1"]) == 0
    assert "5 versions of mla_var6_plus@cutile-dsl are known" in capsys.readouterr().out
    found = workspace.find("mine")
    assert (found.settings.start, found.next_name()) == ("v3", "v5")
    assert campaign.main(["next", "mine", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["command"] == "nox -s campaign -- gate mine v3"
    assert told["file"].endswith("mla_var6_plus_v3/mla_var6_plus_v3.py")


@pytest.mark.parametrize(
    ("argv", "error", "said"),
    [
        (["mine", "torch_sdpa_mla", "v0"], UsageError, "somebody's library"),
        (["mine", "flash_mla", "v77"], HyperMlaError, "v77"),
        (["mine", "flash_mla", "v1", "--problem=z=3"], HyperMlaError, "'z'"),
        (["mine", "flash_mla", "v1", "--problem=b=0"], HyperMlaError, "b"),
        (["mine", "gemm", "v0", "--device=amd-mi300x",
          "--accept=static_power,energy_per_flop,energy_per_byte,registers_per_sm,l2_size,"
          "shared_memory_per_sm,shared_memory_per_block_max"],
         DeviceFigureError, "compile for NVIDIA GPUs"),
        (["mine"], UsageError, "must be given"),
    ],
)  # fmt: skip
def test_what_cannot_be_worked_is_refused(out, argv, error, said):
    with pytest.raises(error) as raised:
        campaign.main(["init", *argv])
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not (out / "campaigns" / "mine").exists()


@pytest.mark.slow
def test_a_design_from_its_baseline_to_its_second_plan(tmp_path):
    """In a copy of the checkout, since versions of a design are made in its folder."""
    root = checkout(tmp_path, "workload")
    command = "mla_var3.app.campaign"
    accept = "--accept=static_power,energy_per_flop,energy_per_byte"
    run(root, command, "init", "norm", "rms_norm", "--problem=rows=64,columns=256", accept)
    assert "v0: baseline" in run(root, command, "gate", "norm", "v0")
    plan = ["--hypothesis=none", "--change=a remark", "--lines=1"]
    assert "rms_norm_v1.py" in run(root, command, "plan", "norm", *plan)
    file = root / "kernels/cutile/rms_norm/rms_norm/rms_norm_v1/rms_norm_v1.py"
    file.write_text(file.read_text() + "# A remark.\n")
    assert "v1: not timed" in run(root, command, "gate", "norm", "v1")
    entry = json.loads((root / "out/campaigns/norm/memory/v1.json").read_text())
    assert entry["diff"] == {"added": 1, "removed": 0, "files": []}
    assert entry["evidence"][0].startswith("results/static/sm_90/cutile/rms_norm/rms_norm/v0/")
    assert (root / "out/campaigns/norm/versions/rms_norm_v1/rms_norm_v1.py").is_file()
    assert "next (plan): v1" in run(root, command, "next", "norm")
    assert "v2" in run(root, command, "plan", "norm", *plan)
