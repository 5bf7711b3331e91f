"""A campaign from its beginning to a masked failure, by the commands that agents type."""

from __future__ import annotations

import json
import subprocess

import pytest

from mla_var3.app import campaign
from mla_var3.campaign import publishing, stages, subjects, workspace
from mla_var3.errors import HyperMlaError, InputError, UnknownNameError, UsageError
from tests.campaign.files import TORCH
from tests.evidence.making import timed_record

ACCEPT = "--accept=static_power,energy_per_flop,energy_per_byte"
PLAN = ["--hypothesis=sums in double", "--change=sum in double", "--lines=1"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("mla_var3.paths.out_dir", lambda: tmp_path / "out")
    (tmp_path / "product.py").write_text(TORCH)
    return tmp_path


@pytest.fixture
def begun(folder):
    assert campaign.main(["init", "mine", str(folder / "product.py"), ACCEPT]) == 0
    return workspace.find("mine")


@pytest.fixture
def based(begun):
    assert campaign.main(["gate", "mine", "v0"]) == 0
    return begun


def asked(capsys) -> dict[str, str]:
    capsys.readouterr()
    assert campaign.main(["next", "mine", "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def edit(found, version: str, old: str, new: str) -> None:
    path = found.version(version)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_a_campaign_from_its_beginning(begun, capsys):
    assert asked(capsys)["stage"] == "baseline"
    assert campaign.main(["gate", "mine", "v0"]) == 0
    assert begun.memory.read("v0").verdict == "baseline"
    told = asked(capsys)
    assert (told["stage"], told["command"]) == ("plan", "nox -s campaign -- plan mine")
    assert campaign.main(["plan", "mine", *PLAN]) == 0
    assert asked(capsys)["stage"] == "change"
    with pytest.raises(UsageError, match="v1 is v0 unchanged"):
        campaign.main(["gate", "mine", "v1"])
    edit(begun, "v1", "return a @ b", "return (a.double() @ b.double()).float()")
    assert asked(capsys)["stage"] == "gate"
    assert campaign.main(["gate", "mine", "v1"]) == 0
    entry = begun.memory.read("v1")
    assert (entry.verdict, entry.diff.lines, entry.parent) == ("not timed", 2, "v0")
    assert entry.evidence[0].startswith("results/cpu/library/adopted/mine_v0/")
    assert campaign.main(["memory", "summary", "mine"]) == 0
    assert "v1: not timed: sum in double" in capsys.readouterr().out
    log = subprocess.run(["git", "-C", str(begun.root), "log", "--format=%s"],
                         capture_output=True, text=True).stdout.split("\n")  # fmt: skip
    assert log[:3] == ["v1: not timed", "plan: v1 from v0", "v0: baseline"]


def test_a_wrong_version_is_remembered_and_not_tried_again(based, capsys):
    page = "o1-online-softmax"
    page = next(iter(stages.knowledge.load_all().by_id))
    campaign.main(["plan", "mine", f"--pattern={page}", *PLAN])
    edit(based, "v1", "return a @ b", "return a @ b * 2")
    assert campaign.main(["gate", "mine", "v1"]) == 1
    entry = based.memory.read("v1")
    assert (entry.verdict, entry.performance) == ("wrong", None)
    assert "relative error" in entry.correctness.message
    assert asked(capsys)["stage"] == "plan"
    with pytest.raises(InputError, match=f"{page} was tried by v1 and was wrong"):
        campaign.main(["plan", "mine", f"--pattern={page}", *PLAN])
    assert campaign.main(["memory", "mask", "mine", "v1"]) == 0
    assert campaign.main(["plan", "mine", f"--pattern={page}", *PLAN]) == 0
    assert based.plan_path("v2").is_file()  # Numbers are not given again.


def test_a_restart_goes_on_from_an_earlier_version(based, capsys):
    for version in ("v1", "v2"):
        campaign.main(["plan", "mine", *PLAN])
        edit(based, version, "import torch", "import torch\n# more")
        campaign.main(["gate", "mine", version])
    assert stages.current(based).version == "v2"
    assert campaign.main(["restart", "mine", "--from", "v1"]) == 0
    assert "masked v2" in capsys.readouterr().out
    assert stages.current(based).version == "v1"
    assert based.next_name() == "v3"


def test_a_baseline_that_is_wrong_can_be_mended(folder, capsys):
    (folder / "product.py").write_text(TORCH)
    campaign.main(["init", "mine", str(folder / "product.py"), ACCEPT])
    found = workspace.find("mine")
    edit(found, "v0", "return a @ b", "return a @ b + 1")
    assert campaign.main(["gate", "mine", "v0"]) == 1
    told = asked(capsys)
    assert told["stage"] == "baseline"
    assert "relative error" in told["blocked"]
    edit(found, "v0", "return a @ b + 1", "return a @ b")
    assert campaign.main(["gate", "mine", "v0"]) == 0
    assert found.memory.read("v0").verdict == "baseline"


def test_a_large_change_warns(based, capsys):
    campaign.main(["plan", "mine", *PLAN])
    edit(based, "v1", "import torch", "import torch\n# 1\n# 2\n# 3")
    assert campaign.main(["gate", "mine", "v1"]) == 0
    assert "warning: v1 changes 3 lines, and its plan says 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("Hypothesis", "TBD", "plans/v1_plan.md: Hypothesis: TBD is not filled in"),
        ("Hypothesis", "tbd", "plans/v1_plan.md: Hypothesis: tbd is not filled in"),
        ("Hypothesis", "", "plans/v1_plan.md: Hypothesis: it is missing"),
        ("Lines", "1\nLines: 2", "plans/v1_plan.md: Lines: it is stated 2 times"),
        ("Evidence", "", "plans/v1_plan.md: Evidence: it is missing"),
        ("Evidence", "results/none", "Evidence: there is no record results/none"),
        ("Pattern", "o999-none", "Pattern: there is no page o999-none"),
        ("Parent", "v7", "Parent: v7 is no version"),
        ("Lines", "some", "Lines: 'some' is not a number"),
        ("Change", "reach 700 TFLOPS", "plans/v1_plan.md:7: '700 TFLOPS' names no source"),
    ],
)
def test_a_plan_goes_through_its_gates(based, capsys, field, value, said):
    campaign.main(["plan", "mine", *PLAN])
    path = based.plan_path("v1")
    lines = [f"{field}: {value}" if line.startswith(f"{field}:") else line
             for line in path.read_text().splitlines()]  # fmt: skip
    path.write_text("\n".join(lines))
    edit(based, "v1", "import torch", "import torch\n# more")
    told = asked(capsys)
    assert told["stage"] in ("plan", "figures")
    assert said in told["blocked"]
    with pytest.raises(InputError) as raised:
        campaign.main(["gate", "mine", "v1"])
    assert said in str(raised.value)
    assert not based.memory.path("v1").exists()


def test_a_typed_figure_is_refused(based, capsys):
    readme = based.root / workspace.README
    readme.write_text(readme.read_text() + "\nThe board draws 650 W.\n")
    told = asked(capsys)
    assert told["stage"] == "figures"
    assert "README.md" in told["blocked"]
    with pytest.raises(InputError, match="'650 W' names no source"):
        campaign.main(["gate", "mine", "v0"])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "campaign.json cannot be read"),
        ("{}", "campaign.json: name"),
        ('{"name": "mine", "device": "x", "source": "y", "target_us": -1}', "target_us"),
        ('{"name": "mine", "device": "h999", "source": "y"}', "campaign.json: device: unknown"),
        ('{"name": "other", "device": "nvidia-h200-sxm", "source": "y"}', "campaign.json: name"),
        ('{"name": "mine", "device": "x", "source": "y", "extra": 1}', "extra"),
    ],
)
def test_settings_that_are_not_sound_are_named(begun, text, said):
    (begun.root / workspace.SETTINGS).write_text(text)
    with pytest.raises(InputError) as raised:
        campaign.main(["next", "mine"])
    assert said in str(raised.value)


