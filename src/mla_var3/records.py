"""Records: one small JSON file a run, the only source of numbers on the site.

Path: ``results/<target>/<design>/<version>/<problem slug>/<mode>.json`` where target is a device
key, ``static/sm_xx`` or ``interpreter``. No time in the path, so that git shows a number change.
The schema is this module's models; ``python -m mla_var3.records`` prints it as JSON Schema.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from mla_var3 import front
from mla_var3.errors import RecordError
from mla_var3.runtime.paths import repo_root, results_dir, write_atomic

SCHEMA_VERSION: Literal[1] = 1

Mode = Literal["disabled", "static", "interpret", "event", "annotation", "ncu", "nsys"]


class _Model(BaseModel):
    # NaN and infinity are no JSON.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class KernelIdentity(_Model):
    """Which version, and the hash of its sources when the record was made."""

    language: str
    layer: str
    design: str
    version: str
    source_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")


class Device(_Model):
    """The GPU as the run found it."""

    key: str
    name: str
    arch: str
    driver: str
    clocks_locked: bool | None = Field(None, description="None: could not be told")
    sm_clock_mhz: float | None = None
    memory_clock_mhz: float | None = None


class Duration(_Model):
    """Times of one stage or of the whole, in microseconds."""

    median_us: float = Field(gt=0)
    min_us: float = Field(gt=0)
    max_us: float = Field(gt=0)
    samples: int = Field(ge=1)


class Protocol(_Model):
    """How the times of a record were taken."""

    timer: str
    warmup_runs: int
    bench_runs: int
    l2_flush: bool
    graph_replay: bool


class Prediction(_Model):
    """Roofline position at a device's ceilings (Williams et al., CACM 52(4), 2009)."""

    device: str
    time_us: float
    bound: Literal["compute", "memory"]
    intensity: float = Field(description="FLOP a byte")
    ridge: float = Field(description="FLOP a byte at which the bounds meet")
    tflops_ceiling: float
    gbps_ceiling: float
    ceiling_kind: str = Field(description="measured or the kind of source")


class Stage(_Model):
    """One kernel of the version; its name is the path inside the pipeline."""

    name: str
    kernel: str
    tiling: dict[str, int | float | bool | str | None]
    grid: list[int]
    flops: int = Field(ge=0)
    bytes: int = Field(ge=0)
    duration: Duration | None = None
    counters: dict[str, float] = Field(default_factory=dict)
    static: dict[str, Any] | None = Field(None, description="mla_var3.static.facts.StaticFacts")
    predictions: list[Prediction] = Field(default_factory=list)

    @field_validator("static")
    @classmethod
    def _once(cls, facts: dict[str, Any] | None) -> dict[str, Any] | None:
        """Equal facts are kept once: a version compiles to the same code for many problems."""
        if facts is None:
            return None
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).digest()
        return _FACTS.setdefault(key, facts)


_FACTS: dict[bytes, dict[str, Any]] = {}


class CheckedCase(_Model):
    """One problem that was compared with the reference."""

    problem: dict[str, int | str | bool | None]
    max_relative_error: float | None = Field(
        None, description="largest over outputs of ||out-ref||/||ref||; left out when not finite"
    )
    mma_flops: int | None = Field(None, description="counted by the interpreter")
    bytes_loaded: int | None = None
    bytes_stored: int | None = None


class Correctness(_Model):
    """Result of comparing outputs with the reference; absent when the run did not check."""

    status: Literal["passed", "failed"]
    against: str
    tolerance: float
    cases: list[CheckedCase] = Field(min_length=1)
    message: str | None = None

    @property
    def max_relative_error(self) -> float | None:
        """Largest over the cases; None when any is not finite."""
        errors = [c.max_relative_error for c in self.cases if c.max_relative_error is not None]
        return max(errors) if len(errors) == len(self.cases) else None


class Peer(_Model):
    """Another implementation timed in the same run at the same problem."""

    name: str
    version: str
    duration: Duration


class Passed(_Model):
    """Outcome of a run that ended."""

    status: Literal["passed"] = "passed"
    correctness: Correctness | None = None
    protocol: Protocol | None = None
    stages: list[Stage] = Field(min_length=1)
    total: Duration | None = None
    flops: int
    bytes: int
    predictions: list[Prediction] = Field(default_factory=list)
    roofline_fraction: float | None = Field(
        None, description="predicted time over measured median, on the record's own device"
    )
    peers: list[Peer] = Field(default_factory=list)
    artefacts: list[str] = Field(default_factory=list, description="bulk files, below out/")


