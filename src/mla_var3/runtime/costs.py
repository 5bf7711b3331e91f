"""Computes a record's FLOPs, bytes and roofline bounds by today's cost models.

A record names its problem and its tilings. FLOPs and bytes follow from those by the version's own
cost model, stage by stage, so a mended model tells of old records too. What the version no longer
says, since it lost the field or the stage that the record names, is not known.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import json
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from mla_var3 import roofline
from mla_var3.devices import Device, load
from mla_var3.errors import DeviceFigureError, HyperMlaError
from mla_var3.evidence import CheckedCase, Passed, Record, Stage
from mla_var3.roofline import Prediction
from mla_var3.runtime import registry
from mla_var3.runtime.kernel import Kernel
from mla_var3.workloads import Cost

Tilings = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Given:
    """Work of a kernel that no version here describes.

    Attributes:
        stages: Work of each stage by its name.
        case: Work of the problem that a CPU ran, where one did.
        dtype: Element type at whose rate a GPU multiplies; that of each record's problem if None.
    """

    stages: Mapping[str, Cost]
    case: Cost | None = None
    dtype: str | None = None

    @property
    def whole(self) -> Cost:
        """Work of all stages."""
        return sum(self.stages.values(), Cost(0, 0))


_GIVEN: ContextVar[Given | None] = ContextVar("given work", default=None)


def is_given() -> bool:
    """Whether the work of records is given, so that no version here is asked."""
    return _GIVEN.get() is not None


@contextlib.contextmanager
def given(work: Given) -> Iterator[None]:
    """Take the work of every record from ``work`` inside the block."""
    token = _GIVEN.set(work)
    try:
        yield
    finally:
        _GIVEN.reset(token)


def cost(record: Record, stage: Stage | None = None) -> Cost | None:
    """FLOPs and DRAM bytes of a record's whole work, the least that it can be, or of one stage.

    Args:
        record: The record.
        stage: One of its stages; the whole by default.

    Returns:
        None for a run that did not pass, and where today's version does not tell.
    """
    if not isinstance(record.outcome, Passed):
        return None
    if (stated := _GIVEN.get()) is not None:
        return stated.whole if stage is None else stated.stages.get(stage.name)
    kernel = record.kernel
    version = f"{kernel.design}@{kernel.language}", kernel.version
    problem = json.dumps(record.problem, sort_keys=True)
    try:
        if stage is None:
            return _whole(*version, problem)
        tilings = {each.name: each.tiling for each in record.outcome.stages}
        device = roofline.device_of(record)
        ran_on = device.key if device is not None else ""
        return _stages(*version, problem, json.dumps(tilings), ran_on).get(stage.name)
    except (HyperMlaError, TypeError, KeyError):  # Old tilings have other fields, old plans types.
        return None


def ways(record: Record) -> tuple[Cost, ...]:
    """Work of each way to do a record's whole work that its problem leaves open."""
    if (stated := _GIVEN.get()) is not None:
        return (stated.whole,)
    kernel = record.kernel
    problem = json.dumps(record.problem, sort_keys=True)
    return _ways(f"{kernel.design}@{kernel.language}", kernel.version, problem)


def of_case(record: Record, case: CheckedCase) -> Cost | None:
    """Work of a problem that a CPU ran to check a record's kernel; None where nobody tells."""
    if (stated := _GIVEN.get()) is not None:
        return stated.case
    kernel = record.kernel
    problem = json.dumps(case.problem, sort_keys=True)
    try:
        return _whole(f"{kernel.design}@{kernel.language}", kernel.version, problem)
    except (HyperMlaError, TypeError, KeyError):
        return None


def plan_of(design: str, version: str, problem: str) -> Any:
    """The plan of a problem given as JSON."""
    return registry.find(design, version).plan_of(json.loads(problem))


@functools.lru_cache(maxsize=8192)
def _whole(design: str, version: str, problem: str) -> Cost:
    found: Cost = plan_of(design, version, problem)._algorithmic_flops_bytes()
    return found