@pytest.mark.parametrize("name", ["README.md", "plans/v1_plan.md"])
def test_a_text_that_is_not_utf_8_is_named(based, name):
    campaign.main(["plan", "mine", *PLAN])
    (based.root / name).write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match=f"{name} cannot be read: byte 0 is not UTF-8"):
        campaign.main(["gate", "mine", "v1"])


def test_killed_between_two_writes_it_goes_on(based, capsys):
    """Whatever file is missing, the next step is one that makes it."""
    campaign.main(["plan", "mine", *PLAN])
    based.version("v1").unlink()
    assert asked(capsys)["stage"] == "change"
    assert based.version("v1").read_text() == based.version("v0").read_text()
    based.plan_path("v1").unlink()
    assert asked(capsys)["stage"] == "plan"
    based.memory.path("v0").unlink()
    assert asked(capsys)["stage"] == "baseline"
    assert campaign.main(["gate", "mine", "v0"]) == 0


def test_bad_names_are_one_sentence(begun, folder):
    for argv in (["init", "Mine!", "x.py"], ["init", "mine2", "flash_mlas"], ["next", "none"],
                 ["init", "mine", str(folder / "product.py"), ACCEPT], ["gate", "mine", "v9"],
                 ["plan", "mine"], ["plan", "mine", "--lines=-1"],
                 ["memory", "read", "mine", "v3"], ["restart", "mine", "--from=v3"]):  # fmt: skip
        with pytest.raises(HyperMlaError) as raised:
            campaign.main(argv)
        assert "\n" not in str(raised.value)
    with pytest.raises(UnknownNameError, match="known: mine"):
        workspace.find("none")


def test_the_target_ends_it(based, capsys, monkeypatch):
    from tests.campaign.test_memory import TIMES

    based.memory.update("v0", {"performance": {
        **TIMES, "median_us": 1e-6, "parent_us": None, "parent_run": None}})  # fmt: skip
    with pytest.raises(InputError, match=r"v0.json: performance.median_us: no record of run"):
        campaign.main(["next", "mine"])
    monkeypatch.setattr(stages.soundness, "require", lambda found: None)
    assert asked(capsys)["stage"] == "done"


