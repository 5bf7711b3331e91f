"""Catalog of metrics, by name, and how each is read from a record: for triggers and evidence.

One table: metrics of every run stand here, those of a workload's problems or a language's kernels
are declared there. Lint refuses names that are not in it, ``match`` reads values through it, and
the documentation prints it.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, cast

from mla_var3 import roofline
from mla_var3.errors import DeviceFigureError, KnowledgeError, UnknownNameError
from mla_var3.evidence import Passed, Record, Stage, StaticFacts, address
from mla_var3.knowledge import losses, mainloop, tiles
from mla_var3.languages import StageMetric, languages
from mla_var3.runtime import costs
from mla_var3.static import sass
from mla_var3.static.occupancy import fit_together, of_facts
from mla_var3.workloads import AxisMetric, workloads

Value = bool | int | float | str
Type = Literal["number", "text", "flag"]
Origin = Literal[
    "plan", "tiling", "launch", "roofline", "static", "time", "counter", "execution", "loss"
]
Better = Literal["lower", "higher"] | None


@dataclass(frozen=True)
class Metric:
    """One row of the catalogue.

    Attributes:
        name: Unique; snake case.
        unit: Unit of the value, empty for counts, fractions, text and flags.
        type: Type of the value; text and flags compare with ``==`` and ``!=`` only.
        origin: Which part of a record states it.
        better: Direction in which a kernel improves, where there is one.
        source: Where in the record it comes from.
        description: One sentence.
        per_stage: Whether each stage has its own value.
        read: Reads it from a record and, when ``per_stage``, a stage; None when not stated.
    """

    name: str
    unit: str
    type: Type
    origin: Origin
    better: Better
    source: str
    description: str
    per_stage: bool
    read: Callable[[Record, Stage | None], Value | None]

    def text(self, value: Value) -> str:
        """The value as people read it, with its unit."""
        if isinstance(value, bool):
            return "yes" if value else "no"
        if isinstance(value, float) and not value.is_integer():
            digits = max(0, 3 - math.floor(math.log10(abs(value))) - 1) if value else 0
            shown = f"{value:,.{digits}f}" if abs(value) >= 1e-3 else f"{value:.2g}"
        else:
            shown = f"{int(value):,}" if isinstance(value, (int, float)) else value
        return f"{shown} {self.unit}".rstrip()


@dataclass(frozen=True)
class Reading:
    """A value of a metric in a record; ``stage`` is None for those of the whole run."""

    metric: Metric
    value: Value
    stage: str | None = None

    def __str__(self) -> str:
        where = f" in stage {self.stage}" if self.stage else ""
        return f"{self.metric.name} = {self.metric.text(self.value)}{where}"

    @property
    def brief(self) -> str:
        """The value without its unit and stage; a share of a stage's own bound says whose."""
        number = isinstance(self.value, (int, float)) and not isinstance(self.value, bool)
        text = f"{self.metric.name} = {f'{self.value:,.4g}' if number else self.value}"
        # The whole run is told by the bound of its problem, which is another one.
        own = self.stage is not None and self.metric.name == "bound_fraction"
        return f"{text} of stage {self.stage}'s own bound" if own else text


def regime_of(record: Record) -> str | None:
    """The regime of a record's problem; None where its workload has none or is not known."""
    workload = workloads().get(record.kernel.layer)
    return None if workload is None else workload.regime(record.problem)


def _passed(record: Record) -> Passed | None:
    return record.outcome if isinstance(record.outcome, Passed) else None


def _compiled(stage: Stage) -> StaticFacts | None:
    """Facts of a compile that went well."""
    return stage.static if stage.static is not None and stage.static.ok else None


def _sum(*values: Any) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


_RecordReader = Callable[[Record], Any]
_PassedReader = Callable[[Record, Passed], Any]
_StageReader = Callable[[Record, Stage], Any]
_FactsReader = Callable[[StaticFacts], Any]


def _whole(reader: _RecordReader) -> Callable[[Record, Stage | None], Value | None]:
    return lambda record, stage: reader(record)


def _outcome(reader: _PassedReader) -> Callable[[Record, Stage | None], Value | None]:
    def read(record: Record, stage: Stage | None) -> Value | None:
        outcome = _passed(record)
        return None if outcome is None else reader(record, outcome)

    return read


