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
    """Versions of a design that one run has timed at one problem, and the small ones to run.

    Attributes:
        design: As users type it.
        versions: Of the design.
        record: The run's file, from the top of the checkout.
        problem: Name of the measured problem in it.
        small: Fields of the small problems.
        axis: The field that grows.
        sizes: Its two values.
        sms: Multiprocessors that persistent launches of the small problems see.
        copies: How many small problems are the measured one, but for the axis.
    """

    design: str
    versions: tuple[str, ...]
    record: str
    problem: str
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
    problem: str
    stages: tuple[Stage, ...]


class Table(_Model):
    """All that was run, and on which device's clock."""

    schema_version: int = 1
    device: str
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
    every = [(case, version) for case in cases() for version in case.versions]
    for case, version in every:
        key = case.design, version
        if asked.only not in " ".join(key) or (asked.resume and key in done):
            continue
        done[key] = run(case, version)
        print(f"{case.design} {version}: {done[key].stages}", flush=True)
        kept = [done[c.design, v] for c, v in every if (c.design, v) in done]
        table = Table(device=DEVICE, estimated=tuple(kept))
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
    return Estimated(
        design=case.design, version=version, problem=case.problem, stages=tuple(stages)
    )


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
            replay = Replay(launch.trace, launch.counts.program.kernel.instructions)
            blocks += launch.grid[0] * launch.grid[1] * launch.grid[2]
            cycles, flops = cycles + replay.end, flops + launch.counts.tensor_flops
        out.append((stage.name, blocks, cycles, flops))
    return out


# -- times ----------------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Compared:
    """A version's times in microseconds: by the clock, as measured, and the least there is."""

    design: str
    version: str
    problem: str
    estimated: float
    measured: float
    bound: float


def compared(table: Table, listed: Sequence[Case]) -> list[Compared]:
    """Estimated beside measured times, in the order of the cases."""
    known = {(e.design, e.version): e for e in table.estimated}
    device, out = devices.load(table.device), []
    clock = device.figure("boost_clock").value
    for case in listed:
        run_of = store.read(repo_root() / case.record)
        timed = [e for e in run_of.entries if (e.slug, e.mode) == (case.problem, "event")]
        entries = {entry.version: entry for entry in timed}
        for version in case.versions:
            entry, one = entries[version], known[case.design, version]
            plan = registry.find(case.design, version).plan_of(dict(entry.problem))
            cost = plan._algorithmic_flops_bytes()
            rates = device.bound(plan.dtype)
            memory = cost.bytes / rates.gbps / 1e3
            cycles = sum(cycles_of(stage, case, plan, device.sm_count) for stage in one.stages)
            clocked = cycles / clock
            out.append(
                Compared(
                    case.design, version, case.problem, max(clocked, memory),
                    entry.outcome.total.median_us, max(memory, cost.flops / rates.tflops / 1e6),
                )
            )  # fmt: skip
    return out


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