class Failed(_Model):
    """Outcome of a run that did not end: its error and no numbers."""

    status: Literal["failed"] = "failed"
    error: str
    stage: str | None = None
    correctness: Correctness | None = None


class Git(_Model):
    """Commit that the run saw, and whether tracked files differed from it."""

    commit: str
    dirty: bool


class Record(_Model):
    """One run's result."""

    schema_version: Literal[1] = SCHEMA_VERSION
    kernel: KernelIdentity
    problem: dict[str, int | str | bool | None]
    slug: str = Field(pattern=r"^[A-Za-z0-9_.-]+$")
    mode: Mode
    target: str = Field(pattern=r"^(static/sm_\d+[a-z]?|interpreter|[a-z0-9][a-z0-9-]*)$")
    device: Device | None = None
    toolchain: dict[str, str]
    outcome: Annotated[Passed | Failed, Field(discriminator="status")]
    run: str | None = Field(
        None, description="names the process that made it; times compare only within one run"
    )
    git: Git
    time: datetime.datetime

    @property
    def path(self) -> Path:
        """Path below ``results/``."""
        return Path(
            self.target, self.kernel.design, self.kernel.version, self.slug, f"{self.mode}.json"
        )

    def facts(self) -> dict[str, Any]:
        """All but what changes from run to run without meaning: run, time and git state."""
        return self.model_dump(mode="json", exclude={"run", "time", "git"})


def git_state(root: Path | None = None) -> Git:
    """The checkout's commit and dirty flag; ``unknown`` outside a repository.

    ``HYPERMLA_COMMIT`` names the commit on a host that got the files without their repository.
    """
    root = root or repo_root()
    if carried := os.environ.get("HYPERMLA_COMMIT"):
        return Git(commit=carried, dirty=False)

    def git(*args: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", "-C", str(root), *args], capture_output=True, text=True, check=True
            )
        except (OSError, subprocess.CalledProcessError):
            return None
        return done.stdout.strip()

    commit = git("rev-parse", "HEAD")
    # results/ itself is left out: writing one record must not make the next one dirty.
    changes = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return Git(commit=commit or "unknown", dirty=bool(changes))


def write(record: Record, root: Path | None = None) -> tuple[Path, bool]:
    """Write ``record`` unless the file there already states the same facts.

    Args:
        record: The record.
        root: Results folder; the checkout's by default.

    Returns:
        The path and whether the file changed.

    Raises:
        RecordError: The file could not be written; nothing was changed.
    """
    path = (root or results_dir()) / record.path
    if path.is_file():
        try:
            if read(path).facts() == record.facts():
                return path, False
        except RecordError:
            pass  # An unreadable record is replaced.
    text = json.dumps(record.model_dump(mode="json", exclude_none=True), indent=1) + "\n"
    try:
        write_atomic(path, text)
    except OSError as error:
        raise RecordError(f"cannot write {path}: {error.strerror or error}") from error
    return path, True


def read(path: Path) -> Record:
    """The record at ``path``.

    Raises:
        RecordError: The file is missing or not a record; names the first offending field.
    """
    try:
        return Record.model_validate_json(path.read_bytes())
    except OSError as error:
        raise RecordError(f"cannot read record {path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RecordError(f"{path} is not a record: {where}: {first['msg']}") from error


def find(
    root: Path | None = None,
    *,
    target: str | None = None,
    design: str | None = None,
    version: str | None = None,
    mode: str | None = None,
) -> Iterator[Record]:
    """Records below ``root`` that match, in path order."""
    base = root or results_dir()
    for path in sorted(base.glob("**/*.json")):
        record = read(path)
        wanted = (target, design, version, mode)
        actual = (record.target, record.kernel.design, record.kernel.version, record.mode)
        if all(w is None or w == a for w, a in zip(wanted, actual, strict=True)):
            yield record


def is_stale(record: Record) -> bool:
    """Whether the version's sources changed, or went, since the record was made."""
    from mla_var3 import registry
    from mla_var3.errors import UnknownNameError

    try:
        version = registry.find(record.kernel.design, record.kernel.version)
    except UnknownNameError:
        return True
    return version.source_sha256() != record.kernel.source_sha256


def json_schema() -> dict[str, Any]:
    """JSON Schema of a record."""
    return Record.model_json_schema()


def main() -> int:
    """Print the schema; returns the exit code."""
    print(json.dumps(json_schema(), indent=1))
    return 0


if __name__ == "__main__":
    front.run("mla_var3.records:main")