def _stage(reader: _StageReader) -> Callable[[Record, Stage | None], Value | None]:
    return lambda record, stage: None if stage is None else reader(record, stage)


# -- readers that need more than a look-up -----------------------------------------------------


def _blocks(record: Record, stage: Stage) -> int | None:
    found = losses.grid(record, stage)
    return math.prod(found) if found else None


def _waves(record: Record, stage: Stage) -> float | None:
    device, held = roofline.device_of(record), of_facts(_compiled(stage))
    blocks = _blocks(record, stage)
    if device is None or held is None or not held.blocks_per_sm or blocks is None:
        return None
    try:
        return blocks / (device.sm_count * held.blocks_per_sm)
    except DeviceFigureError:
        return None


def _last_wave_fill(record: Record, stage: Stage) -> float | None:
    waves = _waves(record, stage)
    return None if waves is None else waves - math.ceil(waves) + 1


def _bytes_over_l2(record: Record, stage: Stage) -> float | None:
    device, work = roofline.device_of(record), costs.cost(record, stage)
    try:
        return None if device is None or work is None else work.bytes / device.l2_bytes
    except DeviceFigureError:
        return None


def _flops_share(record: Record, stage: Stage) -> float | None:
    outcome = _passed(record)
    works = [costs.cost(record, each) for each in outcome.stages] if outcome else []
    own, total = costs.cost(record, stage), sum(work.flops for work in works if work)
    return own.flops / total if own and total and None not in works else None


def _side_by_side(record: Record, stage: Stage) -> bool | None:
    """Whether one block of each stage of a group fits one SM; None for a stage on its own."""
    outcome, (group, dot, _) = _passed(record), stage.name.rpartition(".")
    if outcome is None or not dot:
        return None
    members = [s for s in outcome.stages if s.name.rpartition(".")[0] == group]
    facts = [found for s in members if (found := _compiled(s)) is not None]
    if len(members) < 2 or len(facts) < len(members):
        return None
    return fit_together(facts, roofline.device_of(record))


def _overlap(record: Record, outcome: Passed) -> float | None:
    times = [s.duration.median_us for s in outcome.stages if s.duration is not None]
    if outcome.total is None or len(times) < 2 or len(times) < len(outcome.stages):
        return None
    return 1 - outcome.total.median_us / sum(times)


def _intensity(record: Record, stage: Stage) -> float | None:
    work = costs.cost(record, stage)
    return work.flops / work.bytes if work and work.bytes else None


def _cost(field: str) -> _StageReader:
    def read(record: Record, stage: Stage) -> Any:
        return getattr(costs.cost(record, stage), field, None)

    return read


def _least(field: str) -> _StageReader:
    def read(record: Record, stage: Stage) -> Any:
        return getattr(costs.bound(record, stage), field, None)

    return read


def _reference(record: Record, stage: Stage) -> float | None:
    found = costs.reference(record, stage)
    return None if found is None else found.time_us


def _intensity_over_ridge(record: Record, stage: Stage) -> float | None:
    found = costs.bound(record, stage)
    return None if found is None else found.intensity / found.ridge


def _stage_share(record: Record, stage: Stage) -> float | None:
    outcome = _passed(record)
    if outcome is None or outcome.total is None or stage.duration is None:
        return None
    return stage.duration.median_us / outcome.total.median_us


def _per_us(field: Literal["flops", "bytes"], scale: float) -> _StageReader:
    def read(record: Record, stage: Stage) -> float | None:
        work = costs.cost(record, stage)
        if stage.duration is None or work is None:
            return None
        return cast(int, getattr(work, field)) / stage.duration.median_us / scale

    return read


def _spread(record: Record, outcome: Passed) -> float | None:
    total = outcome.total
    return None if total is None else (total.max_us - total.min_us) / total.median_us


def _counted(field: str) -> _PassedReader:
    def read(record: Record, outcome: Passed) -> int | None:
        cases = outcome.correctness.cases if outcome.correctness else []
        return cast("int | None", _sum(*(getattr(case, field) for case in cases)))

    return read


def _sectors(record: Record, outcome: Passed) -> float | None:
    asked, least = (_counted(name)(record, outcome) for name in ("sectors", "least_sectors"))
    return asked / least if asked and least else None


