"""CONTRIBUTING's ways to add a workload and a language, walked in a copy of the checkout.

What is added lies in ``tests/adding``: the very files that the sections name, and no other.
"""

from __future__ import annotations

import json
import re
import shutil
from functools import partial
from pathlib import Path

import pytest

from mla_var3 import forked
from mla_var3.paths import repo_root
from tests import warm

ROOT = repo_root()
ADDED = ROOT / "tests" / "adding"
#: What stands for the names that CONTRIBUTING leaves open, by section.
NAMES = {
    "workload": {
        "<workload>": "rms_norm", "<language>": "cutile", "<layer>": "rms_norm",
        "<design>": "rms_norm",
    },
    "language": {"<language>": "ptx", "<layer>": "gemm", "<design>": "ptx_gemm"},
}  # fmt: skip


#: What Python is just writing; what it compiled is copied, since else it does so in each copy.
UNDER_WAY = "*.pyc.*"


def files_of(kind: str) -> set[str]:
    top = ADDED / kind
    return {p.relative_to(top).as_posix() for p in top.rglob("*.*") if "__pycache__" not in p.parts}


def section(title: str) -> str:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    (found,) = re.findall(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("kind", NAMES)
def test_the_section_names_every_file(kind):
    named = re.findall(r"^- `([^`]+)`", section(f"Add a {kind}"), re.MULTILINE)
    for placeholder, name in NAMES[kind].items():
        named = [path.replace(placeholder, name) for path in named]
    assert set(named) == files_of(kind)


def checkout(tmp_path: Path, kind: str) -> Path:
    """A copy of the checkout with what is added."""
    for name in ("src", "kernels", "knowledge"):
        ignored = shutil.ignore_patterns(UNDER_WAY)
        shutil.copytree(ROOT / name, tmp_path / name, symlinks=True, ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ADDED / kind, tmp_path, dirs_exist_ok=True)
    return tmp_path


def run(root: Path, *argv: str) -> str:
    done = warm.run(*argv, root=root, COLUMNS="200")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("kind", "design"),
    [
        ("workload", "rms_norm"),
        pytest.param("language", "ptx_gemm", marks=pytest.mark.exhaustive),
    ],
)
def test_what_is_added_is_checked(kind, design, tmp_path):
    root = checkout(tmp_path, kind)
    assert "all right" in run(root, "mla_var3.app.commands", "check", design)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "design", "flags"),
    [
        ("workload", "rms_norm", ["--rows=64", "--columns=256"]),
        ("language", "ptx_gemm", ["--m=64", "--n=32", "--k=16"]),
    ],
)
def test_what_is_added_runs_and_is_compiled(kind, design, flags, tmp_path):
    root = checkout(tmp_path, kind)
    static = ["--prof_type=static", "--arch=sm_90"]
    said = run(root, "mla_var3.kernel", design, *static, *flags)
    assert f"{design} v0: right" in said
    (path,) = (root / "results" / "static").rglob("*.json")
    assert '"registers"' in json.dumps(json.loads(path.read_text(encoding="utf-8")))
    listed = run(root, "mla_var3.app.records", "verify")
    assert "1 records" in listed
    assert "0 with faults" in listed
    table = root / "results" / "fingerprints"
    run(root, "mla_var3.app.codes", "write", design)
    assert '"code"' in next(table.rglob(f"{design}.json")).read_text(encoding="utf-8")


def test_such_a_process_begins_anew_whatever_began_before(tmp_path):
    work = {0: partial(len, ())}
    loaded = ["mla_var3.inputs"]
    ((_, ended),) = forked.run(
        work, folder=tmp_path, workers=1, timeout=60, explain=str, load=loaded
    )
    assert ended.result == 0
    assert "usage" in run(ROOT, "json.tool", "--help")
