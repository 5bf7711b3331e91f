"""Estimates the slowdown factor of each cause (idle SMs, spills, ...) from a record's facts.

A factor says how many times longer the launch takes than it would without the cause, by the
roofline of the device. 1 is no loss. A cause that the facts do not decide has no factor. The
catalog of metrics offers them to triggers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mla_var3 import languages, roofline
from mla_var3.devices import Device
from mla_var3.errors import DeviceFigureError
from mla_var3.evidence import CheckedCase, Passed, Record, Stage, StaticFacts
from mla_var3.runtime import costs
from mla_var3.static import sass
from mla_var3.static.occupancy import of_facts
from mla_var3.workloads import workloads
from mla_var3.workloads.base import DTYPES

#: Instructions of dependent launches: the next kernel's blocks start while this one's still run.
_DEPENDENT = frozenset({"ACQBULK", "PREEXIT"})
#: Tiles of all languages divide it; a problem whose axes are multiples of it wastes no padding.
_WHOLE = 128
#: Share of a launch's instructions that touch local memory, per factor of time. Four steps of the
#: project's own history, of which nothing but the spills changed: 17 to 23 % of the instructions
#: spilled and the kernel took 4.5 to 5.6 times as long.
_SPILL_WEIGHT = 18.0
#: Loss by loads that nothing counted, below which it may be none: Hopper's L2 is taken for A100's.
_FAR = 1.3
#: Bytes that the L2 delivers per clock (NVIDIA A100 Tensor Core GPU Architecture, "L2 cache read
#: bandwidth"); Hopper's is not published and taken to be no less.
_L2_BYTES_PER_CLOCK: Mapping[str, int] = {"sm_80": 5120, "sm_90": 5120}


# -- launches -------------------------------------------------------------------------------------


def grid(record: Record, stage: Stage) -> tuple[int, ...]:
    """The launch grid: as recorded, else as today's version with the same tiling gives it."""
    if stage.grid or costs.is_given():
        return tuple(stage.grid)
    kernel = costs.kernels(record).get(stage.name)
    return () if kernel is None else tuple(languages.find(kernel.language).grid(kernel))


def blocks_at_once(record: Record, stage: Stage) -> int | None:
    """Blocks of a stage and of those that run beside it."""
    grids = [found for other in _beside(record, stage) if (found := grid(record, other))]
    return sum(math.prod(each) for each in grids) or None


def _beside(record: Record, stage: Stage) -> Sequence[Stage]:
    """Stages of one group, or all where launches overlap."""
    stages = record.outcome.stages if isinstance(record.outcome, Passed) else []
    mixes = (s.static.instruction_mix for s in stages if s.static is not None)
    if len(stages) > 1 and any(_DEPENDENT & mix.keys() for mix in mixes):
        return stages
    group, dot, _ = stage.name.rpartition(".")
    return [s for s in stages if s.name.startswith(f"{group}.")] if dot else [stage]


def idle(record: Record, stage: Stage) -> float | None:
    """Time of the busiest multiprocessor over that of an even share."""
    device, blocks = roofline.device_of(record), blocks_at_once(record, stage)
    if device is None or blocks is None:
        return None
    try:
        even = blocks / device.sm_count
    except DeviceFigureError:
        return None
    return math.ceil(even) / even


def merging(record: Record, stage: Stage) -> float | None:
    """Time of a stage of products and of the stage that merges its parts, over that with fewer.

    Parts beyond one full wave of blocks only add partial results, which the one stage writes and
    the other reads. 1 where the blocks are no more than a wave, None where nothing is merged.
    """
    outcome = record.outcome
    stages = outcome.stages if isinstance(outcome, Passed) else []
    place = next((i for i, other in enumerate(stages) if other.name == stage.name), 0)
    facts, device = _facts(stage), roofline.device_of(record)
    if not place or facts is None or facts.mma_path != "none" or device is None:
        return None
    parts = stages[place - 1]
    held, blocks = of_facts(_facts(parts)), math.prod(grid(record, parts))
    one, merged = costs.bound(record, parts), costs.bound(record, stage)
    if held is None or not held.blocks_per_sm or not blocks or one is None or merged is None:
        return None
    try:
        waves = blocks / (device.sm_count * held.blocks_per_sm)
    except DeviceFigureError:
        return None
    spared = merged.memory_us * (1 - 1 / max(1.0, waves))
    before = max(one.compute_us, one.memory_us) + merged.memory_us
    after = max(one.compute_us, one.memory_us - spared) + merged.memory_us - spared
    return before / after if after else None


def covered(record: Record, stage: Stage) -> float | None:
    """Multiprocessors that get a block, over all of them."""
    device, blocks = roofline.device_of(record), blocks_at_once(record, stage)
    if device is None or blocks is None:
        return None
    try:
        return min(1.0, blocks / device.sm_count)
    except DeviceFigureError:
        return None