def _moved(record: Record, outcome: Passed) -> int:
    """Bytes that loads and stores of global memory moved, over all checked cases."""
    counted = (_counted(name)(record, outcome) or 0 for name in ("bytes_loaded", "bytes_stored"))
    return sum(counted)


def _conflict_share(record: Record, outcome: Passed) -> float | None:
    extra, moved = _counted("bank_conflicts")(record, outcome), _moved(record, outcome)
    return None if extra is None or not moved else extra * _WAVEFRONT / moved


def _excess_sectors(record: Record, outcome: Passed) -> float | None:
    asked, least = (_counted(name)(record, outcome) for name in ("sectors", "least_sectors"))
    moved = _moved(record, outcome)
    return (
        None if asked is None or least is None or not moved else (asked - least) * _SECTOR / moved
    )


def _largest_error(record: Record, outcome: Passed) -> float | None:
    return outcome.correctness.max_relative_error if outcome.correctness else None


def _tiling(field: str) -> _StageReader:
    return lambda record, stage: stage.tiling.get(field)


def _facts(reader: _FactsReader) -> _StageReader:
    def read(record: Record, stage: Stage) -> Any:
        facts = _compiled(stage)
        return None if facts is None else reader(facts)

    return read


def _static(field: str) -> _StageReader:
    return _facts(lambda facts: getattr(facts, field))


def _occupancy(field: str) -> _StageReader:
    def read(record: Record, stage: Stage) -> Any:
        return getattr(of_facts(_compiled(stage), roofline.device_of(record)), field, None)

    return read


def _mma_fast_path(facts: StaticFacts) -> bool | None:
    if facts.mma_path == "none":
        return None
    return sass.mma_note(facts.mma_path, facts.arch) is None


def _counter(*names: str, scale: float = 1.0) -> _StageReader:
    """The first of ``names`` that is stated; profilers of different age use different names."""

    def read(record: Record, stage: Stage) -> float | None:
        found = next((stage.counters[n] for n in names if n in stage.counters), None)
        return None if found is None else found * scale

    return read


def _counter_sum(*names: str, scale: float = 1.0) -> _StageReader:
    def read(record: Record, stage: Stage) -> float | None:
        found = _sum(*(stage.counters.get(n) for n in names))
        return None if found is None else found * scale

    return read


def _dram_over_least(record: Record, stage: Stage) -> float | None:
    """DRAM traffic that the hardware counted, over the least of the cost model."""
    counted = _counter_sum(*_DRAM_BYTES)(record, stage)
    work = costs.cost(record, stage)
    return counted / work.bytes if counted and work is not None and work.bytes else None


_DRAM_BYTES = ("dram__bytes_read.sum", "dram__bytes_write.sum")
#: Bytes of a sector, the unit in which the L1 cache counts.
_SECTOR = 32
#: Bytes that the banks of shared memory deliver at once.
_WAVEFRONT = 128


# -- the table -----------------------------------------------------------------------------------


def _row(
    origin: Origin,
    name: str,
    unit: str,
    better: Better,
    source: str,
    description: str,
    reader: _StageReader,
    type_: Type = "number",
) -> Metric:
    return Metric(name, unit, type_, origin, better, source, description, True, _stage(reader))


def _run(
    origin: Origin,
    name: str,
    unit: str,
    better: Better,
    source: str,
    description: str,
    reader: _PassedReader,
    type_: Type = "number",
) -> Metric:
    return Metric(name, unit, type_, origin, better, source, description, False, _outcome(reader))


def _text(name: str, source: str, description: str, reader: _RecordReader) -> Metric:
    return Metric(name, "", "text", "plan", None, source, description, False, _whole(reader))


def _ncu(
    name: str, unit: str, better: Literal["lower", "higher"], what: str, *counters: str
) -> Metric:
    source = f"stages[].counters[{counters[0]}]"
    return _row("counter", name, unit, better, source, what, _counter(*counters))


#: Of every problem, after those of the workloads.
_ANY_PROBLEM = (
    _text("dtype", "problem.dtype", "Element type of inputs and outputs.",
          lambda r: r.problem.get("dtype")),
    _text("workload", "kernel.layer", "What is computed.", lambda r: r.kernel.layer),
    _text("regime", "problem", "Kind of problem, as its workload divides them.", regime_of),
    _text("language", "kernel.language", "Language of the kernel.", lambda r: r.kernel.language),
    _text("arch", "device.arch or target", "Compile target, for example sm_90.",
          lambda r: r.arch),
    _text("device", "device.key", "Key of the GPU that the run was made on.",
          lambda r: None if r.device is None else r.device.key),
    _run("plan", "stages", "", None, "outcome.stages", "Kernels that one call launches.",
         lambda r, o: len(o.stages)),
)  # fmt: skip

