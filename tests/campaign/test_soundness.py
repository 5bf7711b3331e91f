"""Files of a campaign that each follow their schema and contradict each other are refused."""

from __future__ import annotations

import json
import re
import shutil

import pytest

from mla_var3 import paths
from mla_var3.app import campaign
from mla_var3.campaign import workspace
from mla_var3.errors import HyperMlaError
from tests.campaign.files import TORCH

ACCEPT = "--accept=static_power,energy_per_flop,energy_per_byte"
PLAN = ["--hypothesis=it is as fast", "--change=a remark", "--lines=1"]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A campaign with v0 and v1 through the gates, and a plan of v2."""
    root = tmp_path_factory.mktemp("sound")
    (root / "product.py").write_text(TORCH)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paths, "out_dir", lambda: root / "out")
        campaign.main(["init", "mine", str(root / "product.py"), ACCEPT])
        campaign.main(["gate", "mine", "v0"])
        for version in ("v1", "v2"):
            campaign.main(["plan", "mine", *PLAN])
            path = workspace.find("mine").version(version)
            path.write_text(path.read_text() + f"# {version}\n")
            if version == "v1":
                campaign.main(["gate", "mine", "v1"])
    return root / "out"


@pytest.fixture
def found(sound, tmp_path, monkeypatch):
    """A copy of it, whose faults nobody else sees."""
    shutil.copytree(sound, tmp_path / "out")
    monkeypatch.setattr(paths, "out_dir", lambda: tmp_path / "out")
    return workspace.find("mine")


def changed(found, name, change):
    path = found.root / name
    if isinstance(change, dict):
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
        return
    text = path.read_text()
    path.write_text(re.sub(change[0], change[1], text, count=1, flags=re.MULTILINE))
    assert path.read_text() != text


TIMES = {"median_us": 50.0, "parent_us": 100.0, "run": "a1", "parent_run": "a1",
         "device": "nvidia-h200-sxm", "protocol": "by hand"}  # fmt: skip
V0, V1, V2 = "memory/v0.json", "memory/v1.json", "plans/v2_plan.md"
README, SETTINGS = "README.md", "campaign.json"
#: A file, what becomes of it (fields, or a pattern and what takes its place), and the sentence.
FAULTS = [
    (V1, {"correctness": {"status": "passed", "error": 0.5, "tolerance": 1e-3}},
     "v1.json: correctness: error 0.5 is above the tolerance 0.001"),
    (V1, {"correctness": {"status": "passed"}}, "v1.json: correctness: it passed, without"),
    (V1, ('"verdict": "not timed"', '"verdict": "faster", "verdict": "not timed"'),
     "v1.json cannot be read: not JSON: verdict is stated 2 times"),
    (V1, {"evidence": ["results/none.json"]}, "v1.json: evidence: there is no record"),
    (V1, {"performance": {**TIMES, "device": "nvidia-b200"}, "verdict": "faster"},
     "v1.json: performance.device: nvidia-b200 runs other code"),
    (V1, {"performance": TIMES, "verdict": "faster"},
     "v1.json: performance.median_us: no record of run a1 states 50.0 us"),
    (V1, {"origin": "start", "verdict": "baseline"}, "v1.json: origin: the campaign starts"),
    (V1, {"masked": "no"}, "v1.json: masked: Input should be a valid boolean"),
    (V0, {"masked": True}, "v0.json: masked: the baseline cannot be masked"),
    (V0, {"origin": "history"}, "v0.json: origin: v1 is there without a start"),
    (V1, {"subject": "other.py"}, "v1.json: subject: it is 'other.py'"),
    (V1, {"change": "another one"}, "v1.json: change: it is 'another one', and 'a remark' in"),
    (V1, {"diff": {"added": 1, "removed": 0, "files": ["nothing.py"]}},
     "v1.json: diff.files: v1 has no file nothing.py"),
    (README, (r"^(- DRAM: .*)", r"\1\n- L2: 0.001 us at the least"),
     "README.md:28: it says '- L2: 0.001 us at the least', and Step 0 has no such line"),
    (README, (r"^(The tightest ceiling .*)", r"\1\nThe tightest ceiling is tensor, 9 us."),
     "README.md:34: it says 'The tightest ceiling is tensor, 9 us.', which line 33 states too"),
    (V1, {"pattern": "o999-none"}, "v1.json: pattern: there is no page o999-none"),
    (V1, {"plan": "plans/v9_plan.md"}, "v1.json: plan: it is 'plans/v9_plan.md'"),
    (V1, {"hypothesis": "DRAM gives 4.8 terabytes/s"}, "v1.json: hypothesis: '4.8 terabytes/s'"),
    (V1, {"pitfalls": [{"pitfall": "it fell to 1.2 GHz", "fix": "waited"}]},
     "v1.json: pitfalls: '1.2 GHz' names no source"),
    (V1, {"diff": {"added": 40, "removed": 0}}, "v1.json: diff: it says 40 lines added and 0"),
    (V1, {"facts": ["it reaches 989 TFLOPS"]}, "v1.json: facts: '989 TFLOPS' names no source"),
    (V2, ("^Hypothesis: .*", "Hypothesis: TODO"), "v2_plan.md: Hypothesis: TODO is not filled in"),
    (V2, ("^Change: .*", "Change: ..."), "v2_plan.md: Change: ... is not filled in"),
    (V2, ("^Change: .*", "Change: use its 989 TFLOPs"), "v2_plan.md:7: '989 TFLOPs' names no"),
    (V2, ("^# Plan of v2", "# Plan of v9"), "v2_plan.md: its title says Plan of v9"),
    (README, ("^Reach .* us,", "Reach 0.01 us,"), "README.md:3: it says 'Reach 0.01 us"),
    (README, ("^- `tdp: .*", "- `tdp: 700 W <- knowledge/devices/nvidia-h100-sxm.toml:421`"),
     "README.md:20: it says"),
    (README, ("^- DRAM: .* us", "- DRAM: 0.5 us"), "README.md:27: it says '- DRAM: 0.5 us"),
    (README, (r"(?s)## Ceilings.*?## Targets", "## Targets"), "README.md: it lacks a line"),
    (README, (r"([\d,]+) FLOP,", r"999,999,\1 FLOP,"), "campaign.json: target_us: it is"),
    (README, (r"(?s)^Work .*", ""), "README.md: Work: it is stated 0 times"),
    (README, ("^TBD", "Measured 3,350 GB/s here."), "README.md:37: '3,350 GB/s' names no source"),
    (README, ("^- `tdp", "- `l1_size: 256 KB`\n- `tdp"), "README.md:20: 'l1_size' names no source"),
    (README, ("H200 SXM$", "H100 SXM"), "README.md:5: it says '## Step 0: product.py on NVIDIA H1"),
    (SETTINGS, {"problem": {"q": 3}}, "campaign.json: problem and start: unknown size 'q'"),
    (SETTINGS, {"target_us": "12.5"}, "campaign.json: target_us"),
    (SETTINGS, {"target_us": 1e9}, "campaign.json: target_us: it is 1000000000.0"),
    (SETTINGS, {"device": "NVIDIA H200 SXM"}, "campaign.json: device: its key is"),
]  # fmt: skip


@pytest.mark.parametrize(("file", "change", "said"), FAULTS)
def test_what_contradicts_the_rest_is_one_sentence(found, file, change, said):
    changed(found, file, change)
    with pytest.raises(HyperMlaError) as raised:
        campaign.main(["gate", "mine", "v2"])
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
    assert not found.memory.path("v2").exists()


def test_nothing_starts_from_a_wrong_version(found):
    changed(found, V1, {"verdict": "wrong", "correctness": {"status": "failed"}})
    with pytest.raises(HyperMlaError, match=r"v2_plan.md: Parent: v1 is wrong"):
        campaign.main(["gate", "mine", "v2"])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"plan": "plans/v5_plan.md", "version": "v5"}, "v5.json: subject"),
        ({"subject": "versions/mine_v2.py", "evidence": ["results/x"]}, "there is no record"),
        ({"subject": "versions/mine_v2.py", "change": "at 700 W"}, "change: '700 W' names no"),
    ],
)
def test_what_is_created_by_hand_has_to_fit_too(found, tmp_path, change, said):
    own = json.loads(found.memory.path("v1").read_text())
    path = tmp_path / "entry.json"
    path.write_text(json.dumps(
        {**own, "version": "v2", "parent": "v1", "plan": "plans/v2_plan.md", **change}
    ))  # fmt: skip
    with pytest.raises(HyperMlaError, match=said):
        campaign.main(["memory", "create", "mine", str(path)])
    assert not found.memory.path("v2").exists()


def test_the_sound_one_goes_on(found, capsys):
    capsys.readouterr()
    assert campaign.main(["gate", "mine", "v2"]) == 0
    assert "v2: not timed; right" in capsys.readouterr().out
