"""A bundle and what unpacks it: whole or not there, and every fault is one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from mla_var3 import evidence
from mla_var3.app import bundle
from mla_var3.errors import ToolchainError, UsageError
from mla_var3.paths import repo_root

COMMIT = "c" * 40
PIP = """
import sys, pathlib
pathlib.Path(sys.executable).parents[1].joinpath("asked.txt").write_text(" ".join(sys.argv[1:]))
"""


def wheels(python: str, folder: Path) -> list[Path]:
    """A pip that notes what it is asked for, and a wheel of some size."""
    folder.mkdir()
    with zipfile.ZipFile(folder / "pip-1-py3-none-any.whl", "w") as pip:
        pip.writestr("pip/__main__.py", PIP)
    (folder / "big-1-py3-none-any.whl").write_bytes(bytes(range(256)) * 10_000)
    return sorted(folder.glob("*.whl"))


@pytest.fixture
def packed(tmp_path, monkeypatch):
    """A bundle of small parts, made with wheels that are played."""
    monkeypatch.setattr(bundle, "fetch", wheels)
    monkeypatch.setattr(bundle, "_commit", lambda: COMMIT)
    monkeypatch.setattr(bundle, "_archive", archive)
    monkeypatch.setenv("HYPERMLA_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache/static/ab").mkdir(parents=True)
    (tmp_path / "cache/static/ab/kernel.o").write_bytes(b"compiled")
    folder = tmp_path / "made"
    assert bundle.main([f"--to={folder}", "--part_mib=1"]) == 0
    return folder


def archive(commit: str, path: Path) -> None:
    with tarfile.open(path, "w:gz") as tar:
        tar.add(repo_root() / "pyproject.toml", "pyproject.toml")


def unpack(folder: Path, *arguments: str, python: str = sys.executable):
    return subprocess.run(
        [python, str(folder / "unpack.py"), *arguments],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_it_is_unpacked_as_it_was_packed(packed, tmp_path):
    about = json.loads((packed / "bundle.json").read_text())
    assert [part["bytes"] for part in about["parts"]][:2] == [1 << 20] * 2
    assert {path.name for path in packed.iterdir()} == {
        "unpack.py", "bundle.json", *(part["name"] for part in about["parts"])
    }  # fmt: skip
    there = tmp_path / "there"
    done = unpack(packed, str(there))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"ready: source {there}/env.sh")
    assert (there / "project/pyproject.toml").read_bytes() == (
        repo_root() / "pyproject.toml"
    ).read_bytes()
    assert (there / "cache/static/ab/kernel.o").read_bytes() == b"compiled"
    asked = (there / "venv/asked.txt").read_text()
    assert "--no-index" in asked
    assert "cuda-tile==" in asked
    said = subprocess.run(
        ["bash", "-c", f". {there}/env.sh && echo $HYPERMLA_COMMIT && pwd && python -c "
         "'import sys; print(*sys.path)'"],
        capture_output=True, text=True, check=True,
    ).stdout.splitlines()  # fmt: skip
    assert said[:2] == [COMMIT, str(there / "project")]
    assert str(there / "venv") in said[2]


def test_torch_is_the_hosts_own():
    assert not [line for line in bundle.requirements() if line.startswith("torch")]
    assert [line for line in bundle.requirements() if line.startswith("nvidia-cutlass-dsl")]


def for_python_39(folder: Path) -> None:
    about = json.loads((folder / "bundle.json").read_text())
    (folder / "bundle.json").write_text(json.dumps({**about, "python": "3.9"}))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda f: (f / "part-001").unlink(), "part-001 cannot be read: No such file"),
        (lambda f: (f / "part-000").write_bytes(b"?"), "part-000 is not what was packed"),
        (lambda f: (f / "bundle.json").write_text("{}"), "is not the manifest of a bundle"),
        (for_python_39, "the bundle is for Python 3.9"),
    ],
)
def test_a_damaged_bundle_leaves_nothing(packed, tmp_path, damage, said):
    damage(packed)
    done = unpack(packed, str(tmp_path / "there"))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "there").exists()


def test_a_folder_that_is_taken_is_left_alone(packed, tmp_path):
    (tmp_path / "there").mkdir()
    done = unpack(packed, str(tmp_path / "there"))
    assert (done.returncode, done.stderr) == (2, f"error: {tmp_path / 'there'} exists already\n")
    with pytest.raises(UsageError, match="the folder is not empty"):
        bundle.main([f"--to={packed}"])


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--python=3", "a release such as 3.12"),
        ("--part_mib=0", "at least 1 is needed"),
        ("--part_mib=x", "part_mib"),
    ],
)
def test_options_out_of_range(tmp_path, flag, said):
    with pytest.raises(UsageError, match=said):
        bundle.main([flag, f"--to={tmp_path / 'made'}"])


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (None, "made from a checkout"),
        (evidence.Git(commit=COMMIT, dirty=True), "commit first"),
    ],
)
def test_it_is_made_from_a_commit(tmp_path, monkeypatch, state, said):
    monkeypatch.setattr(evidence, "git_state", lambda: state)
    with pytest.raises(UsageError, match=said):
        bundle.main([f"--to={tmp_path / 'made'}"])
    assert not list(tmp_path.iterdir())


def test_a_wheel_that_cannot_be_had_leaves_no_bundle(tmp_path, monkeypatch):
    monkeypatch.setattr(evidence, "git_state", lambda: evidence.Git(commit=COMMIT, dirty=False))
    monkeypatch.setattr(bundle, "requirements", lambda: ["no-such-thing==0"])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ToolchainError, match="pip cannot fetch the wheels: ERROR: "):
        bundle.main([f"--to={tmp_path / 'made'}"])
    assert not list(tmp_path.iterdir())


def described_with(**fields) -> object:
    """Damage: fields of the manifest that have other values."""

    def damage(folder: Path) -> None:
        about = json.loads((folder / "bundle.json").read_text())
        (folder / "bundle.json").write_text(json.dumps({**about, **fields}))

    return damage


def repacked(**members: bytes) -> object:
    """Damage: a bundle whose one part is a sound archive of other members."""

    def damage(folder: Path) -> None:
        about = json.loads((folder / "bundle.json").read_text())
        whole = folder.parent / "whole"
        with tarfile.open(whole, "w") as tar:
            for name, data in members.items():
                (folder.parent / "member").write_bytes(data)
                tar.add(folder.parent / "member", name)
        part = bundle._part(folder, 0, whole.read_bytes())
        (folder / "bundle.json").write_text(json.dumps({**about, "parts": [part]}))

    return damage


def linked(name: str, target: str) -> object:
    def damage(folder: Path) -> None:
        (folder / name).unlink()
        (folder / name).symlink_to(target)

    return damage


PART = {"name": "part-000", "bytes": 3, "sha256": "0" * 64}
HOSTILE = {
    "a list": lambda f: (f / "bundle.json").write_text("[]"),
    "deep": lambda f: (f / "bundle.json").write_text("[" * 100_000),
    "bytes": lambda f: (f / "bundle.json").write_bytes(b"\xff\xfe"),
    "null": lambda f: (f / "bundle.json").write_text("null"),
    "a device": linked("bundle.json", "/dev/zero"),
    "a part of zeros": linked("part-000", "/dev/zero"),
    "a part that is a folder": linked("part-000", "/"),
    "shell in the commit": described_with(commit="$(touch ran)"),
    "a commit of two lines": described_with(commit="c" * 40 + "\ntouch ran"),
    "a number as commit": described_with(commit=7),
    "no python": described_with(python=None),
    "a list as python": described_with(python=["3.11"]),
    "options of pip": described_with(requirements=["--index-url=http://evil"]),
    "a file of pip": described_with(requirements=["/tmp/evil.whl"]),
    "no requirements": described_with(requirements=7),
    "parts as text": described_with(parts="part-000"),
    "no parts": described_with(parts=[]),
    "a part elsewhere": described_with(parts=[{**PART, "name": "../../etc/passwd"}]),
    "a part of no size": described_with(parts=[{**PART, "bytes": "3"}]),
    "a part without a digest": described_with(parts=[{"name": "part-000", "bytes": 3}]),
    "a part too large": described_with(parts=[PART]),
    "no archive": lambda f: repacked()(f),
    "members that leave the folder": repacked(**{"../out": b"1", "project.tar.gz": b"1"}),
    "a project that is no archive": repacked(**{"project.tar.gz": b"no archive"}),
    "a project cut short": repacked(**{"project.tar.gz": b"\x1f\x8b\x08\x00\x00"}),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_bundle_is_one_sentence(packed, tmp_path, name):
    HOSTILE[name](packed)
    done = subprocess.run(
        ["bash", "-c", f"ulimit -v 2000000; {sys.executable} {packed}/unpack.py {tmp_path}/there"],
        capture_output=True, text=True, check=False, timeout=120, cwd=tmp_path,
    )  # fmt: skip
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "there").exists()
    assert not (tmp_path / "ran").exists()


def test_a_folder_with_a_space_has_an_environment_that_works(packed, tmp_path):
    there = tmp_path / "two words $(touch ran)"
    done = unpack(packed, str(there))
    assert (done.returncode, done.stderr) == (0, "")
    source = done.stdout.removeprefix("ready: ").partition(" && ")[0]
    said = subprocess.run(
        ["bash", "-c", f"{source} && pwd && echo $HYPERMLA_CACHE_DIR && command -v python"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    ).stdout.splitlines()  # fmt: skip
    assert said == [f"{there}/project", f"{there}/cache", f"{there}/venv/bin/python"]
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("name", ["a:b", "a\nimport os"])
def test_a_folder_that_no_path_can_hold_is_refused(packed, tmp_path, name):
    done = unpack(packed, str(tmp_path / name))
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert not (tmp_path / name).exists()
