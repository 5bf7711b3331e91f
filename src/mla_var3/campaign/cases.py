"""Runs single cases of a sweep: compiles or times a version at one problem under fixed tilings."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from mla_var3 import devices, evidence
from mla_var3.errors import HyperMlaError, TilingError, ToolchainError, UnknownNameError
from mla_var3.evidence import Failed, Passed, Record, Scalar, builds
from mla_var3.evidence.model import sha256_of
from mla_var3.runtime import registry
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.runtime.tiling import Tiling

Mode = Literal["static", "event"]
Tilings = Mapping[str, Mapping[str, Scalar]]
Status = Literal["passed", "failed", "refused"]
Say = Callable[[str], None]
#: What a timed case says where its times are of another device.
OTHER_DEVICE = "this is {}, and the case is of {}"


class Part(BaseModel):
    """A part of a case's file: without fields that it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Case(Part):
    """One case.

    Attributes:
        design: The design with its language.
        version: ``v0``, ``v1``, ...
        problem: Sizes; those left out have their defaults.
        tilings: Fields by stage that are not the default tiling's.
        mode: Compiled, or timed.
        target: An arch in mode static, else the key of a device.
        device: Device that open sizes are resolved for in mode static; by the arch where None.
        check: Whether it is compared with its reference.
        bench_runs: Timed runs.
    """

    design: str
    version: str
    problem: dict[str, Scalar] = Field(default_factory=dict)
    tilings: dict[str, dict[str, Scalar]] = Field(default_factory=dict)
    mode: Mode = "static"
    target: str
    device: str | None = None
    check: bool = True
    bench_runs: int = Field(50, ge=1)

    @property
    def found(self) -> Version:
        """The version."""
        return registry.find(self.design, self.version)

    def key(self, state: str) -> str:
        """What it is known by: an edit of the version's sources makes another case of it.

        Args:
            state: Digest of the sources.
        """
        return sha256_of([self.model_dump(mode="json"), state])[:24]

    def __str__(self) -> str:
        fields = [f"{name}={value}" for name, value in self.problem.items()]
        for stage, values in self.tilings.items():
            alone = len(self.tilings) == 1
            fields += [f"{name if alone else f'{stage}.{name}'}={x}" for name, x in values.items()]
        return " ".join([self.design, self.version, self.target, *fields])


class Outcome(Part):
    """What came of a case.

    Attributes:
        case: The case.
        status: Refused is what cannot be: a tiling or a problem that the version does not take.
        reason: Why it is not passed.
        record: The record; None where it came to none.
        seconds: Wall time that it took.
    """

    case: Case
    status: Status
    reason: str = ""
    record: Record | None = None
    seconds: float = Field(0.0, ge=0)

    @property
    def median_us(self) -> float | None:
        """The time; None where nothing was timed."""
        outcome = self.record.outcome if self.record is not None else None
        return outcome.total.median_us if isinstance(outcome, Passed) and outcome.total else None

    def __str__(self) -> str:
        if self.status != "passed":
            return f"{self.status}: {self.reason}"
        if self.median_us is not None:
            return f"{self.median_us:,.2f} us"
        outcome = self.record.outcome if self.record is not None else None
        facts = outcome.facts if isinstance(outcome, Passed) else []
        return "; ".join(
            f"{f.kernel} {f.registers} registers, {f.spill_instructions} spills, {f.mma_path}"
            for f in facts
        )


class Sources(NamedTuple):
    """Sources of versions, read once per version."""

    known: dict[str, str]

    def state(self, case: Case) -> str:
        """Digest of a case's sources."""
        name = f"{case.design} {case.version}"
        if name not in self.known:
            self.known[name] = builds.state_digest(case.found.sources())
        return self.known[name]

    def key(self, case: Case) -> str:
        """Key of a case."""
        return case.key(self.state(case))


