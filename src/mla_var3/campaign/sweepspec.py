"""Reads a sweep's specification file and lists its cases: versions, problems, tilings, targets."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from mla_var3 import devices, inputs, languages
from mla_var3.campaign.cases import Case, Mode
from mla_var3.errors import (
    HyperMlaError,
    InputError,
    PlanError,
    TilingError,
    UnknownNameError,
)
from mla_var3.evidence import Scalar
from mla_var3.runtime import registry
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.workloads import check_kinds, check_minima

#: More cases than that are a mistake.
MOST = 20_000
NAME = re.compile(r"[a-z0-9]+([_-][a-z0-9]+)*")
Word = Annotated[str, Field(min_length=1, max_length=80)]
Value = bool | int | float | Word
Values = Value | Annotated[list[Value], Field(min_length=1)]
Grid = dict[Word, Values]


class Spec(BaseModel):
    """What a sweep runs: the product of versions, problems, tilings and targets.

    Attributes:
        name: Its name; that of the file by default.
        mode: Compiled, or timed.
        versions: ``D V``, or ``D`` for all its versions.
        archs: Archs to compile for; those of each version's language by default.
        devices: Devices that open sizes are resolved for; in mode event the device it runs on.
        problems: A grid of sizes, or several.
        tilings: Fields by stage, each a value or a list; ``default``, or ``autotune`` for all
            tilings that a version offers its autotuner.
        check: Whether each case is compared with its reference.
        bench_runs: Timed runs.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    name: str = Field("", pattern=rf"^({NAME.pattern})?$", max_length=80)
    mode: Mode = "static"
    versions: list[Word] = Field(min_length=1)
    archs: list[Word] = Field(default_factory=list)
    devices: list[Word] = Field(default_factory=list)
    problems: list[Grid] = Field([{}], min_length=1)
    tilings: dict[Word, Grid] | Literal["default", "autotune"] = "default"
    check: bool = True
    bench_runs: int = Field(50, ge=1, le=100_000)

    @model_validator(mode="before")
    @classmethod
    def _one_grid_is_a_list(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("problems"), dict):
            return {**data, "problems": [data["problems"]]}
        return data

    @field_validator("tilings", mode="before")
    @classmethod
    def _tilings_are_named(cls, data: Any) -> Any:
        if not isinstance(data, dict) and data not in ("default", "autotune"):
            raise ValueError("it is 'default', 'autotune', or a table of each stage's fields")
        return data

    @model_validator(mode="after")
    def _targets(self) -> Self:
        if self.mode == "event" and self.archs:
            raise ValueError("archs: mode event runs on a device, which devices names")
        if self.mode == "event" and len(self.devices) != 1:
            raise ValueError("devices: mode event needs one, that it runs on")
        if self.archs and self.devices:
            raise ValueError("archs and devices: one of them says what to compile for")
        return self


def read(path: Path) -> Spec:
    """The specification in a file.

    Raises:
        InputError: It is not sound; names the field.
    """
    content = inputs.read_toml(path)
    try:
        spec = Spec.model_validate(content)
    except ValidationError as error:
        said = inputs.first_fault(error, "sweep").replace("Value error, ", "")
        raise InputError(f"{path.name}:", " ".join(said.split())) from error
    stem = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-") or "sweep"
    return spec if spec.name else spec.model_copy(update={"name": stem})


def cases_of(spec: Spec, name: str = "sweep") -> list[Case]:
    """All cases, each once; what a version refuses is among them, and its outcome says so.

    Args:
        spec: What to run.
        name: How messages call the file.

    Raises:
        InputError: A version, arch, device, stage or field is not known; names the field.
    """
    with _field(name, "versions"):
        versions = list(dict.fromkeys(v for each in spec.versions for v in _versions(each)))
    with _field(name, "devices"):
        boards = [devices.find(each) for each in spec.devices]
        for board in boards:
            _ = board.compile_arch
    found: dict[str, Case] = {}
    unused = set(spec.tilings) if isinstance(spec.tilings, dict) else set()
    for version in versions:
        with _field(name, "archs"):
            places = list(_places(spec, version, boards))
        with _field(name, "problems"):
            count = sum(math.prod(map(_count, grid.values())) for grid in spec.problems)
            if len(found) + count * len(places) > MOST:
                raise InputError(f"{name}:", f"problems: it has more than {MOST:,} cases")
            problems = [one for grid in spec.problems for one in _problems(version, grid)]
        for problem, place in itertools.product(problems, places):
            with _field(name, "tilings"):
                if unused:
                    unused -= set(version.plan_of(problem).tiling_types)
                tilings = list(_tilings(spec, version, problem))
            for each in tilings:
                case = Case(
                    design=version.qualified, version=version.version, problem=problem,
                    tilings=each, mode=spec.mode, check=spec.check, bench_runs=spec.bench_runs,
                    **place,
                )  # fmt: skip
                found.setdefault(case.key(""), case)
                if len(found) > MOST:
                    raise InputError(f"{name}:", f"it has more than {MOST:,} cases")
    if unused:
        raise InputError(f"{name}:", f"tilings: no version has a stage {min(unused)}")
    return list(found.values())


