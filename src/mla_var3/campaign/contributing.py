"""Times a standard set on a user's GPU as one file, and accepts such files among the records.

A contribution is a file that holds the run files of one process and says where they are from. Once
accepted, its run files lie among the committed ones, and a table of ``results/contributions``
names them, so that pages can say who measured them; times compare within their own run as all do.
"""

from __future__ import annotations

import datetime
import functools
import json
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Self

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from mla_var3 import devices, evidence, inputs, workloads
from mla_var3.errors import (
    HyperMlaError,
    InputError,
    ToolchainError,
    UnknownNameError,
    UsageError,
)
from mla_var3.evidence import Passed, Record, Run, Scalar
from mla_var3.evidence.model import RunId
from mla_var3.paths import results_dir, write_atomic
from mla_var3.runtime import registry
from mla_var3.runtime.registry import Version

Say = Callable[[str], None]
STANDARD = Path(__file__).resolve().parents[1] / "conf" / "contribute.toml"
FOLDER = "contributions"


class Part(BaseModel):
    """A part of a file: without fields that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Problem(Part):
    """A problem of the standard set."""

    layer: str
    fields: dict[str, Scalar]

    def __str__(self) -> str:
        return " ".join([self.layer, *(f"{name}={value}" for name, value in self.fields.items())])


class Standard(Part):
    """The standard set.

    Attributes:
        budget_s: Seconds after which no further problem is begun.
        bench_runs: Timed runs of each version.
        problems: What is timed, the most telling first.
    """

    budget_s: float = Field(gt=0)
    bench_runs: int = Field(ge=1)
    problems: tuple[Problem, ...] = Field(min_length=1)


class About(Part):
    """Where a contributed run is from.

    Attributes:
        run: The process that made it.
        device: Key of the device.
        name: As the driver names it.
        driver: Driver version.
        by: Who contributed it; empty where nobody is named.
        time: When it ended.
        seconds: How long it took.
        left_out: Problems that the budget had no room for, and versions that could not run.
    """

    run: RunId
    device: str
    name: str
    driver: str
    by: str = Field("", max_length=80, pattern=r"^[^\n<>]*$")
    time: AwareDatetime
    seconds: float = Field(ge=0)
    left_out: tuple[str, ...] = ()


class Contribution(Part):
    """A file of a contribution.

    Attributes:
        about: Where it is from.
        files: The run files, as they lie among the committed ones.
    """

    about: About
    files: tuple[dict[str, Any], ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _holds_runs(self) -> Self:
        for place, run in enumerate(self.runs()):
            if run.run != self.about.run or run.target != self.about.device:
                raise ValueError(
                    f"files.{place} is of run {run.run} on {run.target}, and the file is of run "
                    f"{self.about.run} on {self.about.device}"
                )
        return self

    def runs(self) -> Iterator[Run]:
        """The run files."""
        for place, one in enumerate(self.files):
            yield evidence.parse(json.dumps(one).encode(), f"files.{place}")


@functools.cache
def standard() -> Standard:
    """The standard set."""
    return Standard.model_validate(inputs.read_toml(STANDARD))


def newest(layer: str) -> list[Version]:
    """The newest version of each design of a workload."""
    workloads.find(layer)
    return [versions[-1] for versions in registry.designs(layer).values()]


# -- making one -----------------------------------------------------------------------------------


def measure(by: str, say: Say) -> Contribution:
    """Time the standard set on the GPU here, all of it in this run.

    Raises:
        ToolchainError: There is no GPU.
        UsageError: Nothing could be timed, or the sources are of no commit.
        DeviceFigureError: No file describes the GPU.
    """
    import torch

    from mla_var3.profiling import recording

    if not torch.cuda.is_available():
        raise ToolchainError("contribute times a standard set on a GPU, and torch sees none here")
    device, state = recording.gpu()
    require_commit(evidence.git_state())
    began, left_out, records = time.monotonic(), list[str](), list[Record]()
    for problem in standard().problems:
        spent = time.monotonic() - began
        if spent > standard().budget_s:
            left_out.append(f"{problem}: the budget was spent")
            continue
        say(f"{problem}: {spent:.0f} of {standard().budget_s:g} s")
        made, absent = timed(problem, say)
        records += made
        left_out += absent
    if not any(isinstance(record.outcome, Passed) for record in records):
        raise UsageError(f"nothing could be timed on {device.name}: {'; '.join(left_out)}"[:600])
    about = About(
        run=recording.RUN, device=device.key, name=state.name, driver=state.driver, by=by,
        time=datetime.datetime.now(datetime.UTC).replace(microsecond=0),
        seconds=round(time.monotonic() - began, 1), left_out=tuple(left_out),
    )  # fmt: skip
    return Contribution(about=about, files=tuple(files_of(records)))


def timed(problem: Problem, say: Say) -> tuple[list[Record], list[str]]:
    """Records of a problem's versions, timed in rounds, and why others have none."""
    from mla_var3.profiling import rounds
    from mla_var3.profiling.job import Job
    from mla_var3.profiling.settings import Settings

    settings = Settings(bench_runs=standard().bench_runs, no_autotune=True, progress=say)
    jobs, absent = [], []
    for version in newest(problem.layer):
        try:
            plan = version.plan_of(problem.fields)
            plan.validate()
            jobs.append(Job(version, plan, None, settings))
        except HyperMlaError as error:
            absent.append(f"{version.key} at {problem}: {_line(error)}")
    made = []
    for entry, record in rounds.timed(jobs, settings):
        if record is not None:
            made.append(record)
        else:
            absent.append(f"{entry.job.version.key} at {problem}: {_line(entry.absent)}")
    return made, absent


