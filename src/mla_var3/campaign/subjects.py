"""Adapters ``FileSubject`` and ``DesignSubject``: the kernel that a campaign checks and versions.

A version of an adopted file is a file of the workspace, or a folder where it takes others along. A
version of a design is a version of the design, cloned into ``kernels/`` under its next number, so
that check, profile and compare take it as any other; the workspace keeps its records and a copy of
what went through the gates.
"""

from __future__ import annotations

import difflib
import importlib
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from mla_var3 import devices, evidence, inputs
from mla_var3.campaign import adopted, contract, copying, launching
from mla_var3.campaign.cloning import clone
from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.evidence import Correctness, Failed, Passed, Record, Scalar, Skipped
from mla_var3.runtime import costs, registry
from mla_var3.runtime.registry import Version

Say = Callable[[str], None]
#: Runs every small problem of a version; says what is wrong, empty where nothing is.
Check = Callable[[Version], str]
BENCH_RUNS = 50


@dataclass(frozen=True)
class Examined:
    """A version that was checked and compiled.

    Attributes:
        correctness: The check.
        records: What came of it.
        work: Its work, where no version here describes it.
    """

    correctness: Correctness
    records: tuple[Record, ...]
    work: costs.Given | None = None

    @property
    def is_wrong(self) -> bool:
        """Whether the check failed."""
        return self.correctness.status == "failed"


class Subject(Protocol):
    """What the stages ask of a campaign's kernel."""

    def path(self, version: str) -> Path:
        """The file to edit."""

    def begin(self, version: str, parent: str) -> None:
        """Make a version, a copy of its parent, where it is not there yet."""

    def sources(self, version: str) -> dict[str, list[str]]:
        """Lines of each file of a version, by a name that all versions share."""

    def name(self, version: str) -> str:
        """What memory calls it."""

    def examine(self, version: str, say: Say) -> Examined:
        """Check a version and compile it."""

    def timed(self, versions: Sequence[str], say: Say) -> list[Record]:
        """Time versions in this run, on the GPU here."""

    def records_of(self, version: str) -> list[Record]:
        """Records of a version as it is now, oldest first."""

    def recorded(self, version: str) -> Record | None:
        """The newest time that is known of a version as it is now, at the campaign's problem."""

    def known(self) -> list[Record]:
        """Records that a plan or an entry may name."""

    def require_takes(self, version: str) -> None:
        """Refuse a version that does not exist, and a problem of which it has no such sizes."""

    def keep(self, version: str) -> None:
        """Keep a copy of a version that went through the gates."""

    def is_kept(self, version: str) -> bool:
        """Whether a version is still as it went through the gates."""


@dataclass(frozen=True)
class FileSubject:
    """An adopted file.

    Attributes:
        root: The workspace.
        problem: Sizes, where they are not the file's own.
    """

    root: Path
    problem: Mapping[str, Scalar]

    @property
    def folder(self) -> Path:
        """Where the versions lie."""
        return self.root / "versions"

    def stem(self, version: str) -> str:
        """What a version's own file is called; records are, and so it names the campaign too."""
        return f"{self.root.name.replace('-', '_')}_{version}"

    def main(self, version: str) -> Path:
        """A version's own file, which has the three functions."""
        stem = self.stem(version)
        room = self.folder / stem if (self.folder / self.stem("v0")).is_dir() else self.folder
        return room / f"{stem}.py"

    def path(self, version: str) -> Path:
        """The file to edit: the kernel's."""
        return copying.kernel_file(self.main(version))

    def begin(self, version: str, parent: str) -> None:
        """Copy the parent's files, where there are none."""
        if not self.main(version).is_file():
            copying.again(self.folder, self.stem(parent), self.stem(version))

    def sources(self, version: str) -> dict[str, list[str]]:
        """Lines of the version's own file, called ``version``, and of those beside it."""
        main = self.main(version)
        files = [main] if main.parent == self.folder else sorted(main.parent.glob("*.py"))
        return {
            "version" if file == main else file.name: inputs.read_text(file).splitlines()
            for file in files
        }

    def name(self, version: str) -> str:
        """The version's own file from the top of the workspace."""
        return self.main(version).relative_to(self.root).as_posix()

    def examine(self, version: str, say: Say) -> Examined:
        """Run and compare it, and compile its kernels."""
        subject = adopted.adopt(self.main(version))
        checked = subject.check(self.problem)
        made = adopted.records(subject, checked, say)
        adopted.write(made)
        return Examined(adopted.correctness_of(checked), tuple(made), adopted.work(checked))

    def timed(self, versions: Sequence[str], say: Say) -> list[Record]:
        """Time files one after another."""
        say(f"timing {' and '.join(versions)}")
        found = [adopted.adopt(self.main(version)) for version in versions]
        made = [launching.timed(one, self.problem, BENCH_RUNS)[0] for one in found]
        adopted.write(made)
        return made

    def records_of(self, version: str) -> list[Record]:
        """Records of the file's present content."""
        return adopted.records_of(self.main(version))

    def recorded(self, version: str) -> Record | None:
        """None: nobody else times an adopted file."""
        return None

    def known(self) -> list[Record]:
        """Records of adopted files."""
        return list(evidence.find(adopted.results()))

    def require_takes(self, version: str) -> None:
        """Refuse sizes that the file's ``inputs`` does not name."""
        sizes = contract.sizes_named(self.main(version))
        if sizes is not None and (unknown := [n for n in self.problem if n not in sizes]):
            raise UnknownNameError("size", unknown[0], sizes)

    def keep(self, version: str) -> None:
        """The file is in the workspace already."""

    def is_kept(self, version: str) -> bool:
        """Whether a record is of the file's present content."""
        return bool(self.records_of(version))