_ANY_RUN = (
    _row("tiling", "tile_m", "", None, "stages[].tiling.tile_m",
         "Rows of the output that a block handles.",
         _tiling("tile_m")),
    _row("tiling", "tile_n", "", None, "stages[].tiling.tile_n",
         "Columns, or keys, that a step handles.",
         _tiling("tile_n")),
    _row("launch", "blocks", "", None, "stages[].grid", "Blocks of the launch.", _blocks),
    _row("launch", "waves", "", None, "stages[].grid, static, devices",
         "Blocks over the blocks that the device holds at a time.", _waves),
    _row("launch", "last_wave_fill", "", "higher", "as waves",
         "Share of the last wave's places that are taken.", _last_wave_fill),
    _row("roofline", "flops", "FLOP", "lower", "cost model", "Algorithmic work of the stage.",
         _cost("flops")),
    _row("roofline", "bytes", "bytes", "lower", "cost model",
         "Algorithmic DRAM traffic of the stage.", _cost("bytes")),
    _row("roofline", "bytes_over_l2", "", "lower", "bytes, devices",
         "Algorithmic traffic over the size of the device's L2.", _bytes_over_l2),
    _row("roofline", "flops_share", "", None, "flops",
         "FLOPs of the stage over those of all stages: near 0 for a stage that merges or converts.",
         _flops_share),
    _row("roofline", "intensity", "FLOP/byte", None, "flops / bytes",
         "Arithmetic intensity of the stage.", _intensity),
    _row("roofline", "intensity_over_ridge", "", None, "intensity, devices",
         "Intensity over the ridge point of the bound: below 1 memory binds, above it compute.",
         _intensity_over_ridge),
    _row("roofline", "bound", "", None, "flops, bytes, devices",
         "What sets the bound of the stage on the record's device: compute or memory.",
         _least("bound"), "text"),
    _row("roofline", "bound_us", "us", "lower", "flops, bytes, devices",
         "Least time of the stage on the record's device: no kernel can beat it.",
         _least("time_us")),
    _row("roofline", "reference_us", "us", "lower", "flops, bytes, devices",
         "Time of the stage at the rates that were attained on the device, which a better "
         "kernel can beat.", _reference),
    _row("roofline", "bound_fraction", "", "higher", "bound_us / duration",
         "Bound over measured time of the stage.", costs.fraction),
    _row("static", "registers", "registers", "lower", "stages[].static.registers",
         "Registers per thread.", _static("registers")),
    _row("static", "stack_bytes", "bytes", "lower", "stages[].static.stack_bytes",
         "Stack per thread; what does not fit in registers lives there.", _static("stack_bytes")),
    _row("static", "spill_loads", "instructions", "lower", "stages[].static.spill_loads",
         "Loads from local memory in the machine code (LDL).", _static("spill_loads")),
    _row("static", "spill_stores", "instructions", "lower", "stages[].static.spill_stores",
         "Stores to local memory in the machine code (STL).", _static("spill_stores")),
    _row("static", "spill_instructions", "instructions", "lower",
         "stages[].static.spill_loads + spill_stores",
         "Register spills: loads and stores of local memory in the machine code.",
         _static("spill_instructions")),
    _row("static", "shared_bytes", "bytes", None, "stages[].static.shared_bytes",
         "Shared memory per block, as launched.", _static("shared_bytes")),
    _row("static", "warps_per_block", "", None, "stages[].static.warps_per_block",
         "Warps per block that the compiler chose.", _static("warps_per_block")),
    _row("static", "instructions", "instructions", "lower", "stages[].static.instructions",
         "Machine instructions of the kernel.", _static("instructions")),
    _row("static", "blocks_per_cluster", "", None, "stages[].static.blocks_per_cluster",
         "Blocks of a thread block cluster.", _static("blocks_per_cluster")),
    _row("static", "async_copies", "instructions", None, "stages[].static.async_copies",
         "Asynchronous copies of the older kind (LDGSTS).", _static("async_copies")),
    _row("static", "mma_path", "", None, "stages[].static.mma_path",
         "Matrix instructions that the compiler chose, such as HGMMA, UTCHMMA, HMMA, or several "
         "joined by +; FMA for CUDA cores, none when nothing is multiplied.",
         _static("mma_path"), "text"),
    _row("static", "mma_fast_path", "", None, "stages[].static.mma_path, arch",
         "Whether every matrix multiplication takes the fast path of the arch.",
         _facts(_mma_fast_path), "flag"),
    _row("static", "wide_operands", "", "lower",
         "stages[].static.mma_instructions, tiling, problem.dtype",
         "Whether products read wider elements than the problem's 16 bits.",
         losses.wide_operands, "flag"),
    _row("static", "tma_loads", "instructions", None, "stages[].static.tma_loads",
         "Tensor Memory Accelerator loads in the machine code.", _static("tma_loads")),
    _row("static", "tma_stores", "instructions", None, "stages[].static.tma_stores",
         "Tensor Memory Accelerator stores in the machine code.", _static("tma_stores")),
    _row("static", "occupancy", "", "higher", "stages[].static, devices",
         "Resident warps over the warps that a multiprocessor can hold.",
         _occupancy("fraction")),
    _row("static", "blocks_per_sm", "", "higher", "stages[].static, devices",
         "Blocks that fit a multiprocessor.", _occupancy("blocks_per_sm")),
    _row("static", "resident_warps", "", "higher", "stages[].static, devices",
         "Warps that fit a multiprocessor.", _occupancy("warps")),
    _row("static", "occupancy_limiter", "", None, "stages[].static, devices",
         "Resource that keeps further blocks away.", _occupancy("limiter"), "text"),
    _row("static", "side_by_side", "", None, "stages[].static, devices",
         "Whether a block of each stage of a group fits a multiprocessor at the same time.",
         _side_by_side, "flag"),
    _row("time", "duration_us", "us", "lower", "stages[].duration.median_us",
         "Median time of the stage.", lambda r, s: s.duration.median_us if s.duration else None),
    _run("time", "total_us", "us", "lower", "outcome.total.median_us",
         "Median time of the whole call.", lambda r, o: o.total.median_us if o.total else None),
    _run("time", "sustained_us", "us", "lower", "outcome.energy.launch_us",
         "Time of a call back to back for about a second, without an L2 flush.",
         lambda r, o: o.energy.launch_us if o.energy else None),
    _run("time", "launch_mj", "mJ", "lower", "outcome.energy.joules",
         "Energy of a call back to back, by the board's meter.",
         lambda r, o: o.energy.joules * 1e3 if o.energy else None),
    _run("time", "board_watts", "W", None, "outcome.energy.watts",
         "Power of the board while calls run back to back.",
         lambda r, o: o.energy.watts if o.energy else None),
    _run("time", "sustained_mhz", "MHz", None, "outcome.energy.sm_clock_mhz",
         "Clock of the SMs while calls run back to back.",
         lambda r, o: o.energy.sm_clock_mhz if o.energy else None),
    _row("time", "stage_share", "", None, "duration / outcome.total",
         "Time of the stage over that of the whole call.", _stage_share),
    _row("time", "achieved_tflops", "TFLOP/s", "higher", "flops / duration",
         "Algorithmic FLOPs over the median time.", _per_us("flops", 1e6)),
    _row("time", "achieved_gbps", "GB/s", "higher", "bytes / duration",
         "Algorithmic bytes over the median time.", _per_us("bytes", 1e3)),
    _run("time", "time_spread", "", "lower", "outcome.total",
         "Longest less shortest run, over the median.", _spread),
    _run("time", "overlap", "", "higher", "outcome.total, stages[].duration",
         "Share of the stages' summed times that running side by side saves.", _overlap),
    _run("time", "l2_flushed", "", None, "outcome.protocol.l2_flush",
         "Whether the L2 cache was flushed between timed runs.",
         lambda r, o: o.protocol.l2_flush if o.protocol else None, "flag"),
    _ncu("tensor_pipe_percent", "%", "higher",
         "Share of cycles in which the tensor pipe works.",
         "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
         "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
         "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active"),
    _ncu("dram_percent", "%", "higher", "DRAM throughput over its peak.",
         "gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed",
         "dram__throughput.avg.pct_of_peak_sustained_elapsed"),
    _ncu("l2_hit_percent", "%", "higher", "Share of L2 look-ups that hit.",
         "lts__t_sector_hit_rate.pct"),
    _ncu("achieved_occupancy_percent", "%", "higher",
         "Active warps over the warps that a multiprocessor can hold.",
         "sm__warps_active.avg.pct_of_peak_sustained_active"),
    _ncu("issue_active_percent", "%", "higher", "Share of cycles in which a scheduler issues.",
         "smsp__issue_active.avg.pct_of_peak_sustained_active"),
    _ncu("eligible_warps", "", "higher", "Warps a scheduler could issue from, on average.",
         "smsp__warps_eligible.avg.per_cycle_active"),
    _row("counter", "local_memory_bytes", "bytes", "lower",
         "stages[].counters[l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum + ..._st.sum]",
         "Traffic of register spills.",
         _counter_sum("l1tex__t_sectors_pipe_lsu_mem_local_op_ld.sum",
                      "l1tex__t_sectors_pipe_lsu_mem_local_op_st.sum", scale=_SECTOR)),
    _row("counter", "dram_bytes", "bytes", "lower",
         "stages[].counters[dram__bytes_read.sum + dram__bytes_write.sum]",
         "DRAM traffic that the hardware counted.",
         _counter_sum(*_DRAM_BYTES)),
    _row("counter", "dram_over_least", "", "lower", "dram_bytes, cost model",
         "DRAM traffic that the hardware counted, over the least: what was read again.",
         _dram_over_least),
    _run("execution", "loaded_bytes", "bytes", "lower",
         "outcome.correctness.cases[].bytes_loaded",
         "Bytes that loads asked for, over all checked cases.", _counted("bytes_loaded")),
    _run("execution", "stored_bytes", "bytes", "lower",
         "outcome.correctness.cases[].bytes_stored",
         "Bytes that stores wrote, over all checked cases.", _counted("bytes_stored")),
    _run("execution", "bank_conflicts", "wavefronts", "lower",
         "outcome.correctness.cases[].bank_conflicts",
         "Wavefronts of shared memory beyond the least, over all checked cases.",
         _counted("bank_conflicts")),
    _run("execution", "sectors_over_least", "", "lower",
         "outcome.correctness.cases[].sectors / least_sectors",
         "Sectors of global memory that warps asked for over those that the bytes fill; 1 where "
         "all is coalesced, less where threads share bytes. What TMA moves does not count.",
         _sectors),
    _run("execution", "conflict_share", "", "lower",
         "outcome.correctness.cases[].bank_conflicts, bytes_loaded, bytes_stored",
         "128 bytes per extra wavefront of shared memory, over the bytes that loads and stores "
         "move: at 1, conflicts cost as much as passing all of them through once more.",
         _conflict_share),
    _run("execution", "excess_sector_share", "", "lower",
         "outcome.correctness.cases[].sectors, least_sectors, bytes_loaded, bytes_stored",
         "Bytes of sectors that coalesced accesses would not ask for, over the bytes that loads "
         "and stores move.", _excess_sectors),
    _run("execution", "counted_mma_flops", "FLOP", "lower",
         "outcome.correctness.cases[].mma_flops",
         "Matrix FLOPs executed, over all checked cases.", _counted("mma_flops")),
    _run("execution", "max_relative_error", "", "lower",
         "outcome.correctness.cases[].max_relative_error",
         "Largest relative error over all checked cases.", _largest_error),
    _row("static", "step_barriers", "", "lower", "stages[].static.step_mix",
         "Barriers per step at which warps wait for each other, beyond handovers between them.",
         mainloop.barriers),
    _row("static", "step_fences", "", "lower", "stages[].static.step_mix",
         "Fences per step that publish nothing, or that reach beyond the block.", mainloop.fences),
    _row("static", "softmax_cover", "", "higher", "stages[].static.step_mix",
         "Waits per step that leave products of the warpgroup under way: 0 where none of its "
         "products runs under its softmax.", mainloop.overlapped),
    _row("static", "exps_per_score", "", "lower", "stages[].static.step_mix, cost model",
         "Exponentials of a step per score.", mainloop.exponentials),
    _row("static", "masked_share", "", "lower", "stages[].static.step_mix, cost model",
         "Selections that every step executes, per score: 1 where each tile is masked.",
         mainloop.masked),
    _row("static", "spare_registers", "", "lower", "stages[].static.register_budgets",
         "Share of the multiprocessor's registers that no warp may use, by their budgets.",
         mainloop.spare_registers),
    _row("loss", "softmax_loss", "", "lower", "stages[].static.step_mix, cost model",
         "Time of a step's products with the softmax's needless instructions after them, over "
         "the products alone.", mainloop.softmax),
    _row("loss", "issue_loss", "", "lower", "stages[].static.step_mix",
         "Time to issue the instructions of a step over the time of its products, at least 1.",
         mainloop.issue),
    _row("loss", "mask_loss", "", "lower", "stages[].static.step_mix, cost model",
         "The same of the instructions that mask where no mask is needed.", mainloop.masking),
    _row("launch", "sms_covered", "", "higher", "stages[].grid, devices",
         "Multiprocessors that get a block, over all; stages side by side count together.",
         losses.covered),
    _row("launch", "outputs_per_block", "", None, "problem, stages[].grid",
         "Elements of the result over blocks; an SM's registers hold 65,536 values of fp32.",
         losses.outputs_per_block),
    _row("execution", "tile_fill", "", "higher", "tiling, outcome.correctness.cases[].mma_flops",
         "Rows that fill a tile over those that could, on a problem that a CPU ran.",
         tiles.tile_fill),
    _run("execution", "flops_over_least", "", "lower",
         "outcome.correctness.cases[].mma_flops, cost model",
         "Matrix FLOPs that ran over those needed, on a problem that fills tiles alike.",
         lambda r, o: getattr(losses.counted(r), "flops", None)),
    _run("execution", "loaded_over_least", "", "lower",
         "outcome.correctness.cases[].bytes_loaded, cost model",
         "Bytes that loads asked for over the least that DRAM moves, likewise.",
         lambda r, o: getattr(losses.counted(r), "loaded", None)),
    _run("execution", "flops_per_loaded_byte", "FLOP/byte", "higher",
         "outcome.correctness.cases[].mma_flops / bytes_loaded",
         "Matrix FLOPs per byte that loads asked for, likewise.",
         lambda r, o: getattr(losses.counted(r), "intensity", None)),
    _row("loss", "idle_loss", "", "lower", "stages[].grid, devices",
         "Blocks of the busiest multiprocessor over an even share.", losses.idle),
    _row("loss", "round_loss", "", "lower", "stages[].grid, stages[].tiling, problem",
         "Tiles of the busiest block over an even share, where blocks take tile after tile.",
         tiles.rounds),
    _row("loss", "merge_loss", "", "lower", "stages[].grid, static, cost model, devices",
         "Time of parts and of the stage that merges them, over that with one wave of parts.",
         losses.merging),
    _row("loss", "spill_loss", "", "lower", "stages[].static",
         "Time with register spills over time without, from the share of instructions that spill.",
         losses.spills),
    _row("loss", "path_loss", "", "lower", "stages[].static.mma_path, cost model, devices",
         "Time on the matrix instructions chosen over time on the fast ones.", losses.mma_path),
    _row("loss", "fill_loss", "", "lower", "tile_fill, cost model, devices",
         "Time with tiles filled as counted over time with full ones.", tiles.unfilled),
    _row("loss", "thin_loss", "", "lower", "stages[].static.mma_instructions, cost model, devices",
         "Time with the 64 rows of a warpgroup's product as full as the problem's rows, over full.",
         losses.thin),
    _row("loss", "waste_loss", "", "lower", "flops_over_least, cost model, devices",
         "Time with the matrix FLOPs that ran over time with those needed.", losses.wasted_flops),
    _row("loss", "load_loss", "", "lower", "flops_per_loaded_byte, cost model, devices",
         "Time of all loads through the L2 over the time of the work at attained rates.",
         losses.loads),
    _row("loss", "reload_loss", "", "lower", "tiling, outcome.correctness.cases[]",
         "Times that a block loads each operand.", losses.reloads),
    _row("loss", "shared_loss", "", "lower", "stages[].static.mma_instructions",
         "Time of the operands' way out of shared memory over that of the products.",
         losses.shared),
    _row("loss", "serial_loss", "", "lower", "stages[].duration, cost model, devices",
         "Time of stages one after the other over that of the same stages side by side.",
         losses.serial),
    _row("loss", "ring_loss", "", "lower", "stages[].static.barrier_groups",
         "Time of a step whose loads wait for the products of the step before, over one whose "
         "loads do not.", losses.one_stage),
)  # fmt: skip


