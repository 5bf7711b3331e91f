"""Runs all clusters of a grid once: in turns, one by one, or over processes."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mla_var3 import forked
from mla_var3.emulator.count import Counts
from mla_var3.emulator.diagnostics import Diagnostic, Reporter
from mla_var3.emulator.machine import Dim3, Machine
from mla_var3.emulator.options import Options
from mla_var3.emulator.program import Program
from mla_var3.emulator.regions import GlobalMemory, Region
from mla_var3.emulator.timeline import Timeline
from mla_var3.emulator.touched import GridBefore, Touched
from mla_var3.emulator.trace import Trace
from mla_var3.emulator.turns import in_turns, resident
from mla_var3.emulator.unused import RacingReads
from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import bits

#: Fewer clusters are not worth a second process.
WORTH_A_PROCESS = 4


@dataclass
class Launch:
    """What a launch gave.

    Attributes:
        kernel: Name of the kernel.
        grid: CTAs per axis.
        block: Threads per axis.
        cluster: CTAs of a cluster per axis.
        diagnostics: Everything that was found.
        counts: What was counted.
        seconds: Wall time.
        clusters: Clusters that ran.
        printed: What the kernel printed.
        timeline: What happened when in the first cluster, if asked for.
        trace: The steps of all warps, where the timeline was asked for.
        grid_before: What it is to a launch that may overlap it.
        reads: Reads that raced, until it is known whether anything uses them.
    """

    kernel: str
    grid: Dim3
    block: Dim3
    cluster: Dim3
    diagnostics: list[Diagnostic]
    counts: Counts
    seconds: float
    clusters: int
    printed: list[str] = field(default_factory=list)
    timeline: Timeline | None = None
    trace: Trace | None = field(default=None, repr=False)
    grid_before: GridBefore | None = field(default=None, repr=False)
    reads: RacingReads | None = field(default=None, repr=False)


def run_once(
    program: Program,
    parameters: bytes,
    shape: tuple[Dim3, Dim3, Dim3, int],
    regions: Mapping[int, Region],
    options: Options,
    before: GridBefore | None,
    reads: RacingReads | None,
) -> Launch:
    """Run a program's clusters, with its parameters packed.

    Args:
        program: The kernel.
        parameters: The block of its parameters.
        shape: CTAs of the grid, threads of a block, CTAs of a cluster, dynamic shared bytes.
        regions: Memory that it may touch, by address.
        options: How to run.
        before: A grid that may still run when this one begins.
        reads: Racing reads, and which bytes they bring; those of this launch are noted without.
    """
    began = time.perf_counter()
    grid, block, cluster, shared = shape
    reporter = Reporter(program.kernel, options.schedule, options.model.name)
    counts = Counts(program, options.counting)
    granule = _granule(program)
    memory_map = GlobalMemory(
        list(regions.values()), reporter, options.model, granule, options.checks, before, reads
    )

    trace = Trace(-(-int(np.prod(block)) // 32)) if options.timeline else None

    machines: list[Machine] = []

    def machine() -> Machine:
        made = Machine(
            program, grid, block, cluster, shared, parameters, memory_map, reporter, options, counts
        )
        made.trace = trace
        machines.append(made)
        return made

    todo = list(_clusters(grid, cluster))[: options.max_clusters]
    memory_map.start()
    jobs = min(options.jobs or os.cpu_count() or 1, len(todo) // WORTH_A_PROCESS)
    printed: list[str] = []
    touched: list[dict[int, Touched]] = []
    first = machine()
    timeline = first.timeline
    if program.spins and len(todo) > 1:
        most = resident(program, block, ctas=int(np.prod(cluster)), shared=shared, options=options)
        in_turns(machine, first, todo, printed, most)
    elif jobs > 1 and not program.claims and trace is None:
        touched = _over_processes(first, todo, jobs, printed)
    else:
        _one_by_one(first, todo, printed)
    for done in machines:
        done.close()
    counts.settle()
    # What happened in other processes is not told here.
    waited = memory_map.board.waited or (bool(touched) and program.waits_for_grid)
    if not touched:
        touched = [{r.base: r.shadow for r in memory_map.regions if r.shadow is not None}]
    return Launch(
        program.kernel.name,
        grid,
        block,
        cluster,
        reporter.diagnostics,
        counts,
        time.perf_counter() - began,
        len(todo),
        printed,
        timeline,
        trace.close() if trace else None,
        GridBefore(program.kernel.name, reporter.site, touched, None if waited else before),
        memory_map.reads,
    )


def _granule(program: Program) -> int:
    """Bytes of the narrowest access of threads to global memory, at most 4."""
    widths = [
        (bits(i.parts[-1]) or 32) // 8
        for i in program.kernel.instructions
        if i.parts[0] in ("ld", "st")
        and not {"shared", "param", "local"} & {p.partition("::")[0] for p in i.parts}
    ]
    return max(1, min([4, *widths]))


def _clusters(grid: Dim3, cluster: Dim3) -> Iterator[Dim3]:
    """Indices of the clusters, x fastest."""
    counts = [g // c for g, c in zip(grid, cluster, strict=True)]
    for z, y, x in itertools.product(*(range(n) for n in counts[::-1])):
        yield (x, y, z)


def _one_by_one(
    machine: Machine, todo: list[Dim3], printed: list[str], start: int = 0, step: int = 1
) -> None:
    waiting = machine.memory_map.waiting
    waiting.extend((number, todo[number]) for number in range(start, len(todo), step))
    while waiting:
        number, index = waiting.popleft()
        machine.start(index, number)
        machine.run()
        printed += machine.printed
        machine.timeline = None  # Of the first cluster only.


def _over_processes(
    machine: Machine, todo: list[Dim3], jobs: int, printed: list[str]
) -> list[dict[int, Touched]]:
    """Independent clusters over forked processes; memory is shared, findings come back."""
    regions = machine.memory_map.regions
    for region in regions:
        region.share()
    machine.lock = forked.FORKS.Lock()
    try:
        pipes = []
        for job in range(jobs):
            ours, theirs = forked.FORKS.Pipe(False)
            process = forked.FORKS.Process(target=_job, args=(machine, todo, job, jobs, theirs))
            process.start()
            theirs.close()
            pipes.append((process, ours))
        results = [_received(process, pipe) for process, pipe in pipes]
    finally:
        for region in regions:
            region.unshare()
    for result in results:
        if isinstance(result, Exception):
            raise result
        machine.reporter.merge(result["diagnostics"])
        machine.counts.take(result["counts"])
        printed += result["printed"]
        if machine.memory_map.reads.fill is None:
            machine.memory_map.reads.merge(result["reads"])
    touched = [r["touched"] for r in results]
    _between(machine, touched)
    return touched


def _received(process: Any, pipe: Any) -> Any:
    try:
        result = pipe.recv()
    except EOFError:
        result = EmulatorError("a process of the emulator died")
    process.join()
    return result


def _job(machine: Machine, todo: list[Dim3], job: int, jobs: int, pipe: Any) -> None:
    forked.end_with_parent()
    printed: list[str] = []
    try:
        _one_by_one(machine, todo, printed, job, jobs)
        touched = {r.base: r.shadow for r in machine.memory_map.regions if r.shadow is not None}
        for shadow in touched.values():
            shadow.settle()
        pipe.send(
            {
                "diagnostics": machine.reporter.diagnostics,
                "counts": machine.counts.plain(),
                "printed": printed,
                "touched": touched,
                "reads": machine.memory_map.reads,
            }
        )
    except Exception as error:  # noqa: BLE001  # Whatever it is, the parent raises it.
        pipe.send(error)
    finally:
        pipe.close()
        os._exit(0)


def _between(machine: Machine, touched: list[dict[int, Touched]]) -> None:
    """Races between clusters that ran in different processes: nothing orders any two of them."""
    g = machine.memory_map
    for mine, other in itertools.permutations(touched, 2):
        for base in mine.keys() & other.keys():
            region = g.find(base)
            if region is not None:
                g.compare(region, mine[base], other[base])