@dataclass(frozen=True)
class DesignSubject:
    """A design of ours.

    Attributes:
        root: The workspace.
        problem: Sizes; those left out have their defaults.
        design: The design with its language.
        device: Key of the device that it is worked for.
        check: Runs all small problems of a version.
    """

    root: Path
    problem: Mapping[str, Scalar]
    design: str
    device: str
    check: Check | None = None

    @property
    def results(self) -> Path:
        """Folder of the campaign's records."""
        return self.root / "results"

    def version(self, name: str) -> Version:
        """A version of the design, found on disk now.

        Raises:
            UnknownNameError: There is none.
        """
        registry.clear_caches()
        return registry.find(self.design, name)

    def path(self, version: str) -> Path:
        """The version's module; where it will be, before it is made."""
        try:
            return self.version(version).path
        except UnknownNameError:
            base = self.version("v0").path
            name = f"{base.stem}_{version}"
            return base.parents[1] / name / f"{name}.py"

    def begin(self, version: str, parent: str) -> None:
        """Clone the parent, where the version is not there."""
        if not self.path(version).is_file():
            clone(self.version(parent), version)
            registry.clear_caches()
            importlib.invalidate_caches()

    def sources(self, version: str) -> dict[str, list[str]]:
        """Lines of the package's modules; its main one is called ``version``."""
        found = self.version(version)
        files = sorted(found.path.parent.glob("*.py"))
        return {
            "version" if file == found.path else file.name: inputs.read_text(file).splitlines()
            for file in files
        }

    def name(self, version: str) -> str:
        """Design and version, as users type them."""
        return self.version(version).key

    def examine(self, version: str, say: Say) -> Examined:
        """Run all small problems, then check and compile the campaign's own problem.

        Raises:
            ToolchainError: It cannot be checked here.
        """
        from mla_var3.profiling import modes

        found = self.version(version)
        wrong = self.check(found) if self.check is not None else ""
        device = devices.find(self.device)
        made = modes.run(
            "static", found.plan_of(self.problem), version=found, archs=(device.compile_arch,),
            device=device, results=self.results, progress=say,
        ).records  # fmt: skip
        outcome = made[-1].outcome
        if isinstance(outcome, Skipped):
            raise ToolchainError(f"{found.key} cannot be compiled for {device.key}: "
                                 f"{outcome.reason}")  # fmt: skip
        if outcome.correctness is None:
            raise ToolchainError(f"{found.key} cannot be checked here")
        failed = wrong or (outcome.error if isinstance(outcome, Failed) else "")
        correctness = outcome.correctness
        if failed:
            correctness = correctness.model_copy(update={"status": "failed", "message": failed})
        return Examined(correctness, made)

    def timed(self, versions: Sequence[str], say: Say) -> list[Record]:
        """Time versions one after another, each checked on the GPU before."""
        from mla_var3.profiling import modes

        return [
            modes.run(
                "event", found.plan_of(self.problem), version=found, results=self.results,
                bench_runs=BENCH_RUNS, progress=say,
            ).record
            for found in map(self.version, versions)
        ]  # fmt: skip

    def records_of(self, version: str) -> list[Record]:
        """The campaign's own records of the version's present sources."""
        found = self.version(version)
        keys = {"language": found.language, "design": found.design, "version": version}
        known = evidence.find(self.results, **keys)
        sources = found.sources()
        passed = [r for r in known if r.kernel.sources == sources and isinstance(r.outcome, Passed)]
        return sorted(passed, key=lambda record: record.time)

    def recorded(self, version: str) -> Record | None:
        """The newest of the project's event records of the code and problem on the device."""
        found = self.version(version)
        asked = {k: v for k, v in found.plan_of(self.problem).problem().items() if v is not None}
        known = evidence.find(
            target=self.device, language=found.language, design=found.design, version=version,
            mode="event",
        )  # fmt: skip
        timed = [
            record
            for record in known
            if isinstance(record.outcome, Passed)
            and asked.items() <= record.problem.items()
            and not evidence.is_stale(record)
        ]
        return max(timed, key=lambda record: record.time, default=None)

    def known(self) -> list[Record]:
        """The campaign's records, and all of the project's."""
        return [r for root in (self.results, None) for r in evidence.Index(root).records]

    def require_takes(self, version: str) -> None:
        """Refuse a version that does not exist, and sizes that its plan does not take."""
        self.version(version).plan_of(self.problem)

    def keep(self, version: str) -> None:
        """Copy the version's package into the workspace."""
        source, target = self._places(version)
        shutil.copytree(source, target, dirs_exist_ok=True,
                        ignore=shutil.ignore_patterns("__pycache__"))  # fmt: skip

    def is_kept(self, version: str) -> bool:
        """Whether the package is as its copy in the workspace."""
        one, other = (
            {file.name: file.read_bytes() for file in folder.glob("*.py")}
            for folder in self._places(version)
        )
        return one == other

    def _places(self, version: str) -> tuple[Path, Path]:
        """A version's package, and its copy in the workspace."""
        source = self.version(version).path.parent
        return source, self.root / "versions" / source.name


def difference(one: Mapping[str, list[str]], other: Mapping[str, list[str]]) -> Iterator[str]:
    """Lines that lead from one version's files to another's, each with its sign."""
    for name in sorted({*one, *other}):
        rows = difflib.unified_diff(one.get(name, []), other.get(name, []), n=0)
        yield from (row for row in rows if not row.startswith(("---", "+++", "@@")))


def of(settings: Any, root: Path, check: Check | None = None) -> Subject:
    """What a campaign's settings name."""
    if settings.design is None:
        return FileSubject(root, settings.problem)
    return DesignSubject(root, settings.problem, settings.design, settings.device, check)
