"""Kernel launch in the emulator: runs a grid of PTX, returns diagnostics, counts and prints.

``launch`` takes a PTX text and numpy arrays; ``run`` takes a lowered program and packed parameters.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3 import forked
from mla_var3.collecting import unsearched
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
from mla_var3.gpuless.ptx import bits, parse

MOST_THREADS = 1024
MOST_GRID = (2**31 - 1, 65535, 65535)
MOST_CLUSTER = 16
#: What a CTA may have of shared memory: opt-in maximum of sm_90 and its system kilobyte.
MOST_SHARED = 232448
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


def dim3(size: int | Sequence[int]) -> Dim3:
    """One to three extents as three."""
    values = [size] if isinstance(size, int) else list(size)
    x, y, z = (*values, 1, 1, 1)[:3]
    return (int(x), int(y), int(z))


def pack(program: Program, arguments: Sequence[Any]) -> bytes:
    """Arguments as a block of parameters.

    Args:
        program: The kernel.
        arguments: Per parameter an array (its address is passed), bytes, an int or a float.

    Raises:
        EmulatorError: There are too many or too few, or one has the wrong size.
    """
    expected = program.kernel.parameters
    if len(arguments) != len(expected):
        raise EmulatorError(
            f"kernel {program.kernel.name} takes {len(expected)} arguments, and "
            f"{len(arguments)} are given"
        )
    block = bytearray(program.kernel.parameter_bytes)
    for p, value in zip(expected, arguments, strict=True):
        raw = _raw(value, p.size)
        if len(raw) != p.size:
            raise EmulatorError(
                f"argument {p.name} has {len(raw)} bytes, and {p.size} are expected"
            )
        block[p.offset : p.offset + p.size] = raw
    return bytes(block)


def _raw(value: Any, size: int) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, np.ndarray):
        value = value.ctypes.data
    if isinstance(value, float):
        return np.float32(value).tobytes() if size == 4 else np.float64(value).tobytes()
    if isinstance(value, np.generic):
        return value.tobytes()
    return (int(value) & (1 << 8 * size) - 1).to_bytes(size, "little")


def region_of(array: NDArray[Any], label: str = "", unwritten: bool = False) -> Region:
    """The memory of a numpy array."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    name = label or f"{tuple(array.shape)} {array.dtype}"
    region = Region(int(base.ctypes.data), max(int(base.nbytes), 1), name, unwritten)
    region.owner = array
    return region


def launch(
    ptx: str | Program,
    arguments: Sequence[Any],
    grid: int | Sequence[int] = 1,
    block: int | Sequence[int] = 32,
    *,
    kernel: str | None = None,
    cluster: int | Sequence[int] = 1,
    shared: int = 0,
    regions: Sequence[Region] = (),
    unwritten: Sequence[NDArray[Any]] = (),
    options: Options | None = None,
    after: Launch | None = None,
) -> Launch:
    """Run a kernel of a PTX text on numpy arrays.

    Args:
        ptx: PTX text, or a program made of one.
        arguments: Per parameter an array, bytes (a tensor map), an int or a float.
        grid: CTAs per axis.
        block: Threads per axis.
        kernel: Name of the kernel where the text has several.
        cluster: CTAs of a cluster per axis.
        shared: Bytes of dynamic shared memory.
        regions: Memory that the kernel may touch beyond the arrays among ``arguments``.
        unwritten: Arrays that hold nothing yet: reading them before a write is reported.
        options: How to run.
        after: A launch that may still run when this one begins (programmatic stream serialization):
            what it touched is there past ``griddepcontrol.wait``.

    Raises:
        EmulatorError: The launch is not possible, or the kernel meets what is not emulated.
    """
    program = ptx if isinstance(ptx, Program) else Program(parse(ptx), kernel)
    fresh = {id(a) for a in unwritten}
    arrays = {id(a): a for a in [*arguments, *unwritten] if isinstance(a, np.ndarray) and a.nbytes}
    mine = [region_of(a, unwritten=i in fresh) for i, a in arrays.items()]
    block_ = pack(program, arguments)
    return run(
        program,
        block_,
        dim3(grid),
        dim3(block),
        dim3(cluster),
        shared,
        [*regions, *mine],
        options or Options(),
        after,
    )