def test_a_tolerance_that_no_check_had_is_refused(based):
    loose = {"status": "passed", "error": 0.0, "tolerance": 0.5}
    based.memory.update("v0", {"correctness": loose})
    with pytest.raises(InputError, match=r"v0.json: correctness: no record of v0 states an error"):
        campaign.main(["next", "mine"])


def test_a_published_campaign_is_whole_and_replaces_the_one_before(begun, tmp_path):
    with pytest.raises(UsageError, match="mine has no baseline yet"):
        publishing.publish(begun, tmp_path / "campaigns")
    assert campaign.main(["gate", "mine", "v0"]) == 0
    folder = publishing.publish(begun, tmp_path / "campaigns")
    (folder / "old").write_text("x")
    assert publishing.publish(begun, tmp_path / "campaigns") == folder
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*.*"))
    assert names == ["README.md", "campaign.json", "memory/v0.json", "versions/mine_v0.py"]
    settings = workspace.read_settings(folder)
    # A file outside the checkout is named without the folders of whoever published it.
    assert (settings.name, settings.source) == ("mine", "product.py")
    assert str(tmp_path) not in "".join(p.read_text() for p in folder.rglob("*.*"))
    begun.memory.path("v0").write_text("{}")
    with pytest.raises(InputError):
        publishing.publish(begun, tmp_path / "campaigns")
    assert sorted(path.name for path in folder.parent.iterdir()) == ["mine"]


@pytest.mark.parametrize(
    ("gpu", "verdict", "said"),
    [
        ("nvidia-h200-sxm", "faster", ""),
        ("nvidia-h100-sxm", "faster", "timed on nvidia-h100-sxm: the target, one of"),
        ("nvidia-b200", "not timed", "not timed: this is nvidia-b200"),
    ],
)
def test_another_gpu_of_the_arch_tells_which_is_faster(
    based, capsys, monkeypatch, gpu, verdict, said
):
    """And says nothing of the target: its time is not the campaign's device's."""
    campaign.main(["plan", "mine", *PLAN])
    edit(based, "v1", "import torch", "import torch\n# more")
    made = [timed_record(us, target=gpu, run="ab12") for us in (2e-5, 1e-5)]
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr(subjects.FileSubject, "timed", lambda *_: made)
    monkeypatch.setattr(stages.soundness, "require", lambda found: None)
    assert campaign.main(["gate", "mine", "v1"]) == 0
    assert said in capsys.readouterr().out
    assert based.memory.read("v1").verdict == verdict
    assert (asked(capsys)["stage"] == "done") == (gpu == "nvidia-h200-sxm")


def untimed(found):
    """A version that went through the gates where no GPU was."""
    campaign.main(["plan", "mine", *PLAN])
    edit(found, "v1", "import torch", "import torch\n# more")
    assert campaign.main(["gate", "mine", "v1"]) == 0
    assert found.memory.read("v1").verdict == "not timed"


def test_what_was_not_timed_is_timed_later_by_records_of_one_run(based, capsys, monkeypatch):
    untimed(based)
    with pytest.raises(UsageError, match="v1 went through the gates and was not timed; a GPU"):
        campaign.main(["gate", "mine", "v1"])
    made = {
        "v0": [timed_record(3e-5, run="cd34"), timed_record(2e-5, run="ab12")],
        "v1": [timed_record(4e-5, run="ef56"), timed_record(1e-5, run="ab12")],
    }
    monkeypatch.setattr(subjects.FileSubject, "records_of", lambda _, version: made[version])
    monkeypatch.setattr(stages.soundness, "require", lambda found: None)
    assert campaign.main(["gate", "mine", "v1"]) == 0
    entry = based.memory.read("v1")
    assert (entry.verdict, entry.performance.run) == ("faster", "ab12")
    assert (entry.performance.parent_us, entry.performance.median_us) == (2e-5, 1e-5)
    assert entry.diff.lines == 1
    with pytest.raises(UsageError, match="v1 went through the gates; memory read"):
        campaign.main(["gate", "mine", "v1"])


def test_records_of_two_runs_time_nothing(based, monkeypatch):
    untimed(based)
    made = {"v0": [timed_record(2e-5, run="ab12")], "v1": [timed_record(1e-5, run="cd34")]}
    monkeypatch.setattr(subjects.FileSubject, "records_of", lambda _, version: made[version])
    monkeypatch.setattr(stages.soundness, "require", lambda found: None)
    with pytest.raises(UsageError, match="was not timed"):
        campaign.main(["gate", "mine", "v1"])


def test_an_edited_version_is_not_timed_later(based):
    untimed(based)
    edit(based, "v1", "# more", "# other")
    with pytest.raises(UsageError, match="v1 was edited since it went through the gates"):
        campaign.main(["gate", "mine", "v1"])
