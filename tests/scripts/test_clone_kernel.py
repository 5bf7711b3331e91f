"""``scripts/clone-kernel.py`` as its sources had it, with and without the project installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "scripts/clone-kernel.py"


def run(*arguments: str, flags: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ} if not flags else {"PATH": os.environ["PATH"]}
    command = [sys.executable, *flags, SCRIPT, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True)


def test_it_is_the_clone_command():
    done = run("mla_var6_plus_v2", "v2")
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "mla_var6_plus" in done.stderr


def test_without_the_project_one_sentence_says_what_to_do():
    # -S leaves out what is installed.
    done = run("mla_var6_plus_v2", "v5", flags=("-S", "-E"))
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "nox -s clone -- mla_var6_plus_v2 v5" in done.stderr
