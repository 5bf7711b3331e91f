"""Computes FLOPs and bytes for Step 0: from a version's cost model, or counted on adopted files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from mla_var3.campaign import absent, adopted
from mla_var3.campaign.stepzero import Work
from mla_var3.devices import Device
from mla_var3.errors import PlanError
from mla_var3.evidence import Scalar
from mla_var3.runtime.registry import Version


def of_version(version: Version, problem: Mapping[str, Scalar], device: Device) -> Work:
    """The work of a version at a problem, sizes that are left open chosen for the device."""
    plan = version.plan_of(problem)
    if device.is_compile_target:
        plan = plan.resolve(device.machine(plan.dtype))
    plan.validate()
    least = min(plan.least_costs(), key=lambda cost: (cost.flops, cost.bytes))
    return Work(version.key, dict(plan.problem()), plan.dtype, least, "its cost model")


def of_file(path: Path, sizes: Mapping[str, Scalar]) -> Work:
    """The work of an adopted file, which is run and checked for it where its language is installed.

    Raises:
        PlanError: It is wrong.
    """
    if path.is_file() and absent.language_of(path):
        problem, dtype, cost, source = absent.work_of(path, sizes)
        return Work(path.name, dict(problem), dtype, cost, source)
    found = adopted.adopt(path)
    checked = found.check(sizes)
    if checked.wrong:
        raise PlanError(f"{path} is wrong, so that its work says nothing: {checked.wrong}")
    source = f"{checked.counted or 'no FLOP counted'}, and the bytes of its inputs and outputs"
    return Work(path.name, dict(checked.problem), checked.dtype, checked.cost, source)