def _of_workloads() -> Iterable[Metric]:
    """Metrics of problems; of one name they mean the same whatever the workload."""
    readers: dict[str, dict[str, AxisMetric]] = {}
    for workload in workloads().values():
        for item in workload.metrics:
            readers.setdefault(item.name, {})[workload.key] = item
    for name, by_layer in readers.items():
        first = next(iter(by_layer.values()))
        yield Metric(
            name, "", first.type, "plan", None, first.source, first.description, False,
            _whole(functools.partial(_read_axis, by_layer)),
        )  # fmt: skip


def _read_axis(by_layer: Mapping[str, AxisMetric], record: Record) -> Any:
    item = by_layer.get(record.kernel.layer)
    return None if item is None else item.read(record.problem)


def _of_languages() -> Iterable[Metric]:
    """Metrics of stages that only some languages have; of one name they mean the same."""
    readers: dict[str, dict[str, StageMetric]] = {}
    for language in languages().values():
        for item in language.metrics:
            readers.setdefault(item.name, {})[language.key] = item
    for name, by_language in readers.items():
        first = next(iter(by_language.values()))
        yield Metric(
            name, first.unit, "number", cast(Origin, first.origin), cast(Better, first.better),
            first.source, first.description, True,
            _stage(functools.partial(_read_stage, by_language)),
        )  # fmt: skip


