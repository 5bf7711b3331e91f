"""Schema of a record: what one run observed of one version, and nothing derived from it.

Bounds, fractions of a ceiling, occupancy, regimes, FLOPs and bytes of a cost model are worked out
when a record is read, from its problem and tilings and today's sources and device files; a better
ceiling or a mended cost model needs no new record. A record is an entry of a file together with
the run that the file is of; ``runs`` says how the files hold them.
"""

from __future__ import annotations

import hashlib
import json
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
from mla_var3.evidence.fingerprint import Digest

SCHEMA_VERSION: Literal[3] = 3

Mode = Literal["disabled", "static", "event", "annotation", "ncu", "nsys"]
#: Far above any count of a run, and a float still holds it: what follows from counts is finite.
_LARGEST = 10**30
Count = Annotated[int, Field(ge=0, le=_LARGEST)]
Scalar = Annotated[int, Field(ge=-_LARGEST, le=_LARGEST)] | float | bool | str | None

Language = Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")]
VersionName = Annotated[str, Field(pattern=r"^v(0|[1-9][0-9]*)$")]
Sources = dict[str, Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]]
Slug = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
Target = Annotated[str, Field(pattern=r"^(static/sm_\d+[a-z]?|[a-z0-9][a-z0-9-]*)$")]
#: Names the process that made a record; times compare only within one run.
RunId = Annotated[str, Field(pattern=r"^[a-z0-9]{1,32}$")]

#: Target of a run on the CPU: correctness only, never a time.
CPU = "cpu"
STATIC = "static/"


class Strict(BaseModel):
    """A part of a record: frozen, without fields that it does not know."""

    # NaN and infinity are not JSON.
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, defer_build=True)


class KernelIdentity(Strict):
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

    language: Language
    package: Name
    layer: Name
    design: Name
    version: VersionName
    sources: Sources

    @property
    def name(self) -> str:
        """``<design> <version>``, as users type it."""
        return f"{self.design} {self.version}"


class Gpu(Strict):
    """The GPU that a run was on.

    Attributes:
        key: Stem of its file under ``knowledge/devices``.
        name: As the driver names it.
        arch: Such as ``sm_90``.
        driver: Driver version.
    """

    key: str
    name: str
    arch: str
    driver: str


class Clocks(Strict):
    """Clocks as they were found right after the work; left out where they are not told.

    Attributes:
        sm_clock_mhz: SM clock.
        memory_clock_mhz: Memory clock.
    """

    sm_clock_mhz: float | None = Field(None, gt=0)
    memory_clock_mhz: float | None = Field(None, gt=0)


class Device(Gpu, Clocks):
    """The GPU as the run found it right after the work."""


class Duration(Strict):
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


class Protocol(Strict):
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


class Energy(Strict):
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


class StageFields(Strict):
    """One kernel of the version, but for what the compiler made of it.

    Attributes:
        name: Path inside the pipeline.
        kernel: Name of the kernel function.
        tiling: Launch and tile parameters.
        grid: Blocks per axis; empty where a library chooses it.
        duration: Time of this stage alone.
        counters: The profiler's, by its names.
    """

    name: str
    kernel: str
    tiling: dict[str, Scalar]
    grid: list[Annotated[int, Field(ge=1)]]
    duration: Duration | None = None
    counters: dict[str, float] = Field(default_factory=dict)


class Stage(StageFields):
    """One kernel of the version.

    Attributes:
        static: What the compiler made of it.
    """

    static: Facts | None = None

    @field_validator("static")
    @classmethod
    def _once(cls, facts: Any) -> Any:
        """Equal facts are kept once: a version compiles to the same code for many problems."""
        return None if facts is None else _FACTS.setdefault(facts.model_dump_json(), facts)


_FACTS: dict[str, Any] = {}


class CheckedCase(Strict):
    """One problem that was compared with the reference.

    Attributes:
        problem: Its sizes.
        max_relative_error: Largest over outputs of ||out-ref||/||ref||; left out when not finite.
        mma_flops: Matrix FLOPs that ran, where the run counted them.
        bytes_loaded: Bytes that loads asked for, likewise.
        bytes_stored: Bytes that stores wrote, likewise.
        bank_conflicts: Wavefronts of shared memory beyond the least, likewise.
        sectors: Sectors of global memory that warps asked for, without what TMA moves, likewise.
        least_sectors: Sectors that the same bytes would fill.
    """

    problem: dict[str, Scalar]
    max_relative_error: float | None = Field(None, ge=0)
    mma_flops: Count | None = None
    bytes_loaded: Count | None = None
    bytes_stored: Count | None = None
    bank_conflicts: Count | None = None
    sectors: Count | None = None
    least_sectors: Count | None = None


