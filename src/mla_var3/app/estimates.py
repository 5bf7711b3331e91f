"""``conformance -- estimates``: holds times that the emulator's clock gives against measured ones.

Each version runs twice on the CPU, at two small problems that differ along one axis, and both
launches are put on a clock (``emulator.replay``). Cycles of a block are a line through both: what
it takes to begin, and what each further FLOP takes. From that line and the blocks of the measured
problem follows a time. The table holds what the two launches gave; times are worked out when it is
read, since measured ones are those of records.
"""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from mla_var3 import arguments, devices, inputs
from mla_var3.errors import EmulatorError
from mla_var3.evidence import store
from mla_var3.paths import repo_root, write_atomic
from mla_var3.runtime import registry

#: The GPU that the records are of.
DEVICE = "nvidia-h200-sxm"
CASES, TARGET = Path("knowledge/estimates.toml"), Path("results/conformance/estimates.json")


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Case(_Model):
    """Versions of a design at one problem, timed by one run or by none, and the small ones to run.

    Attributes:
        design: As users type it.
        versions: Of the design.
        device: The GPU that the time is of.
        record: The run's file, from the top of the checkout; empty where nothing was measured.
        problem: Name of the measured problem in it.
        fields: The problem's fields, where nothing was measured.
        small: Fields of the small problems.
        axis: The field that grows.
        sizes: Its two values.
        sms: Multiprocessors that persistent launches of the small problems see.
        copies: How many small problems are the measured one, but for the axis.
    """

    design: str
    versions: tuple[str, ...]
    device: str = DEVICE
    record: str = ""
    problem: str
    fields: dict[str, int | bool] = {}
    small: dict[str, int | bool]
    axis: str
    sizes: tuple[int, int]
    sms: int
    copies: int


class Stage(_Model):
    """What a stage's two launches gave on the clock.

    Attributes:
        name: Of the stage.
        blocks: Blocks of the grid.
        cycles: Until the last block is done, per size.
        flops: Of the tensor cores, all blocks together, per size.
    """

    name: str
    blocks: int
    cycles: tuple[float, float]
    flops: tuple[int, int]


class Estimated(_Model):
    """A version at the small problems of a case."""

    design: str
    version: str
    stages: tuple[Stage, ...]


class Table(_Model):
    """All that was run."""

    schema_version: int = 1
    estimated: tuple[Estimated, ...]


@dataclasses.dataclass(frozen=True)
class Estimates:
    """Put versions on a clock, and write the table that the pages compare with records.

    Attributes:
        only: Versions whose name (``design version``) contains this; the rest of the table stays.
        resume: Run what the table lacks.
    """

    only: str = ""
    resume: bool = False


def main(argv: Sequence[str], prog: str) -> int:
    """Entry point of the command."""
    asked: Estimates = arguments.parse(Estimates, argv, prog)
    target = repo_root() / TARGET
    done = {(e.design, e.version): e for e in read(target).estimated} if target.is_file() else {}
    every = {(case.design, v): case for case in reversed(cases()) for v in case.versions}
    for key, case in every.items():
        if asked.only not in " ".join(key) or (asked.resume and key in done):
            continue
        done[key] = run(case, key[1])
        print(f"{' '.join(key)}: {done[key].stages}", flush=True)
        table = Table(estimated=tuple(done[one] for one in sorted(done)))
        write_atomic(target, table.model_dump_json(indent=1) + "\n")
    print(f"wrote {TARGET}")
    return 0


def cases() -> list[Case]:
    """What is to be estimated.

    Raises:
        EmulatorError: The list is not as it should be.
    """
    path = repo_root() / CASES
    with inputs.faults_as(EmulatorError, path.name):
        return [Case.model_validate(one) for one in inputs.read_toml(path)["case"]]


def read(path: Path) -> Table:
    """The table.

    Raises:
        EmulatorError: It cannot be read.
    """
    with inputs.faults_as(EmulatorError, path.name):
        return Table.model_validate_json(path.read_text(encoding="utf-8"))


# -- on the CPU -----------------------------------------------------------------------------------


def run(case: Case, version: str) -> Estimated:
    """Both launches of each stage on the clock."""
    found = registry.find(case.design, version)
    both = [_clocked(found, {**case.small, case.axis: size}, case.sms) for size in case.sizes]
    stages = [
        Stage(name=name, blocks=blocks, cycles=(cycles, more[2]), flops=(flops, more[3]))
        for (name, blocks, cycles, flops), more in zip(*both, strict=True)
    ]
    return Estimated(design=case.design, version=version, stages=tuple(stages))