def outputs_per_block(record: Record, stage: Stage) -> float | None:
    """Elements of the result over blocks, those of launches side by side together."""
    workload, blocks = workloads().get(record.kernel.layer), blocks_at_once(record, stage)
    if workload is None or blocks is None:
        return None
    try:
        found = workload.outputs(record.problem)
    except (KeyError, TypeError):
        return None
    return None if found is None else found / blocks


# -- work -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ratios:
    """What a run on the CPU counted over what the cost model asks for.

    Attributes:
        flops: Matrix FLOPs.
        loaded: Bytes that loads asked for; at least 1, since some are read from cache again.
        intensity: FLOPs per byte loaded.
    """

    flops: float
    loaded: float
    intensity: float


def counted(record: Record) -> Ratios | None:
    """Counts of a run whose tiles were filled as those of the record's problem are."""
    outcome = record.outcome
    if not isinstance(outcome, Passed) or outcome.correctness is None:
        return None
    for case in outcome.correctness.cases:
        if case.mma_flops and case.bytes_loaded and alike(record, case):
            least = costs.of_case(record, case)
            if least is not None and least.flops and least.bytes:
                return Ratios(
                    case.mma_flops / least.flops,
                    case.bytes_loaded / least.bytes,
                    case.mma_flops / case.bytes_loaded,
                )
    return None


def alike(record: Record, case: CheckedCase) -> bool:
    """Whether a smaller problem fills tiles as the record's does.

    Axes along which whole tiles repeat may be shorter; the others decide how full a tile is.
    """
    workload = workloads().get(record.kernel.layer)
    repeats = workload.repeats(record.problem) if workload is not None else {}
    for axis, whole in record.problem.items():
        part = case.problem.get(axis)
        if part == whole:
            continue
        if axis not in repeats or not isinstance(part, int) or not isinstance(whole, int):
            return False
        if repeats[axis] and (part % _WHOLE or whole % _WHOLE):
            return False
    return True


def wasted_flops(record: Record, stage: Stage) -> float | None:
    """Time with the FLOPs that ran over time with those that are needed."""
    found, ratios = costs.bound(record), counted(record)
    if found is None or ratios is None:
        return None
    spent = max(found.compute_us * ratios.flops, found.memory_us)
    return max(1.0, spent / max(found.compute_us, found.memory_us))


#: Rows below which cuTile multiplies on CUDA cores, whatever the elements.
_LEAST_ROWS = 16
_TF32 = ".TF32"


def wide_operands(record: Record, stage: Stage) -> bool | None:
    """Whether products read wider elements than the problem's 16 bits.

    TF32 stands in the name of the instruction. fp32 leaves CUDA cores, which with 16 rows or more
    and elements of 16 bits has no other cause.
    """
    facts, rows = _facts(stage), stage.tiling.get("tile_m")
    if facts is None or facts.mma_path == "none":
        return None
    if record.problem.get("dtype") not in DTYPES:
        return False
    on_cores = "FMA" in facts.mma_path and isinstance(rows, int) and rows >= _LEAST_ROWS
    return on_cores or any(_TF32 in opcode for opcode in facts.mma_instructions)


def mma_path(record: Record, stage: Stage) -> float | None:
    """Time on the matrix instructions that the compiler chose over time on the fast ones.

    TF32 has half the rate of 16 bits (NVIDIA H100 and A100 whitepapers).
    """
    facts, found = _facts(stage), costs.bound(record, stage)
    if facts is None or facts.mma_path == "none":
        return None
    rate = sass.rate(facts.mma_path, facts.arch)
    if rate is None:
        return None
    if wide_operands(record, stage) and "FMA" not in facts.mma_path:
        rate /= 2
    if found is None:
        return 1 / rate
    return max(found.compute_us / rate, found.memory_us) / max(found.compute_us, found.memory_us)


def spills(record: Record, stage: Stage) -> float | None:
    """Time with register spills over time without."""
    facts = _facts(stage)
    if facts is None or not facts.instructions:
        return None
    return 1 + _SPILL_WEIGHT * facts.spill_instructions / facts.instructions


def loads(record: Record, stage: Stage) -> float | None:
    """Time of the loads through the L2 over the time that the work takes at attained rates."""
    device, ratios = roofline.device_of(record), counted(record) or _by_tile(record, stage)
    found, top = costs.reference(record), costs.bound(record)
    if device is None or ratios is None or found is None or top is None:
        return None
    per_clock = _L2_BYTES_PER_CLOCK.get(device.sm or "")
    clock = _clock_hz(device)
    if per_clock is None or clock is None:
        return None
    loaded = found.flops * ratios.flops / ratios.intensity
    least = max(found.compute_us * ratios.flops, found.memory_us)
    loss = loaded / (per_clock * clock) * 1e6 / least
    counted_or_far = not math.isnan(ratios.loaded) or loss >= _FAR
    return max(1.0, loss) if counted_or_far else 1.0