def _read_stage(by_language: Mapping[str, StageMetric], record: Record, stage: Stage) -> Any:
    item = by_language.get(record.kernel.language)
    return None if item is None else item.read(stage.tiling, stage.static)


@functools.cache
def catalogue() -> Mapping[str, Metric]:
    """Every metric by its name: those of problems first, then by where they come from.

    Raises:
        KnowledgeError: A workload or language declares a metric that there is already.
    """
    order = list(dict.fromkeys(metric.origin for metric in (*_ANY_PROBLEM, *_ANY_RUN)))
    found = [*_of_workloads(), *_ANY_PROBLEM, *_ANY_RUN, *_of_languages()]
    found.sort(key=lambda metric: order.index(metric.origin))
    named = {metric.name: metric for metric in found}
    for metric in found:
        if named[metric.name] is not metric:
            raise KnowledgeError(f"two metrics are called {metric.name}")
    return MappingProxyType(named)


def metric(name: str) -> Metric:
    """The metric with a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in catalogue():
        raise UnknownNameError("metric", name, list(catalogue()))
    return catalogue()[name]


def readings(record: Record) -> list[Reading]:
    """Every value that the record states, in catalogue order, stage by stage."""
    return [reading for item in catalogue().values() for reading in readings_of(record, item)]


def readings_of(record: Record, item: Metric) -> list[Reading]:
    """The values of one metric: one, or one per stage."""
    outcome = _passed(record)
    places: list[Stage | None] = [None]
    if item.per_stage:
        places = list(outcome.stages) if outcome else []
    found = []
    for stage in places:
        value = item.read(record, stage)
        if value is not None:
            found.append(Reading(item, value, stage.name if stage else None))
    return found


_WORDS = {"failed": "failed", "skipped": "was skipped"}


def reading(record: Record, name: str, stage: str | None = None) -> Reading:
    """The one value of a metric in a record.

    Args:
        record: The record.
        name: Metric name.
        stage: Stage; needed when several stages state the metric.

    Raises:
        UnknownNameError: No such metric or stage.
        KnowledgeError: The record does not state it, or several stages do.
    """
    found = readings_of(record, metric(name))
    if stage is not None:
        outcome = _passed(record)
        known = [s.name for s in outcome.stages] if outcome else []
        if stage not in known:
            raise UnknownNameError("stage", stage, known)
        found = [r for r in found if r.stage in (stage, None)]
    if not found:
        status = "" if _passed(record) else f": the run {_WORDS[record.outcome.status]}"
        raise KnowledgeError(f"{address(record)} states no {name}{status}")
    if len(found) > 1:
        stages = ", ".join(str(r.stage) for r in found)
        raise KnowledgeError(
            f"{address(record)} states {name} for several stages, say which: {stages}"
        )
    return found[0]
