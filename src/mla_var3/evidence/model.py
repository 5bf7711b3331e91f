"""The record: what one run observed, and nothing that follows from it.

Bounds, fractions of a ceiling, occupancy and regimes are worked out when a record is read, from
its counts and today's device files; a better ceiling needs no new record.

Schema 3, which the files are about to follow: one file per run and design,
``results/<target>/<package>/<layer>/<design>/<time>-<run>.json``. It says once what holds for all
of it: run, device and driver, toolchain, git, the sources of each version (``versions``), the
protocols and the compilers' facts (lists that entries name by place), then one entry per version,
problem and mode: ``version, problem, slug, mode, time, clocks, outcome``. ``Record`` stays what
readers hold: an entry together with its run, so ``stage.fingerprint`` and ``record.workload`` (the
workload's revision) are a field of ``Stage`` and of ``Record``, and need no change of the files'
layout beyond the entry. FLOPs and bytes of a cost model leave ``Stage`` and ``Passed``.
A record's address is ``results/<target>/<package>/<layer>/<design>/<version>/<slug>/<mode>``, the
newest of that name, or with ``@<run>`` that of one run.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from mla_var3.evidence.facts import Facts, StaticFacts

SCHEMA_VERSION: Literal[2] = 2

Mode = Literal["disabled", "static", "event", "annotation", "ncu", "nsys"]
#: Far above any count of a run, and a float still holds it: what follows from counts is finite.
_LARGEST = 10**30
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Scalar = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | float | bool | str | None

#: Target of a run on the CPU: correctness only, never a time.
CPU = "cpu"
STATIC = "static/"


class _Model(BaseModel):
    # NaN and infinity are not JSON.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class KernelIdentity(_Model):
    """Which version ran, and the sources it ran from.

    Attributes:
        language: Key of the language, such as ``cutile-dsl``.
        package: Its folder below ``kernels/``.
        layer: The workload, such as ``mla``.
        design: The design.
        version: ``v0`` for the base, else ``v1``, ...
        sources: git blob id by path from the top of the checkout, for every file of the version
            and of the kernel modules that it imports. Blob ids outlive rewritten history. Empty
            where a record of an older schema did not say.
    """

    language: str = Field(pattern=r"^[a-z][a-z0-9-]*$")
    package: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    layer: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    design: str = Field(pattern=r"^[a-z][a-z0-9_]*$")
    version: str = Field(pattern=r"^v(0|[1-9][0-9]*)$")
    sources: dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]]

    @property
    def name(self) -> str:
        """``<design> <version>``, as users type it."""
        return f"{self.design} {self.version}"


class Device(_Model):
    """The GPU as the run found it.

    Attributes:
        key: Stem of its file under ``knowledge/devices``.
        name: As the driver names it.
        arch: Such as ``sm_90``.
        driver: Driver version.
        sm_clock_mhz: SM clock right after the work.
        memory_clock_mhz: Memory clock right after the work.
    """

    key: str
    name: str
    arch: str
    driver: str
    sm_clock_mhz: float | None = Field(None, gt=0)
    memory_clock_mhz: float | None = Field(None, gt=0)


class Duration(_Model):
    """Times of one stage or of the whole, in microseconds."""

    median_us: float = Field(gt=0)
    min_us: float = Field(gt=0)
    max_us: float = Field(gt=0)
    samples: int = Field(ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.min_us <= self.median_us <= self.max_us:
            raise ValueError(
                f"min {self.min_us} <= median {self.median_us} <= max {self.max_us} does not hold"
            )
        return self


class Protocol(_Model):
    """How the times of a record were taken.

    Attributes:
        timer: What took them.
        warmup_runs: Untimed runs before.
        bench_runs: Timed runs.
        l2_flush: Whether the L2 was flushed before each.
        graph_replay: Whether each was the replay of a CUDA graph.
        rounds: In how many rounds, each version once per round; left out when all at once.
    """

    timer: str
    warmup_runs: int = Field(ge=0)
    bench_runs: int = Field(ge=1)
    l2_flush: bool
    graph_replay: bool
    rounds: int | None = Field(None, ge=1)


class Energy(_Model):
    """What the board drew while the version ran back to back, without L2 flush.

    Attributes:
        launches: Launches in the window.
        launch_us: Microseconds of one, the window divided by their number.
        joules: Joules of one, by the board's energy counter, static power included.
        watts: Mean power over the window.
        sm_clock_mhz: Median SM clock of the samples.
        samples: Times that clocks were read.
        throttle: Reasons that held the clocks down in any sample.
    """

    launches: int = Field(ge=1)
    launch_us: float = Field(gt=0)
    joules: float = Field(gt=0)
    watts: float = Field(gt=0)
    sm_clock_mhz: float | None = Field(None, gt=0)
    samples: int = Field(ge=0)
    throttle: list[str] = Field(default_factory=list)


class Stage(_Model):
    """One kernel of the version.

    Attributes:
        name: Path inside the pipeline.
        kernel: Name of the kernel function.
        tiling: Launch and tile parameters.
        grid: Blocks per axis; empty where a library chooses it.
        flops: FLOPs of the cost model (multiply-add = 2).
        bytes: DRAM bytes of the cost model.
        duration: Time of this stage alone.
        counters: The profiler's, by its names.
        static: What the compiler made of it.
    """

    name: str
    kernel: str
    tiling: dict[str, Scalar]
    grid: list[Annotated[int, Field(ge=1)]]
    flops: Count
    bytes: Count
    duration: Duration | None = None
    counters: dict[str, float] = Field(default_factory=dict)
    static: Facts | None = None

    @field_validator("static")
    @classmethod
    def _once(cls, facts: Any) -> Any:
        """Equal facts are kept once: a version compiles to the same code for many problems."""
        return None if facts is None else _FACTS.setdefault(facts.model_dump_json(), facts)


_FACTS: dict[str, Any] = {}


class CheckedCase(_Model):
    """One problem that was compared with the reference.

    Attributes:
        problem: Its sizes.
        max_relative_error: Largest over outputs of ||out-ref||/||ref||; left out when not finite.
        mma_flops: Matrix FLOPs that ran, where the run counted them.
        bytes_loaded: Bytes that loads asked for, likewise.
        bytes_stored: Bytes that stores wrote, likewise.
    """

    problem: dict[str, Scalar]
    max_relative_error: float | None = Field(None, ge=0)
    mma_flops: Count | None = None
    bytes_loaded: Count | None = None
    bytes_stored: Count | None = None


class Correctness(_Model):
    """Result of comparing outputs with the reference; absent when the run did not check."""

    status: Literal["passed", "failed"]
    against: str
    tolerance: float = Field(gt=0)
    cases: list[CheckedCase] = Field(min_length=1)
    message: str | None = None

    @property
    def max_relative_error(self) -> float | None:
        """Largest over the cases; None when any is not finite."""
        errors = [c.max_relative_error for c in self.cases if c.max_relative_error is not None]
        return max(errors) if len(errors) == len(self.cases) else None


class Passed(_Model):
    """Outcome of a run that ended.

    Attributes:
        correctness: Comparison with the reference.
        protocol: How times were taken; present exactly when there are times.
        stages: The kernels in launch order.
        total: Time of the whole version.
        energy: Energy of the whole version, where the board told it.
        flops: Least FLOPs of the whole version, by its cost model.
        bytes: Least DRAM bytes of the whole version, likewise.
        artefacts: Bulk files, below ``out/``.
    """

    status: Literal["passed"] = "passed"
    correctness: Correctness | None = None
    protocol: Protocol | None = None
    stages: list[Stage] = Field(min_length=1)
    total: Duration | None = None
    energy: Energy | None = None
    flops: Count
    bytes: Count
    artefacts: list[str] = Field(default_factory=list)

    @model_validator(mode="after")
    def _timed_under_a_protocol(self) -> Self:
        timed = self.total is not None or any(s.duration is not None for s in self.stages)
        if timed != (self.protocol is not None):
            raise ValueError("times and the protocol they were taken under come together")
        return self

    @property
    def facts(self) -> list[StaticFacts]:
        """What the compiler made of each stage that was compiled."""
        return [stage.static for stage in self.stages if stage.static is not None]


class Failed(_Model):
    """Outcome of a run that did not end: its error and no numbers."""

    status: Literal["failed"] = "failed"
    error: str = Field(min_length=1)
    stage: str | None = None
    correctness: Correctness | None = None


class Skipped(_Model):
    """Outcome of a run that was not made, since the target does not fit: why, and no numbers."""

    status: Literal["skipped"] = "skipped"
    reason: str = Field(min_length=1)


Outcome = Passed | Failed | Skipped


class Git(_Model):
    """The commit that the run saw, a hint only: blob ids name the sources.

    Attributes:
        commit: Its hash.
        dirty: Whether tracked files differed from it; None when that could not be told.
    """

    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    dirty: bool | None = None


class Record(_Model):
    """One run's result."""

    schema_version: Literal[2] = SCHEMA_VERSION
    kernel: KernelIdentity
    problem: dict[str, Scalar]
    slug: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    mode: Mode
    target: str = Field(pattern=r"^(static/sm_\d+[a-z]?|[a-z0-9][a-z0-9-]*)$")
    device: Device | None = None
    toolchain: dict[str, str]
    outcome: Annotated[Outcome, Field(discriminator="status")]
    run: str | None = Field(
        None, description="names the process that made it; times compare only within one run"
    )
    git: Git | None = Field(None, description="null when it could not be told")
    time: AwareDatetime
    content_sha256: str = Field(
        "", pattern=r"^([0-9a-f]{64})?$", description="of all the rest; filled in when written"
    )

    @property
    def path(self) -> Path:
        """Path below ``results/``."""
        kernel = self.kernel
        return Path(
            self.target, kernel.package, kernel.layer, kernel.design, kernel.version, self.slug,
            f"{self.mode}.json",
        )  # fmt: skip

    @property
    def is_static(self) -> bool:
        """Whether the run compiled for an arch instead of running on a device."""
        return self.target.startswith(STATIC)

    @property
    def arch(self) -> str | None:
        """The compile target; None for a run on the CPU."""
        if self.device is not None:
            return self.device.arch
        return self.target.removeprefix(STATIC) if self.is_static else None

    def facts(self) -> dict[str, Any]:
        """All but what changes from run to run without meaning: run, time, git state, hash."""
        return self.model_dump(mode="json", exclude={"run", "time", "git", "content_sha256"})

    def digest(self) -> str:
        """SHA-256 of everything but ``content_sha256``, as canonical JSON."""
        content = self.model_dump(mode="json", exclude_none=True, exclude={"content_sha256"})
        text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(text.encode()).hexdigest()


def json_schema() -> dict[str, Any]:
    """JSON Schema of a record."""
    return Record.model_json_schema()