def _line(text: object) -> str:
    return " ".join(str(text).split())[:200]


def require_commit(git: evidence.Git | None) -> None:
    """Refuse sources that no commit has.

    Raises:
        UsageError: Files were changed, or there is no repository.
    """
    if git is None or git.dirty:
        why = "files differ from the commit" if git else "no commit is known"
        raise UsageError(f"a contributed run names the commit that it is of, and here {why}")


def files_of(records: Iterable[Record]) -> Iterator[dict[str, Any]]:
    """Records as run files hold them."""
    with tempfile.TemporaryDirectory() as folder:
        for record in records:
            evidence.write(record, Path(folder))
        for path in evidence.files(Path(folder)):
            yield json.loads(path.read_bytes())


def text(found: Contribution) -> str:
    """The file."""
    return json.dumps(found.model_dump(mode="json"), indent=1) + "\n"


# -- accepting one --------------------------------------------------------------------------------


def read(path: Path) -> Contribution:
    """The contribution in a file.

    Raises:
        InputError: It is not sound; names the field.
    """
    content = inputs.read_json(path)
    try:
        return Contribution.model_validate(content)
    except ValidationError as error:
        said = inputs.first_fault(error, "the file").replace("Value error, ", "")
        raise InputError(f"{path.name}:", " ".join(said.split())) from error
    except HyperMlaError as error:
        raise InputError(f"{path.name}:", _line(error)) from error


def accept(
    found: Contribution, name: str, judge: Callable[[Run, PurePosixPath], Sequence[str]]
) -> list[Path]:
    """Put a contribution among the committed records, after every check that those pass.

    Args:
        found: The contribution.
        name: How messages call its file.
        judge: What is wrong with a run file at its place.

    Raises:
        InputError: A run file does not pass; nothing was written.
        UnknownNameError: No file describes the device.
        UsageError: It is there already.
    """
    board = devices.find(found.about.device)
    if board.key != found.about.device:
        raise UnknownNameError("device", found.about.device, [board.key])
    root, runs = results_dir(), list(found.runs())
    table = root / FOLDER / f"{found.about.run}.json"
    if table.exists():
        raise UsageError(f"run {found.about.run} was contributed already: {table}")
    places = [run.folder / f"{run.stem}.json" for run in runs]
    for number, (run, place) in enumerate(zip(runs, places, strict=True)):
        if run.git is None or run.git.dirty:
            raise InputError(f"{name}:", f"files.{number}.git: it names no clean commit")
        if faults := judge(run, place):
            raise InputError(f"{name}:", f"files.{number}: {faults[0]}")
        if (root / place).exists():
            raise UsageError(f"{root / place} exists")
    for run, place in zip(runs, places, strict=True):
        write_atomic(root / place, run.text())
    # Last, since a run is contributed when its table says so.
    content = found.about.model_dump(mode="json") | {"files": [str(place) for place in places]}
    write_atomic(table, json.dumps(content, indent=1) + "\n")
    return [*(root / place for place in places), table]


def contributed(root: Path | None = None) -> dict[str, About]:
    """Runs that were contributed, by their ids.

    Raises:
        InputError: A table is not sound; names the field.
    """
    found = {}
    for path in sorted(((root or results_dir()) / FOLDER).glob("*.json")):
        content = dict(inputs.read_json(path))
        content.pop("files", None)
        try:
            about = About.model_validate(content)
        except ValidationError as error:
            said = inputs.first_fault(error, "the file")
            raise InputError(f"{FOLDER}/{path.name}:", said) from error
        found[about.run] = about
    return found


def wanted(key: str, records: Iterable[Record]) -> list[Problem]:
    """Problems of the standard set that no run timed on a device."""
    mine = [r for r in records if r.target == key and r.is_timed]
    return [one for one in standard().problems if not any(_is_of(r, one) for r in mine)]


def _is_of(record: Record, problem: Problem) -> bool:
    return record.kernel.layer == problem.layer and problem.fields.items() <= record.problem.items()