@contextlib.contextmanager
def _field(name: str, field: str) -> Iterator[None]:
    """What is wrong inside, as a fault of a field of the file."""
    try:
        yield
    except InputError:
        raise
    except HyperMlaError as error:
        raise InputError(f"{name}:", f"{field}: {str(error)[:600]}") from error


def _versions(text: str) -> list[Version]:
    """The versions that ``D``, ``D V`` or ``D@L V`` names."""
    words = text.split()
    if not 1 <= len(words) <= 2:
        raise PlanError(f"{text!r} is not a design, or a design and a version")
    return registry.select(*words)


def _places(
    spec: Spec, version: Version, boards: Sequence[devices.Device]
) -> Iterator[dict[str, str]]:
    """Targets of a version, with the device in mode static."""
    if spec.mode == "event":
        yield from ({"target": board.key} for board in boards)
    elif boards:
        yield from ({"target": board.compile_arch, "device": board.key} for board in boards)
    else:
        spoken = languages.find(version.language)
        if not spoken.archs:
            raise PlanError(f"{version.key} is compiled by nobody here")
        known = spoken.known_archs()
        for arch in spec.archs or spoken.archs:
            if arch not in known:
                raise UnknownNameError("arch", arch, list(known))
            yield {"target": arch}


def _count(values: Any) -> int:
    return len(values) if isinstance(values, list) else 1


def _problems(version: Version, grid: Mapping[str, Any]) -> list[dict[str, Scalar]]:
    """The problems of a grid, whose fields the version has."""
    found = list(product(grid))
    for name, values in grid.items():  # Each value once, since there may be many problems.
        for value in values if isinstance(values, list) else [values]:
            check_minima(version.plan_of({name: value}), PlanError)
    return found


def product(grid: Mapping[str, Any]) -> Iterator[dict[str, Scalar]]:
    """Every choice of one value per field."""
    values = [value if isinstance(value, list) else [value] for value in grid.values()]
    for chosen in itertools.product(*values):
        yield dict(zip(grid, chosen, strict=True))


def _tilings(
    spec: Spec, version: Version, problem: Mapping[str, Scalar]
) -> Iterator[dict[str, dict[str, Scalar]]]:
    """Tilings of a version at a problem, as fields by stage."""
    plan = version.plan_of(problem)
    if spec.tilings == "default":
        yield {}
    elif spec.tilings == "autotune":
        yield from autotuned(plan)
    else:
        stages = {s: g for s, g in spec.tilings.items() if s in plan.tiling_types}
        if not stages:
            raise UnknownNameError("stage", next(iter(spec.tilings)), list(plan.tiling_types))
        for stage, grid in stages.items():
            tiling_fields(plan.tiling_types[stage], stage, grid)
        chosen = [[(stage, one) for one in product(grid)] for stage, grid in stages.items()]
        yield from (dict(each) for each in itertools.product(*chosen))


def tiling_fields(kind: type, stage: str, values: Mapping[str, Any]) -> None:
    """Refuse fields that a tiling does not have, and values that they do not take.

    Raises:
        UnknownNameError: The first such field.
        TilingError: The first such value.
    """
    known = [field.name for field in dataclasses.fields(kind)]
    for name, asked in values.items():
        if name not in known:
            raise UnknownNameError(f"field of the tiling of {stage}", name, known)
        for value in asked if isinstance(asked, list) else [asked]:
            check_kinds(kind, {name: value}, TilingError)


def autotuned(plan: KernelPlan) -> Iterator[dict[str, dict[str, Scalar]]]:
    """The default tilings, then one stage after another as the autotuner would set it."""
    yield {}
    try:
        configs = plan._autotune_configs()
    except HyperMlaError:
        return  # A size that the version does not take: its only case says so.
    for stage, tilings in configs.items():
        for tiling in tilings:
            yield {stage: tiling.values()}
