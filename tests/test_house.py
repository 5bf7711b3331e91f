"""Files that hosts, editors and git hooks read say what the project says."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

import mla_var3
from mla_var3.paths import repo_root

ROOT = repo_root()
HOOKS = ".pre-commit-config.yaml"
fault = runpy.run_path(str(ROOT / "scripts/check-subject.py"))["fault"]


def read(name: str):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def test_one_version_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    cited = read("CITATION.cff")
    assert project["version"] == mla_var3.__version__ == cited["version"]
    assert (project["license"], project["description"]) == (cited["license"], cited["title"])


def test_hooks_have_the_pins_of_the_sessions():
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    hooks = [hook for repo in read(HOOKS)["repos"] for hook in repo["hooks"]]
    needed = [pin for hook in hooks for pin in hook.get("additional_dependencies", ())]
    assert needed
    assert set(needed) <= set(pins)
    (subject,) = [hook for hook in hooks if hook["id"] == "subject"]
    assert (ROOT / subject["entry"].split()[-1]).is_file()


def test_the_hosted_run_is_the_local_one():
    (job,) = read(".github/workflows/ci.yml")["jobs"].values()
    commands = [step["run"] for step in job["steps"] if "run" in step]
    assert commands[-1] == ".ci/run"
    assert (ROOT / commands[-1]).stat().st_mode & 0o111


@pytest.mark.parametrize("path", sorted((ROOT / ".github/ISSUE_TEMPLATE").glob("[!c]*.yml")))
def test_a_template_asks_for_what_it_needs(path: Path):
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} == form.keys()
    ids = [field["id"] for field in form["body"]]
    assert len(set(ids)) == len(ids)
    assert any(field.get("validations", {}).get("required") for field in form["body"])


@pytest.mark.parametrize(
    ("subject", "said"),
    [
        ("feat(app): a console script", None),
        ("refactor!: the package is another one", None),
        ("fixup! whatever it was", None),
        ("docs: " + "x" * 66, None),
        ("docs: " + "x" * 67, "has 73 characters, 72 are allowed"),
        ("A sentence about a change", "is not 'type(scope): text'"),
        ("wip: a change", "is not 'type(scope): text'"),
        ("feat:no blank", "is not 'type(scope): text'"),
    ],
)
def test_subjects(subject, said):
    assert (said is None) == (fault(subject) is None)
    assert said is None or said in fault(subject)


#: Subjects that landed with a fault: what has landed is not written again.
LANDED = {
    "feat(records): all versions of sparse_mla in one run, calls beside FlashMLA",
    "feat(workloads): sparse prefill over rows in bf16, with FlashMLA's beside it",
    "test: clusters along every axis, batches of scaled products, ends of memory",
    "feat(conformance): 85 cases of strangers, FlashInfer and cuDNN among them",
    "test(emulator): ranks in pairs, frames that begin elsewhere, plain patterns",
    "test(emulator): copies and clusters on a clock; a segment is not returned",
    "refactor(interpreter): what loops carry before it is assigned has no value",
    "test(house): a landed subject that is too long, and the calls' fourth name",
    "feat(records): all versions of flash_mla in one run, GPU tests of the calls",
}


def test_subjects_since_the_release_follow_it():
    def git(*arguments: str) -> list[str]:
        done = subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True)
        return done.stdout.splitlines() if done.returncode == 0 else []

    released = git("describe", "--tags", "--abbrev=0", "--match=v*")
    if not released:
        pytest.skip("no release is tagged in this checkout; the rule came with 0.2.0")
    subjects = set(git("log", "--format=%s", f"{released[0]}..HEAD")) - LANDED
    assert [said for said in map(fault, subjects) if said] == []


def test_the_newest_release_has_its_section():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    assert headings[1].split(" - ")[0] == mla_var3.__version__