def run(
    program: Program,
    parameters: bytes,
    grid: Dim3,
    block: Dim3,
    cluster: Dim3,
    shared: int,
    regions: Sequence[Region],
    options: Options,
    after: Launch | None = None,
) -> Launch:
    """Run a program with its parameters packed; see ``launch``."""
    _possible(program, grid, block, cluster, shared)
    every = {r.base: r for r in [*_variables(program), *regions]}

    def once(how: Options, reads: RacingReads | None = None) -> Launch:
        overlapped = after.grid_before if after is not None else None
        shape = (grid, block, cluster, shared)
        with unsearched():
            return _once(program, parameters, shape, every, how, overlapped, reads)

    excused = options.checks and options.model.unused_reads and options.stop is None
    before = _contents(every) if excused else None
    done = once(options)
    reads, done.reads = done.reads, None  # They take memory.
    if before is None or any(d.kind == "deadlock" for d in done.diagnostics):
        return done  # What it never came to leave behind says nothing of what was read.
    if any(map(_is_unwritten_read, done.diagnostics)):
        fills = [(replace(options, fill=fill), None) for fill in FILLS]
        if _the_same(once, fills, every, before, done) is not None:
            done.diagnostics = [d for d in done.diagnostics if not _is_unwritten_read(d)]
    if reads is not None and reads.excusable:
        others = [(options, replace(reads, fill=fill)) for fill in FILLS]
        again = _the_same(once, others, every, before, done)
        if again is not None:  # Races are left that are not of such reads.
            rest = [d for d in done.diagnostics if d.kind != RACE]
            done.diagnostics = rest + [d for d in again.diagnostics if d.kind == RACE]
    return done


#: Bytes of memory above which a launch is not run again to learn what a read does to it.
MOST_KEPT = 1 << 28
#: Other bytes that may have been read: in floats a large number, and NaN.
FILLS = (0x7B, 0xFF)
RACE = "global-race"
Contents = list[tuple[bytes, NDArray[np.bool_] | None]]


def _variables(program: Program) -> list[Region]:
    return [
        Region(int(a.ctypes.data), a.nbytes, f"variable {n}") for n, a in program.storage.items()
    ]


def _contents(regions: Mapping[int, Region]) -> Contents | None:
    """What memory holds, and what of it is known; None where that is too much to keep."""
    if sum(r.size for r in regions.values()) > MOST_KEPT:
        return None
    return [
        (r.data.tobytes(), None if r.known is None else r.known.copy()) for r in regions.values()
    ]


def _put_back(regions: Mapping[int, Region], contents: Contents) -> None:
    for region, (data, known) in zip(regions.values(), contents, strict=True):
        region.data[:] = np.frombuffer(data, np.uint8)
        region.known = known


def _is_unwritten_read(d: Diagnostic) -> bool:
    return d.kind == "uninitialized-read" and d.message.startswith("shared ")


def _the_same(
    once: Callable[[Options, RacingReads | None], Launch],
    ways: Sequence[tuple[Options, RacingReads | None]],
    regions: Mapping[int, Region],
    before: Contents,
    done: Launch,
) -> Launch | None:
    """The launch with other bytes where it reads; None where it leaves something else behind."""
    after = _contents(regions)
    assert after is not None
    left, again = [data for data, _ in after], None
    try:
        for options, reads in ways:
            _put_back(regions, before)
            again = once(replace(options, counting="off", timeline=False), reads)
            now = [r.data.tobytes() for r in regions.values()]
            if (now, again.printed) != (left, done.printed):
                return None
    except EmulatorError:
        return None
    finally:
        _put_back(regions, after)
    return again


def _once(
    program: Program,
    parameters: bytes,
    shape: tuple[Dim3, Dim3, Dim3, int],
    regions: Mapping[int, Region],
    options: Options,
    before: GridBefore | None,
    reads: RacingReads | None,
) -> Launch:
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
        GridBefore(program.kernel.name, reporter.site, touched),
        memory_map.reads,
    )


def _possible(program: Program, grid: Dim3, block: Dim3, cluster: Dim3, shared: int) -> None:
    """Refuse a launch that no GPU would take."""
    threads, ctas = int(np.prod(block)), int(np.prod(cluster))
    if not 1 <= threads <= MOST_THREADS:
        raise EmulatorError(
            f"a block of {block} has {threads} threads; 1 to {MOST_THREADS} are allowed"
        )
    if any(not 1 <= g <= most for g, most in zip(grid, MOST_GRID, strict=True)):
        raise EmulatorError(f"a grid of {grid} is outside of 1 to {MOST_GRID}")
    if not 1 <= ctas <= MOST_CLUSTER:
        raise EmulatorError(
            f"a cluster of {cluster} has {ctas} CTAs; 1 to {MOST_CLUSTER} are allowed"
        )
    if any(g % c for g, c in zip(grid, cluster, strict=True)):
        raise EmulatorError(f"a grid of {grid} does not divide into clusters of {cluster}")
    static = program.static_shared - 0x400
    if not 0 <= shared <= MOST_SHARED - static:
        raise EmulatorError(
            f"{static} + {shared} bytes of shared memory are asked for; {MOST_SHARED} are allowed"
        )
    if program.kernel.threads and int(np.prod(program.kernel.threads)) != threads:
        raise EmulatorError(
            f"kernel {program.kernel.name} requires {program.kernel.threads} threads, and "
            f"{block} are launched"
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
    context = multiprocessing.get_context("fork")
    regions = machine.memory_map.regions
    for region in regions:
        region.share()
    machine.lock = context.Lock()
    try:
        pipes = []
        for job in range(jobs):
            ours, theirs = context.Pipe(False)
            process = context.Process(target=_job, args=(machine, todo, job, jobs, theirs))
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
