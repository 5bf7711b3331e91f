"""A checkout gives the same record wherever it lies and whatever the machine's locale is."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mla_var3.paths import repo_root
from tests.test_adding import UNDER_WAY

RUN = (
    "mla_var3.kernel", "flash_mla", "v2", "--b=1", "--h=16", "--s=1", "--t=64", "--k=64", "--p=16",
    "--no_autotune",
)  # fmt: skip
#: What names a run; all else is the same.
OF_THE_RUN = ("run", "content_sha256")


def checkout(folder: Path) -> Path:
    """A copy of what a record is made from, in a repository without a commit."""
    root = repo_root()
    for name in ("src", "kernels", "knowledge/devices"):
        ignored = shutil.ignore_patterns(UNDER_WAY)
        shutil.copytree(root / name, folder / name, symlinks=True, ignore=ignored)
    for name in ("pyproject.toml", ".gitignore"):
        shutil.copy(root / name, folder)
    subprocess.run(["git", "init", "--quiet", str(folder)], check=True)
    subprocess.run(["git", "-C", str(folder), "add", "."], check=True)
    return folder


def record(folder: Path, **environment: str) -> dict[str, Any]:
    """The static record that a checkout makes."""
    done = subprocess.run(
        [sys.executable, "-m", *RUN, "--prof_type=static", "--arch=sm_90"],
        cwd=folder, capture_output=True, encoding="utf-8", check=False,
        env={
            "PATH": os.environ["PATH"], "PYTHONPATH": str(folder / "src"),
            "HYPERMLA_CACHE_DIR": str(folder / "cache"), **environment,
        },
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (path,) = folder.glob("results/static/**/*.json")
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return found


@pytest.mark.slow
def test_a_c_locale_and_a_path_beyond_ascii_change_nothing(tmp_path):
    plain = checkout(tmp_path / "plain")
    here = record(plain, HOME=str(tmp_path), LANG="C.UTF-8")
    for made in ("results", "cache"):
        shutil.rmtree(plain / made)
    there = record(
        plain.rename(tmp_path / "ключ é漢"),
        HOME="/nonexistent",
        LC_ALL="C",
        PYTHONUTF8="0",
        PYTHONCOERCECLOCALE="0",
    )
    for said in (here, there):
        assert said["entries"][0].pop("time")
        for name in OF_THE_RUN:
            assert said.pop(name)
    assert here == there
    assert "kernels/cutile/mla/flash_mla/flash_mla_v2/flash_mla_v2.py" in json.dumps(there["facts"])