class Correctness(Strict):
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


class PassedFields(Strict):
    """Outcome of a run that ended, but for its stages and how its times were taken.

    Attributes:
        correctness: Comparison with the reference.
        total: Time of the whole version.
        energy: Energy of the whole version, where the board told it.
        artefacts: Bulk files, below ``out/``.
    """

    status: Literal["passed"] = "passed"
    correctness: Correctness | None = None
    total: Duration | None = None
    energy: Energy | None = None
    artefacts: list[str] = Field(default_factory=list)


class Passed(PassedFields):
    """Outcome of a run that ended.

    Attributes:
        protocol: How times were taken; present exactly when there are times.
        stages: The kernels in launch order.
    """

    protocol: Protocol | None = None
    stages: list[Stage] = Field(min_length=1)

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


class Failed(Strict):
    """Outcome of a run that did not end: its error and no numbers."""

    status: Literal["failed"] = "failed"
    error: str = Field(min_length=1)
    stage: str | None = None
    correctness: Correctness | None = None


class Skipped(Strict):
    """Outcome of a run that was not made, since the target does not fit: why, and no numbers."""

    status: Literal["skipped"] = "skipped"
    reason: str = Field(min_length=1)


Outcome = Passed | Failed | Skipped


class Git(Strict):
    """The commit that the run saw, a hint only: blob ids name the sources.

    Attributes:
        commit: Its hash.
        dirty: Whether tracked files differed from it; None when that could not be told.
    """

    commit: str = Field(pattern=r"^[0-9a-f]{40}$")
    dirty: bool | None = None


class Record(Strict):
    """What one run observed of one version at one problem in one mode."""

    kernel: KernelIdentity
    problem: dict[str, Scalar]
    slug: Slug
    mode: Mode
    target: Target
    device: Device | None = None
    toolchain: dict[str, str]
    outcome: Annotated[Outcome, Field(discriminator="status")]
    run: RunId
    git: Git | None = None
    time: AwareDatetime
    workload: Digest | None = Field(
        None, description="revision of inputs, reference and tolerance; the first where left out"
    )

    @property
    def key(self) -> str:
        """What was run where and how, as a path; further runs of the same have the same key."""
        kernel = self.kernel
        return "/".join(
            (self.target, kernel.package, kernel.layer, kernel.design, kernel.version, self.slug,
             self.mode)
        )  # fmt: skip

    @property
    def is_static(self) -> bool:
        """Whether the run compiled for an arch instead of running on a device."""
        return self.target.startswith(STATIC)

    @property
    def is_timed(self) -> bool:
        """Whether it states a time of the whole."""
        return isinstance(self.outcome, Passed) and self.outcome.total is not None

    @property
    def arch(self) -> str | None:
        """The compile target; None for a run on the CPU."""
        if self.device is not None:
            return self.device.arch
        return self.target.removeprefix(STATIC) if self.is_static else None

    def facts(self) -> dict[str, Any]:
        """All but what changes from run to run without meaning: run, time, git state."""
        return self.model_dump(mode="json", exclude={"run", "time", "git"})

    def made_of(self) -> dict[str, Any]:
        """What its figures came of, and how the run ended: sources, tools, problem, launches.

        Two records in which it is equal differ by chance at most.
        """
        known = self.facts()
        outcome = known["outcome"]
        for stage in outcome.get("stages", ()):
            del stage["static"]
        if outcome.get("correctness"):  # Which size a CPU takes in time is the machine's.
            outcome["correctness"] = outcome["correctness"]["status"]
        return known

    def digest(self) -> str:
        """SHA-256 of all of it, as canonical JSON."""
        return sha256_of(self.model_dump(mode="json", exclude_none=True))


def sha256_of(content: Any) -> str:
    """SHA-256 of what JSON can say, as canonical JSON."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()