def _by_tile(record: Record, stage: Stage) -> Ratios | None:
    """Counts of a kernel alone whose blocks load each operand of their tile once.

    None where blocks of a cluster may share loads, and where its tiling or problem does not tell.
    """
    facts, workload = _facts(stage), workloads().get(record.kernel.layer)
    stages = record.outcome.stages if isinstance(record.outcome, Passed) else []
    rows, columns = stage.tiling.get("tile_m"), stage.tiling.get("tile_n")
    if facts is None or facts.blocks_per_cluster > 1 or len(stages) != 1 or workload is None:
        return None
    if not isinstance(rows, int) or not isinstance(columns, int):
        return None
    try:
        intensity = workload.tile_intensity(record.problem, rows, columns)
    except (KeyError, TypeError):
        return None
    return None if not intensity else Ratios(1.0, math.nan, intensity)


def reloads(record: Record, stage: Stage) -> float | None:
    """Times that a block loads each operand: what its tile allows over what was counted."""
    workload, ratios = workloads().get(record.kernel.layer), counted(record)
    rows, columns = stage.tiling.get("tile_m"), stage.tiling.get("tile_n")
    if workload is None or ratios is None or not isinstance(rows, int):
        return None
    least = workload.tile_intensity(
        record.problem, rows, columns if isinstance(columns, int) else rows
    )
    return None if least is None else least / ratios.intensity


#: Bytes that an SM's shared memory delivers per clock, and its dense FLOPs of 16 bits per clock
#: (NVIDIA H100 Tensor Core GPU Architecture whitepaper).
_SHARED_BYTES, _SHARED_FLOPS = 128, 4096
_WGMMA = re.compile(r"HGMMA\.(\d+)x(\d+)x(\d+)\.")
_HALF = 2


def shared_bytes_per_flop(facts: StaticFacts) -> float | None:
    """Bytes of shared memory that products read per FLOP; None unless all are warpgroup products.

    A warpgroup's product of M by N by K reads its M by K and N by K operands. Where M's comes from
    registers it reads less, so this is the most that it can be.
    """
    flops = read = 0
    for opcode, count in facts.mma_instructions.items():
        if (shape := _WGMMA.match(opcode)) is None:
            return None
        m, n, k = (int(extent) for extent in shape.groups())
        flops += count * 2 * m * n * k
        read += count * _HALF * k * (m + n)
    return read / flops if flops else None


def shared(record: Record, stage: Stage) -> float | None:
    """Time of the operands' way out of shared memory over that of the products."""
    facts = _facts(stage)
    read = None if facts is None else shared_bytes_per_flop(facts)
    return None if read is None else max(1.0, read * _SHARED_FLOPS / _SHARED_BYTES)


#: Rows of a warpgroup's product; fewer rows of the problem leave the others empty.
_MMA_ROWS = 64


def thin(record: Record, stage: Stage) -> float | None:
    """Time with the rows of a warpgroup's product as full as the problem has rows, over full ones.

    None where the rows fill it, and where they lie on its columns, of which it then has few.
    """
    facts, found = _facts(stage), costs.bound(record, stage)
    workload = workloads().get(record.kernel.layer)
    rows = workload.sharing(record.problem) if workload else None
    if facts is None or found is None or not rows or rows >= _MMA_ROWS:
        return None
    shapes = [_WGMMA.match(opcode) for opcode in facts.mma_instructions]
    columns = [int(shape[2]) for shape in shapes if shape is not None]
    if not columns or max(columns) < _MMA_ROWS:
        return None
    padded = found.compute_us * _MMA_ROWS / rows
    return max(padded, found.memory_us) / max(found.compute_us, found.memory_us)


def _clock_hz(device: Device) -> float | None:
    try:
        return device.figure("boost_clock").normalised * 1e6
    except DeviceFigureError:
        return None


def serial(record: Record, stage: Stage) -> float | None:
    """Time of stages one after the other over that of the same stages side by side.

    Side by side they take as long as the longest of them, and no less than their bounds together.
    """
    outcome = record.outcome
    if not isinstance(outcome, Passed) or outcome.total is None or len(outcome.stages) < 2:
        return None
    times = [s.duration.median_us for s in outcome.stages if s.duration is not None]
    bounds = [found.time_us for s in outcome.stages if (found := costs.bound(record, s))]
    if len(times) < len(outcome.stages) or len(bounds) < len(outcome.stages):
        return None
    return outcome.total.median_us / max(*times, math.fsum(bounds))


def one_stage(record: Record, stage: Stage) -> float | None:
    """Time of a step's loads and products one after the other, over the longer of the two.

    A kernel without asynchronous copies has no second stage, whatever it is written in.

    Only where one block has the multiprocessor for itself: else others load meanwhile. Loads take
    at most as long as the products where these bind, so that half of that is expected.
    """
    facts = _facts(stage)
    if facts is None or facts.mma_path == "none":
        return None
    depth = getattr(facts, "ring_depth", None)
    if not facts.async_copies and not facts.tma_loads:
        depth = 1
    if depth is None:
        return None
    return 1.5 if depth == 1 else 1.0


def _facts(stage: Stage) -> StaticFacts | None:
    return stage.static if stage.static is not None and stage.static.ok else None
