"""A campaign that is killed at ten random moments continues, and loses nothing that it had."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from mla_var3.paths import repo_root
from tests.campaign.files import TORCH

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")

#: An agent that does what comes next, three versions long, and is killed again and again.
AGENT = """
import json, os, random, signal, sys, time
from pathlib import Path
from mla_var3 import paths
root = Path(sys.argv[1])
paths.out_dir = lambda: root / "out"
from mla_var3.app import campaign
from mla_var3.campaign import stages, workspace

def agent():
    sys.stdout = open(os.devnull, "w")
    if not (workspace.folder() / "mine" / workspace.SETTINGS).exists():
        campaign.main(["init", "mine", str(root / "product.py"),
                       "--accept=static_power,energy_per_flop,energy_per_byte"])
    found = workspace.find("mine")
    while found.next_name() != "v4":
        action = stages.following(found)
        if action.stage == "plan":
            stages.make_plan(found, "none", "it is as fast", "a remark", 1)
        elif action.stage == "change":
            path = found.version(found.next_name())
            path.write_text(path.read_text() + f"# {path.stem}\\n")
        elif action.stage in ("baseline", "gate"):
            stages.gate(found, action.command.split()[-1], lambda _: None)

seeds, found, before = random.Random(7), [], {}
for kill in range(int(sys.argv[2])):
    child = os.fork()
    if child == 0:
        os.setsid()
        agent()
        os._exit(0)
    until, ended = time.monotonic() + seeds.uniform(0.02, 0.5), 0
    while time.monotonic() < until and not ended:
        ended = os.waitpid(child, os.WNOHANG)[0]
        time.sleep(0.002)
    if not ended:
        (os.killpg if kill % 2 else os.kill)(child, signal.SIGKILL)
        os.waitpid(child, 0)
    memory = workspace.folder() / "mine" / "memory"
    now = {p.name: json.loads(p.read_text()) for p in sorted(memory.glob("v*.json"))}
    assert all(now[name] == entry for name, entry in before.items()), "an entry was lost"
    before = now
    found.append([sorted(now), bool(ended)])
agent()
print(json.dumps(found), file=sys.__stdout__)
"""


@pytest.mark.slow
def test_a_campaign_killed_at_ten_random_moments_continues(tmp_path: Path) -> None:
    (tmp_path / "product.py").write_text(TORCH)
    top = repo_root()
    env = {**os.environ, "PYTHONPATH": f"{top / 'src'}{os.pathsep}{top}"}
    done = subprocess.run(
        [sys.executable, "-c", AGENT, str(tmp_path), "10"],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    states = json.loads(done.stdout.splitlines()[-1])
    assert len(states) == 10
    workspace = tmp_path / "out" / "campaigns" / "mine"
    names = sorted(path.name for path in (workspace / "memory").glob("v*.json"))
    assert names == ["v0.json", "v1.json", "v2.json", "v3.json"]
    verdicts = [json.loads((workspace / "memory" / name).read_text())["verdict"] for name in names]
    assert verdicts == ["baseline", "not timed", "not timed", "not timed"]
    told = subprocess.run(["git", "-C", str(workspace), "status", "--porcelain"],
                          capture_output=True, text=True)  # fmt: skip
    assert told.stdout == ""
    fsck = subprocess.run(["git", "-C", str(workspace), "fsck"], capture_output=True, text=True)
    assert fsck.returncode == 0
