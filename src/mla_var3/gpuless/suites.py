"""Reads ``third_party/NAME.toml``: which tests or scripts of a suite are run, and exceptions.

Each file names the suite's sources and commit. Sources are fetched into ``third_party/NAME``, which
git ignores, or taken from a checkout that is there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from mla_var3 import inputs
from mla_var3.errors import InputError, ToolchainError, UnknownNameError
from mla_var3.paths import relative, repo_root

#: Names the folder of checkouts, each in a folder named as its suite; a flag comes before it.
CHECKOUTS = "HYPERMLA_CHECKOUTS"
#: A file of a tree that was fetched without its repository: the commit that it is of.
STAMP = ".commit"


class Outcome(StrEnum):
    """What became of one test, or one run of a script.

    ``found``: it passed its own checks, and a report stands; ``refused``: it meets what does not
    run here; ``slow``: it was stopped.
    """

    PASSED = "passed"
    FOUND = "found"
    REFUSED = "refused"
    FAILED = "failed"
    SLOW = "slow"
    SKIPPED = "skipped"


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Exempt(_Model):
    """Tests that do not pass, and why.

    Attributes:
        test: Pattern of tests, as the shell's; of scripts with their arguments.
        outcome: What becomes of them.
        finding: The kind of report, of one that stands.
        reason: One sentence; ``{said}`` is what the test said.
        run: Whether it is run all the same; False for what needs too much memory or time.
    """

    test: str
    outcome: Literal[Outcome.REFUSED, Outcome.FAILED, Outcome.FOUND]
    finding: str = ""
    reason: str
    run: bool = True


class Scripts(_Model):
    """Scripts of a folder.

    Attributes:
        folder: Where they are in the sources.
        arch: What they are compiled for.
        schedules: Under how many they run at least.
        requirements: File of ``third_party`` with packages that they see in place of the installed.
        runs: Their paths, each with its arguments.
    """

    folder: str
    arch: str
    schedules: int = 1
    requirements: str = ""
    runs: tuple[str, ...]


@dataclass(frozen=True)
class Script:
    """A script with the arguments of one run."""

    path: str
    arch: str
    arguments: str = ""
    schedules: int = 1
    requirements: str = ""

    @property
    def test(self) -> str:
        """How it is called."""
        return f"{self.path} {self.arguments}".strip()


class Suite(_Model):
    """What is run of a third party's sources.

    Attributes:
        name: That of its file.
        repository: Where its sources are.
        commit: Which of them.
        packages: Packages of PyPI that it is of instead, each with its version.
        license: Under which terms.
        checkout: Folder below ``third_party``, where it has another name than the suite.
        folder: Folder inside of the sources in which it is run.
        toolchain: Packages whose versions the table states.
        tests: What pytest runs.
        product: Whose plugin runs them.
        requirements: File of ``third_party`` with packages that the tests import.
        scripts: What runs as a script, each run in a process of its own.
        import_path: Folders that Python imports from.
        arguments: Of pytest.
        exceptions: What does not pass.
    """

    name: str
    repository: str = ""
    commit: str = Field("", pattern="^([0-9a-f]{40})?$")
    packages: tuple[str, ...] = ()
    license: str
    checkout: str = ""
    folder: str = "."
    toolchain: tuple[str, ...] = ()
    tests: tuple[str, ...] = ()
    product: Literal["interpreter", "emulator"] = "interpreter"
    requirements: str = ""
    scripts: tuple[Scripts, ...] = ()
    import_path: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    exceptions: tuple[Exempt, ...] = ()

    @model_validator(mode="after")
    def _has_sources(self) -> Suite:
        if bool(self.commit and self.repository) == bool(self.packages):
            raise ValueError("a suite is either of a commit of a repository or of packages")
        return self

    def runs(self) -> list[Script]:
        """Every run of a script."""
        return [
            Script(
                f"{group.folder}/{path}",
                group.arch,
                arguments,
                group.schedules,
                group.requirements,
            )
            for group in self.scripts
            for path, _, arguments in (run.partition(" ") for run in group.runs)
        ]

    def explanation(self, test: str, finding: str = "") -> Exempt | None:
        """The exception that names a test, or a kind of its findings."""
        # Brackets stand for themselves: ids of cases are in brackets.
        found = (
            e
            for e in self.exceptions
            if e.finding == finding and fnmatch(test, e.test.replace("[", "[[]"))
        )
        return next(found, None)


def suites() -> dict[str, Path]:
    """Returns the files of the suites, by name."""
    folder = repo_root() / "third_party"
    return {
        path.stem: path
        for path in sorted(folder.glob("*.toml"))
        if "[suite]" in inputs.read_text(path)
    }


def find(name: str) -> Suite:
    """Returns a suite by its name.

    Raises:
        UnknownNameError: If there is none.
    """
    known = suites()
    if name not in known:
        raise UnknownNameError("suite", name, list(known))
    return read_suite(known[name])


def read_suite(path: Path) -> Suite:
    """Reads the file of a suite.

    Raises:
        ToolchainError: If it is not one.
    """
    with inputs.faults_as(ToolchainError, f"{relative(path)} is not a suite:"):
        content = inputs.read_toml(path).get("suite")
        if not isinstance(content, dict):
            raise InputError(str(path), "it has no table [suite]")
        return Suite.model_validate({"name": path.stem, **content})


def sources(suite: Suite, checkout: Path | None) -> Path:
    """Returns the folder in which a suite is run; fetches its sources if none is given.

    Raises:
        ToolchainError: If the folder that is given does not have them, or they cannot be fetched.
    """
    if suite.packages:
        _install(suite)
        return repo_root() / suite.folder
    name = suite.checkout or suite.name
    if checkout is None and CHECKOUTS in os.environ:
        checkout = Path(os.environ[CHECKOUTS]) / name
    if checkout is None:
        checkout = _fetched(suite, repo_root() / "third_party" / name)
    folder = checkout.resolve() / suite.folder
    if not folder.is_dir():
        raise ToolchainError(f"there is no checkout of {suite.name} at {str(folder)!r}")
    return folder


def package_folder(suite: Suite, package: str) -> Path:
    """Returns where a package of a suite is kept."""
    return repo_root() / "third_party" / suite.name / package


def _install(suite: Suite) -> None:
    """Fetches the packages of a suite."""
    for package in suite.packages:
        folder = package_folder(suite, package)
        if not folder.is_dir():
            _pip(folder, package, package)


def required(requirements: str) -> Path:
    """Returns the folder with the packages of a file of ``third_party``; fetches them first.

    Raises:
        ToolchainError: If they cannot be fetched.
    """
    listed = repo_root() / "third_party" / requirements
    folder = listed.with_suffix("")
    stamp = folder / listed.name
    wanted = inputs.read_text(listed)
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(folder, ignore_errors=True)
        _pip(folder, requirements, "-r", str(listed))
        stamp.write_text(wanted, encoding="utf-8")
    return folder


def pins(suite: Suite) -> dict[str, str]:
    """Returns the packages that a suite is of, or that it imports: versions by name."""
    packages = list(suite.packages)
    if suite.requirements:
        packages += inputs.read_text(repo_root() / "third_party" / suite.requirements).splitlines()
    return dict(p.split("==") for p in packages if p and not p.startswith("#"))


def _pip(folder: Path, name: str, *packages: str) -> None:
    """Fetches packages from PyPI into a folder, without what they depend on."""
    print(f"fetching {name}", flush=True)
    part = folder.with_name(f"{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
    done = subprocess.run(
        [*command, "--target", str(part), *packages], capture_output=True, text=True, check=False
    )
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ToolchainError(f"{name} cannot be fetched: {last[0]}")
    part.rename(folder)


def _fetched(suite: Suite, folder: Path) -> Path:
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text(encoding="utf-8").strip() == suite.commit:
        return folder
    if not (folder / ".git").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        _git(folder, "init", "--quiet")
    if _git(folder, "rev-parse", "--verify", "--quiet", "HEAD", check=False) != suite.commit:
        print(f"fetching {suite.repository} at {suite.commit[:12]}", flush=True)
        _git(folder, "fetch", "--quiet", "--depth=1", suite.repository, suite.commit)
        _git(folder, "checkout", "--quiet", "--force", "FETCH_HEAD")
    return folder


def _git(folder: Path, *arguments: str, check: bool = True) -> str:
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    if check and done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ToolchainError(f"git {arguments[0]} failed in {folder}: {last[0]}")
    return done.stdout.strip()
