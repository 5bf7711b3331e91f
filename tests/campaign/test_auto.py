"""The walk without a model: compiled first, pruned, timed in one run, kept as history."""

from __future__ import annotations

import json
import types

import pytest

from mla_var3.app import campaign
from mla_var3.campaign import auto, candidates, cases, trials, workspace
from mla_var3.campaign.cases import Case
from mla_var3.errors import TilingError, UnknownNameError, UsageError
from tests.campaign.files import TORCH
from tests.campaign.making import trial
from tests.fake_gpu import play_gpu

SMALL = "--problem=m=64,n=64,k=64"


def test_a_target_ends_a_walk_but_not_one_over_everything(begun, monkeypatch, capsys):
    play_gpu(monkeypatch)
    fast = lambda case, say=None: trial(0, 1.0, 1e-6).timed.model_copy(  # noqa: E731
        update={"case": case})  # fmt: skip
    monkeypatch.setattr(cases, "run", fast)
    assert campaign.main(["auto", "mine", "--most=3"]) == 0
    assert "is reached" in capsys.readouterr().out
    assert campaign.main(["auto", "mine", "--most=3", "--everything"]) == 0
    assert "is reached" not in capsys.readouterr().out


def test_joint_validators_are_found_below_a_pipeline():
    inner = types.SimpleNamespace(
        validate_joint_tiling_fn=[].append, tilings=lambda: {}, children=()
    )
    outer = types.SimpleNamespace(children=(types.SimpleNamespace(children=()), inner))
    assert len(list(cases.joint_validators(outer))) == 1


def test_a_joint_validator_refuses_a_compile(monkeypatch):
    def never():
        raise TilingError("they do not fit")

    monkeypatch.setattr(cases, "joint_validators", lambda found: [never])
    case = Case(design="gemm", version="v0", target="sm_90", check=False)
    assert cases.run(case).reason == "they do not fit"


@pytest.fixture
def begun(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    monkeypatch.setattr("mla_var3.runtime.autotune.out_dir", lambda: tmp_path / "out")
    assert campaign.main(["init", "mine", "gemm", "v0", SMALL]) == 0
    return workspace.find("mine")


def test_without_the_gpu_it_ends_with_an_order_and_compiles_nothing_twice(begun, capsys):
    assert campaign.main(["auto", "mine", "--most=3"]) == 0
    said = capsys.readouterr().out
    assert "Nothing was timed: this is not nvidia-h200-sxm. Beside the default, static f" in said
    assert "|" not in said  # The table is the file's.
    data = json.loads((begun.root / trials.DATA).read_text())
    assert len(data["trials"]) == 3
    assert data["best"] is None
    ran = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cases, "run", ran.append)
        assert campaign.main(["auto", "mine", "--most=3"]) == 0
    assert ran == []


@pytest.mark.slow
def test_with_the_gpu_the_best_are_timed_in_one_run_and_kept(begun, monkeypatch, capsys):
    play_gpu(monkeypatch)
    assert campaign.main(["auto", "mine", "--most=4", "--top=1"]) == 0
    data = json.loads((begun.root / trials.DATA).read_text())
    timed = [one for one in data["trials"] if one["median_us"] is not None]
    assert 1 <= len(timed) <= 2
    runs = {path.stem.split("-")[1] for path in (begun.root / auto.TRIALS).glob("*-*.json")}
    assert len(runs) == 1
    assert data["best"] == "v0 default"  # The played clock counts up.
    assert "Fastest: v0 default" in (begun.root / trials.REPORT).read_text()


@pytest.mark.slow
def test_a_budget_ends_it(begun, monkeypatch, capsys):
    play_gpu(monkeypatch)
    slow = lambda case, say=None: trial(0, 1.0, 50.0).timed.model_copy(  # noqa: E731
        update={"case": case, "seconds": 10.0})  # fmt: skip
    monkeypatch.setattr(cases, "run", slow)
    assert campaign.main(["auto", "mine", "--most=4", "--top=4", "--budget=15"]) == 0
    assert "the budget of 15 s is spent" in capsys.readouterr().out


def test_failed_versions_are_passed_over(begun):
    assert [v.version for v in candidates.versions_of(begun, "all")] == ["v0", "v1"]
    begun.memory.update("v1", {"negative": True})
    assert [v.version for v in candidates.versions_of(begun, "all")] == ["v0"]
    assert [v.version for v in candidates.versions_of(begun, "v1")] == ["v1"]
    assert [v.version for v in candidates.versions_of(begun, "")] == ["v0"]
    with pytest.raises(UnknownNameError):
        candidates.versions_of(begun, "v77")


def test_what_cannot_be_walked_is_one_sentence(begun, tmp_path):
    for flag in ("--budget=0", "--top=0", "--most=-1", "--budget=nan"):
        with pytest.raises(UsageError, match="is below 1"):
            campaign.main(["auto", "mine", flag])
    (tmp_path / "product.py").write_text(TORCH)
    accept = "--accept=static_power,energy_per_flop,energy_per_byte"
    campaign.main(["init", "file", str(tmp_path / "product.py"), accept])
    with pytest.raises(UsageError, match="is of a file, which declares no tilings"):
        campaign.main(["auto", "file"])