def plan_of(case: Case) -> KernelPlan:
    """The plan of a case, its tilings on top of the default ones.

    Raises:
        HyperMlaError: The version does not take it.
    """
    plan = case.found.plan_of(case.problem)
    if case.mode == "static":
        from mla_var3.profiling.static import device_for

        asked = devices.find(case.device) if case.device else None
        device = device_for(case.target, asked)
    else:
        device = devices.find(case.target)
    if device is not None:
        plan = plan.resolve(device.machine(plan.dtype))
    plan.validate()
    tilings = {stage: tiling_of(plan, stage, values) for stage, values in case.tilings.items()}
    plan = dataclasses.replace(plan, tilings=tilings)
    for stage in plan.tiling_types:
        plan.tiling(stage)
    return plan


def tiling_of(plan: KernelPlan, stage: str, values: Mapping[str, Scalar]) -> Tiling:
    """A stage's default tiling with fields replaced.

    Raises:
        UnknownNameError: There is no such stage or field.
    """
    if stage not in plan.tiling_types:
        raise UnknownNameError("stage", stage, list(plan.tiling_types))
    known = [field.name for field in dataclasses.fields(plan.tiling_types[stage])]
    for name in values:
        if name not in known:
            raise UnknownNameError(f"field of the tiling of {stage}", name, known)
    return dataclasses.replace(plan.default_tiling(stage), **values)


def run(case: Case, say: Say = lambda _: None) -> Outcome:
    """Run one case; what goes wrong is its outcome.

    Raises:
        ToolchainError: A tool is missing here, which says nothing of the case.
    """
    began = time.monotonic()
    made = _run(case, say)
    return made.model_copy(update={"seconds": round(time.monotonic() - began, 3)})


def _run(case: Case, say: Say) -> Outcome:
    try:
        plan = plan_of(case)
        made = _compiled(case, plan, say) if case.mode == "static" else _timed(case, plan, say)
    except ToolchainError:
        raise
    except (TilingError, HyperMlaError) as error:
        return Outcome(case=case, status="refused", reason=_line(error))
    except Exception as error:  # noqa: BLE001 - Whatever a kernel's code raises is kept.
        said = f"{type(error).__name__}: {_line(error)}"
        return Outcome(case=case, status="failed", reason=said)
    outcome = made.outcome
    if isinstance(outcome, Passed):
        return Outcome(case=case, status="passed", record=made)
    reason = outcome.error if isinstance(outcome, Failed) else outcome.reason
    status: Status = "failed" if isinstance(outcome, Failed) else "refused"
    return Outcome(case=case, status=status, reason=" ".join(reason.split())[:500], record=made)


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:500] or "no word"


def joint_validators(found: RuntimeObject) -> Iterator[Callable[[], None]]:
    """Checks of stages that run at once and have to fit each other under their tilings."""
    validate = getattr(found, "validate_joint_tiling_fn", None)
    if validate is not None:
        yield lambda: validate(found.tilings())
    for child in getattr(found, "children", ()):
        yield from joint_validators(child)


def _compiled(case: Case, plan: KernelPlan, say: Say) -> Record:
    from mla_var3.profiling import static
    from mla_var3.profiling.settings import Settings

    settings = Settings(version=case.found, check=case.check, progress=say)
    device = devices.find(case.device) if case.device else None
    for validate in joint_validators(plan.plan(*plan.prepare_inputs("meta"))):
        validate()
    return static.observed(plan, case.target, settings, device)


def _timed(case: Case, plan: KernelPlan, say: Say) -> Record:
    from mla_var3.profiling import binding, gpu_lock, running
    from mla_var3.profiling.job import Job
    from mla_var3.profiling.settings import Settings

    binding.require_gpu("event")
    settings = Settings(
        version=case.found, check=case.check, bench_runs=case.bench_runs, no_autotune=True,
        progress=say,
    )  # fmt: skip
    with gpu_lock.held(say):
        job = binding.on_gpu(Job.of(plan, settings))
        if job.device is None or job.device.key != case.target:
            here = job.device.key if job.device else "no device"
            raise ToolchainError(OTHER_DEVICE.format(here, case.target))
        return running.timed(job)[1]


def write(outcome: Outcome, root: Any) -> None:
    """Keep the record of an outcome among others, where it came to one."""
    if outcome.record is not None:
        evidence.write(outcome.record, root)
