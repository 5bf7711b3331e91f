"""Rebuilds the runtime object of a record's problem and tilings from today's sources."""

from __future__ import annotations

from collections.abc import Mapping

from generators.model import targets
from generators.model.run import Run
from mla_var3.errors import HyperMlaError
from mla_var3.runtime import RuntimeObject
from mla_var3.runtime.kernel import Kernel
from mla_var3.runtime.registry import Version


def bound(version: Version, run: Run) -> RuntimeObject | None:
    """What the record's plan launches, without memory behind it.

    Returns:
        None where today's plan takes other sizes or tilings than the record has.
    """
    assert run.outcome is not None
    device = targets.device_of(run.record.target)
    try:
        plan = version.plan_of(run.record.problem)
        machine = device.machine(plan.dtype) if device else plan.target
        plan = plan.resolve(machine)
        made = plan.plan_empty(machine.tflops, machine.gbps)
        kernels = dict(made.stages())
        for stage in run.outcome.stages:
            kernel = kernels[stage.name]
            kernel.tiling = type(kernel.tiling)(**stage.tiling)
    except (HyperMlaError, TypeError, KeyError):
        return None  # An old record may name what the plan has no more.
    return made


def kernels(version: Version, run: Run) -> Mapping[str, Kernel]:
    """The kernels of ``bound`` by stage; empty where there is none."""
    made = bound(version, run)
    return dict(made.stages()) if made else {}