@functools.lru_cache(maxsize=8192)
def _ways(design: str, version: str, problem: str) -> tuple[Cost, ...]:
    return tuple(plan_of(design, version, problem).least_costs())


def kernels(record: Record) -> Mapping[str, Kernel]:
    """Today's kernels of a record's stages under its tilings, by path; empty where unlike."""
    outcome, kernel = record.outcome, record.kernel
    if not isinstance(outcome, Passed):
        return {}
    tilings = {each.name: each.tiling for each in outcome.stages}
    device = roofline.device_of(record)
    try:
        return _kernels(
            f"{kernel.design}@{kernel.language}", kernel.version,
            json.dumps(record.problem, sort_keys=True), json.dumps(tilings),
            device.key if device is not None else "",
        )  # fmt: skip
    except (HyperMlaError, TypeError, KeyError):
        return {}


def _stages(design: str, version: str, problem: str, tilings: str, ran_on: str) -> dict[str, Cost]:
    """Cost of each stage by its path, under the tilings of the record, on its device."""
    found = _kernels(design, version, problem, tilings, ran_on)
    return {path: kernel.cost for path, kernel in found.items()}


@functools.lru_cache(maxsize=8192)
def _kernels(
    design: str, version: str, problem: str, tilings: str, ran_on: str
) -> Mapping[str, Kernel]:
    plan, recorded = plan_of(design, version, problem), json.loads(tilings)
    with contextlib.suppress(DeviceFigureError):  # Its grids are then the reference device's.
        plan = plan.resolve(load(ran_on).machine(plan.dtype)) if ran_on else plan
    stages = plan.plan(*plan.prepare_inputs("meta")).stages()
    other = {
        kernel.name: dataclasses.replace(kernel.tiling, **recorded[path])
        for path, kernel in stages
        if path in recorded and kernel.tiling.values() != recorded[path]
    }
    if other:  # Another split of the keys changes what the combine reads too.
        plan = dataclasses.replace(plan, tilings=other)
        stages = plan.plan(*plan.prepare_inputs("meta")).stages()
    return dict(stages)


def bound(
    record: Record, stage: Stage | None = None, device: Device | None = None
) -> Prediction | None:
    """What no kernel can beat that does a record's whole work, or that of one stage.

    Of the whole it is one for a problem, however its design goes about it: the least over the
    ways that the problem leaves open (``Problem.least_costs``). Designs that keep another cache
    have another problem, and may take less.

    Args:
        record: The record.
        stage: One of its stages; the whole by default.
        device: The device; ``roofline.device_of(record)`` by default.

    Returns:
        None for a run that did not pass, where a rate is UNKNOWN, where the work is not known, and
        where there was none: a stage that looks whether it has anything to do.
    """
    return _at(record, stage, device, bound=True)


def reference(
    record: Record, stage: Stage | None = None, device: Device | None = None
) -> Prediction | None:
    """Reference time of the work: at rates that were attained (``rates.sources``); not a bound."""
    return _at(record, stage, device, bound=False)


def _at(
    record: Record, stage: Stage | None, device: Device | None, *, bound: bool
) -> Prediction | None:
    device = device or roofline.device_of(record)
    if device is None or (found := cost(record, stage)) is None:
        return None
    stated = _GIVEN.get()
    dtype = (stated.dtype if stated else None) or roofline.dtype_of(record)
    rates = roofline.rates_of(device, dtype, bound=bound)
    if rates is None:
        return None
    works = ways(record) if bound and stage is None else (found,)
    made = (
        roofline.predict(work.flops, work.bytes, rates, device.key)
        for work in works
        if work.flops or work.bytes
    )
    return min(made, key=lambda each: each.time_us, default=None)


def fraction(record: Record, stage: Stage | None = None) -> float | None:
    """Share of the bound that a timed run, or one stage of it, reached: 1 is the bound itself."""
    outcome = record.outcome
    if not isinstance(outcome, Passed):
        return None
    duration = stage.duration if stage is not None else outcome.total
    least = bound(record, stage) if duration is not None else None
    return None if duration is None or least is None else least.time_us / duration.median_us