def _clocked(found: Any, fields: dict[str, Any], sms: int) -> list[tuple[str, int, float, int]]:
    from mla_var3.emulator import Options
    from mla_var3.emulator.replay import Replay
    from mla_var3.languages.cute import emulation

    plan = found.plan_of(fields)
    plan = dataclasses.replace(plan, machine=dataclasses.replace(plan.target, sm_count=sms))
    out, options = [], Options(timeline=True, checks=False)
    for _, stage in plan.plan(*plan.prepare_inputs("cpu")).stages():
        host, values = stage.host()
        outputs = tuple(stage.output_tensors.values())
        _, launched = emulation.emulate(stage.name, host, values, outputs, options)
        blocks, cycles, flops = 0, 0.0, 0
        for launch in launched.launches:
            assert launch.trace is not None  # It was asked for.
            replay = Replay(launch.trace, launch.counts.program.kernel.instructions)
            blocks += launch.grid[0] * launch.grid[1] * launch.grid[2]
            cycles, flops = cycles + replay.end, flops + launch.counts.tensor_flops
        out.append((stage.name, blocks, cycles, flops))
    return out


# -- times ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Compared:
    """A version's times in microseconds: by the clock, the least there is, and as measured."""

    device: str
    design: str
    version: str
    problem: str
    estimated: float
    bound: float
    measured: float | None


def compared(table: Table, listed: Sequence[Case]) -> list[Compared]:
    """Estimated beside measured times, in the order of the cases."""
    known = {(e.design, e.version): e for e in table.estimated}
    out = []
    for case in listed:
        timed = {}
        if case.record:
            every = store.read(repo_root() / case.record).entries
            timed = {e.version: e for e in every if (e.slug, e.mode) == (case.problem, "event")}
        for version in case.versions:
            entry = timed.get(version)
            fields = dict(entry.problem) if entry else case.fields
            plan = registry.find(case.design, version).plan_of(fields)
            times = _times(known[case.design, version], case, plan)
            measured = _median(entry.outcome) if entry else None
            out.append(Compared(case.device, case.design, version, case.problem, *times, measured))
    return out


def _median(outcome: Any) -> float | None:
    total = getattr(outcome, "total", None)  # A run that failed or was left out has none.
    return total.median_us if total else None


def _times(one: Estimated, case: Case, plan: Any) -> tuple[float, float]:
    """By the clock, not below the bytes; and the bound."""
    device, cost = devices.load(case.device), plan._algorithmic_flops_bytes()
    rates = device.bound(plan.dtype)
    memory = cost.bytes / rates.gbps / 1e3
    cycles = sum(cycles_of(stage, case, plan, device.sm_count) for stage in one.stages)
    clocked = cycles / float(device.figure("boost_clock").value)
    return max(clocked, memory), max(memory, cost.flops / rates.tflops / 1e6)


def cycles_of(stage: Stage, case: Case, plan: Any, sms: int) -> float:
    """Cycles of a stage at the measured problem, of a device with so many multiprocessors.

    A grid of as many blocks as there were multiprocessors is persistent; any other one has the
    measured problem's number of blocks, one per multiprocessor at a time.
    """
    if not stage.flops[1]:
        return stage.cycles[1]
    small, large = (f / stage.blocks for f in stage.flops)
    each = (stage.cycles[1] - stage.cycles[0]) / (large - small)
    whole = stage.flops[1] * case.copies * getattr(plan, case.axis) / case.sizes[1]
    blocks = sms if stage.blocks == case.sms else stage.blocks * case.copies
    waves = -(-blocks // sms)
    return waves * (stage.cycles[1] + each * (whole / blocks - large))


def correlation(pairs: Sequence[tuple[float, float]]) -> float:
    """Spearman's: how far two series agree on the order."""
    return statistics.correlation(*(_ranks(series) for series in zip(*pairs, strict=True)))


def _ranks(values: Sequence[float]) -> list[float]:
    """Places in the order; equal values share the mean of theirs."""
    return [
        sum(other < value for other in values) + (sum(other == value for other in values) + 1) / 2
        for value in values
    ]
