"""Checks for ``records verify`` that a record's tolerance, launch and resources are possible.

Each function returns faults: of a tolerance that the workload does not give, of stages or tilings
that the version refuses, of clocks or resources beyond the device or arch.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from mla_var3 import devices, roofline
from mla_var3.errors import DeviceFigureError, HyperMlaError, UnknownNameError
from mla_var3.evidence import Passed, Record, StaticFacts, revisions
from mla_var3.evidence.states import case_of
from mla_var3.languages import fingerprints
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version
from mla_var3.workloads.observing import name_of, problem_of

#: Most threads of a block on every arch (CUDA programming guide, "Compute Capabilities").
BLOCK_THREADS = 1024
#: How far above its published boost clock and power a device may be: committed records are at 1.0
#: times the clock at most, and at 1.09 times the power in windows of a second. The counter of
#: energy moves in steps, which are a larger share of a shorter window: 1.21 times in half a second.
CLOCK_ROOM, POWER_ROOM, POWER_WINDOW_S = 1.05, 1.2, 1.0


def unlike_the_workload(record: Record, version: Version) -> Iterator[str]:
    """A tolerance that its workload does not give, or a small check of another problem.

    Args:
        record: A record of today's code and workload.
        version: Its version.
    """
    outcome = record.outcome
    if not isinstance(outcome, Passed) or (checked := outcome.correctness) is None:
        return
    try:
        plans = [version.plan_of(case.problem) for case in checked.cases]
    except HyperMlaError as error:
        yield f"its check is of a problem that {version.key} does not take: {error}"
        return
    given = {value for plan in plans for value in tolerances(plan)}
    if given and checked.tolerance not in given:
        told = ", ".join(f"{value:g}" for value in sorted(given))
        yield f"its tolerance is {checked.tolerance:g}, and its workload gives {told}"
    if record.is_static:
        small = version.plan_of(record.problem).shrunk().problem()
        if any(case.problem not in (small, record.problem) for case in checked.cases):
            yield (
                f"its check is not of {version.plan_of(small).slug()}, its problem made small, nor "
                "of its problem"
            )


def tolerances(plan: KernelPlan) -> set[float]:
    """What the outputs of a problem may err by over the whole; empty where that is not observed."""
    return {plan.tolerance(name).whole for name in _outputs(name_of(problem_of(type(plan))))}


@functools.cache
def _outputs(problem: str) -> tuple[str, ...]:
    known = revisions.read(revisions.path_of()).problems.get(problem, ())
    return tuple({name for one in known[-1].observed for name in one.tolerance} if known else ())


def unlike_the_launch(record: Record, version: Version) -> Iterator[str]:
    """Stages that the version does not launch, or tilings that it refuses.

    Args:
        record: A record of today's code.
        version: Its version.
    """
    if (case := case_of(record)) is None or not isinstance(record.outcome, Passed):
        return
    try:
        launched = [stage for stage, _ in fingerprints.bound(version, case).stages()]
    except HyperMlaError as error:
        yield f"{version.key} does not launch it: {error}"
        return
    stated = [stage.name for stage in record.outcome.stages]
    if stated != launched:
        yield f"its stages are {', '.join(stated)}, and {version.key} has {', '.join(launched)}"


def beyond_the_device(record: Record) -> Iterator[str]:
    """A clock or power that its device does not reach."""
    device = roofline.device_of(record)
    if device is None or record.device is None:
        return
    energy = record.outcome.energy if isinstance(record.outcome, Passed) else None
    rows = [("boost_clock", "MHz", record.device.sm_clock_mhz, CLOCK_ROOM)]
    if energy is not None:
        rows.append(("boost_clock", "MHz", energy.sm_clock_mhz, CLOCK_ROOM))
        window_s = energy.launches * energy.launch_us * 1e-6
        room = 1 + (POWER_ROOM - 1) * max(POWER_WINDOW_S / window_s, 1.0)
        rows.append(("tdp", "W", energy.watts, room))
    for metric, unit, stated, room in rows:
        # A device may have a clock for each kind of operation, and a record does not say which ran.
        known = [one.value for one in device.figures if one.metric == metric and one.is_number]
        if not known or stated is None:
            continue
        if stated > (most := max(float(value) for value in known) * room):
            yield f"it states {stated:g} {unit}, and {device.key} reaches {most:g} at most"


def beyond_the_arch(record: Record) -> Iterator[str]:
    """Registers, threads or shared memory that a block of its arch cannot have."""
    if isinstance(record.outcome, Passed):
        for facts in record.outcome.facts:
            if facts.ok:
                yield from _beyond(facts, roofline.device_of(record))


def _beyond(facts: StaticFacts, device: devices.Device | None) -> Iterator[str]:
    try:
        device = device or devices.default_for_arch(facts.arch)
        limits = device.sm_limits()
    except (UnknownNameError, DeviceFigureError):
        return
    rows = (
        ("registers per thread", facts.registers, limits.registers_per_thread),
        ("threads per block", facts.threads_per_block, BLOCK_THREADS),
        (
            "bytes of shared memory per block",
            facts.shared_bytes,
            limits.shared_memory_per_block_max,
        ),
        (
            "registers per block",
            facts.registers * facts.threads_per_block,
            limits.registers_per_sm,
        ),
    )
    for what, stated, most in rows:
        if stated > most:
            yield f"{facts.kernel} has {stated} {what}, and {facts.arch} at most {most}"
