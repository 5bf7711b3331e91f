"""The metrics catalogue: every metric that a trigger, an evidence entry or a page may name.

One table. Lint refuses names that are not in it, ``match`` reads values through it, and the
documentation prints it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from mla_var3 import devices
from mla_var3.errors import DeviceFigureError, KnowledgeError, UnknownNameError
from mla_var3.records import Passed, Prediction, Record, Stage

Value = bool | int | float | str
Type = Literal["number", "text", "flag"]
Origin = Literal["plan", "tiling", "launch", "roofline", "static", "time", "counter", "interpreter"]


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
    better: Literal["lower", "higher"] | None
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


#: First query count of the speculative and of the prefill regime.
SPECULATIVE_FROM, PREFILL_FROM = 2, 128


def regime_of(query_tokens: int) -> str:
    """``decode`` for one query token, ``speculative`` up to 127, ``prefill`` from 128."""
    if query_tokens >= PREFILL_FROM:
        return "prefill"
    return "speculative" if query_tokens >= SPECULATIVE_FROM else "decode"


def arch_of(record: Record) -> str | None:
    """The compile target of a record; None for the interpreter's."""
    if record.device is not None:
        return record.device.arch
    return record.target.removeprefix("static/") if record.target.startswith("static/") else None


def _device(record: Record) -> devices.Device | None:
    """The record's own device, else the one that stands for its arch."""
    arch = arch_of(record)
    try:
        if record.device is not None:
            return devices.find(record.device.key)
        return devices.default_for_arch(arch) if arch else None
    except UnknownNameError:
        return None


def _passed(record: Record) -> Passed | None:
    return record.outcome if isinstance(record.outcome, Passed) else None


def _at(facts: Mapping[str, Any] | None, *path: str) -> Any:
    value: Any = facts
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _sum(*values: Any) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _own_prediction(record: Record, predictions: Iterable[Prediction]) -> Prediction | None:
    """The prediction for the record's device, or for the default device of its arch."""
    rows, device = list(predictions), _device(record)
    return next((p for p in rows if device is not None and p.device == device.key), None)


_RecordReader = Callable[[Record], Any]
_PassedReader = Callable[[Record, Passed], Any]
_StageReader = Callable[[Record, Stage], Any]


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


def _shared_rows(record: Record) -> int | None:
    h, s = record.problem.get("h"), record.problem.get("s")
    return h * s if isinstance(h, int) and isinstance(s, int) else None


def _regime(record: Record) -> str | None:
    s = record.problem.get("s")
    return regime_of(s) if isinstance(s, int) else None


def _blocks(record: Record, stage: Stage) -> int:
    return math.prod(stage.grid)


def _waves(record: Record, stage: Stage) -> float | None:
    device, resident = _device(record), _at(stage.static, "occupancy", "blocks_per_sm")
    if device is None or not resident:
        return None
    try:
        return math.prod(stage.grid) / (device.sm_count * resident)
    except DeviceFigureError:
        return None


def _last_wave_fill(record: Record, stage: Stage) -> float | None:
    waves = _waves(record, stage)
    return None if waves is None else waves - math.ceil(waves) + 1


def _intensity(record: Record, stage: Stage) -> float | None:
    return stage.flops / stage.bytes if stage.bytes else None


def _predicted(field: str) -> _StageReader:
    def read(record: Record, stage: Stage) -> Any:
        own = _own_prediction(record, stage.predictions)
        return None if own is None else getattr(own, field)

    return read


def _intensity_over_ridge(record: Record, stage: Stage) -> float | None:
    own = _own_prediction(record, stage.predictions)
    return None if own is None else own.intensity / own.ridge


def _roofline_fraction(record: Record, stage: Stage) -> float | None:
    own = _own_prediction(record, stage.predictions)
    if own is None or stage.duration is None:
        return None
    return own.time_us / stage.duration.median_us


def _stage_share(record: Record, stage: Stage) -> float | None:
    outcome = _passed(record)
    if outcome is None or outcome.total is None or stage.duration is None:
        return None
    return stage.duration.median_us / outcome.total.median_us


def _per_us(field: Literal["flops", "bytes"], scale: float) -> _StageReader:
    def read(record: Record, stage: Stage) -> float | None:
        if stage.duration is None:
            return None
        return getattr(stage, field) / stage.duration.median_us / scale

    return read


def _peer_ratio(record: Record, outcome: Passed) -> float | None:
    if outcome.total is None or not outcome.peers:
        return None
    return outcome.total.median_us / min(peer.duration.median_us for peer in outcome.peers)


def _spread(record: Record, outcome: Passed) -> float | None:
    total = outcome.total
    return None if total is None else (total.max_us - total.min_us) / total.median_us


def _counted(field: str) -> _PassedReader:
    def read(record: Record, outcome: Passed) -> int | None:
        cases = outcome.correctness.cases if outcome.correctness else []
        return _sum(*(getattr(case, field) for case in cases))

    return read


def _largest_error(record: Record, outcome: Passed) -> float | None:
    return outcome.correctness.max_relative_error if outcome.correctness else None


def _tiling(field: str) -> _StageReader:
    return lambda record, stage: stage.tiling.get(field)


def _hint(field: str) -> _StageReader:
    # A hint that is left to the compiler is stored as null; 0 makes it comparable.
    return lambda record, stage: stage.tiling.get(field) or 0


def _static(*path: str) -> _StageReader:
    return lambda record, stage: _at(stage.static, *path)


def _missed(record: Record, stage: Stage) -> int | None:
    remarks = _at(stage.static, "remarks")
    if remarks is None:
        return None
    missed = (remark for remark in remarks if remark.get("kind") in ("missed", "failed"))
    return sum(remark.get("count", 1) for remark in missed)


def _mma_fast_path(record: Record, stage: Stage) -> bool | None:
    # The note says why a slower path was taken; records leave out what is null.
    if not _at(stage.static, "mma_ops"):
        return None
    return _at(stage.static, "mma_note") is None


def _spills(record: Record, stage: Stage) -> int | None:
    return _sum(_at(stage.static, "spill_loads"), _at(stage.static, "spill_stores"))


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


#: Bytes of a sector, the unit in which the L1 cache counts.
_SECTOR = 32


# -- the table -----------------------------------------------------------------------------------


def _plan(name: str, field: str, description: str, type_: Type = "number") -> Metric:
    return Metric(
        name, "", type_, "plan", None, f"problem.{field}", description, False,
        _whole(lambda record: record.problem.get(field)),
    )  # fmt: skip


def _row(
    origin: Origin,
    name: str,
    unit: str,
    better: Literal["lower", "higher"] | None,
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
    better: Literal["lower", "higher"] | None,
    source: str,
    description: str,
    reader: _PassedReader,
    type_: Type = "number",
) -> Metric:
    return Metric(name, unit, type_, origin, better, source, description, False, _outcome(reader))


def _ncu(
    name: str, unit: str, better: Literal["lower", "higher"], what: str, *counters: str
) -> Metric:
    source = f"stages[].counters[{counters[0]}]"
    return _row("counter", name, unit, better, source, what, _counter(*counters))


_TABLE = (
    _plan("batch", "b", "Sequences in the batch."),
    _plan("heads", "h", "Query heads."),
    _plan("query_tokens", "s", "Query tokens a sequence: 1 when decoding."),
    _plan("context_tokens", "t", "Keys a sequence."),
    _plan("new_tokens", "n", "Newest tokens kept decompressed by the mixed design."),
    _plan("latent_dim", "k", "Width of the compressed cache."),
    _plan("head_dim", "d", "Head dimension without the position part."),
    _plan("causal", "causal", "Whether the mask is causal.", "flag"),
    _plan("dtype", "dtype", "Element type of inputs and outputs.", "text"),
    Metric(
        "regime", "", "text", "plan", None, "problem.s",
        "decode for one query token, speculative up to 127, prefill from 128.", False,
        _whole(_regime),
    ),
    Metric(
        "shared_rows", "", "number", "plan", None, "problem.h * problem.s",
        "Query rows of a sequence that read the same latent tile.", False, _whole(_shared_rows),
    ),
    Metric(
        "arch", "", "text", "plan", None, "device.arch or target",
        "Compile target, for example sm_90.", False, _whole(arch_of),
    ),
    Metric(
        "device", "", "text", "plan", None, "device.key",
        "Key of the GPU that the run was made on.", False,
        _whole(lambda r: None if r.device is None else r.device.key),
    ),
    _run("plan", "stages", "", None, "outcome.stages", "Kernels that one call launches.",
         lambda r, o: len(o.stages)),
    _row("tiling", "tile_m", "", None, "stages[].tiling.tile_m", "Query rows a block handles.",
         _tiling("tile_m")),
    _row("tiling", "tile_n", "", None, "stages[].tiling.tile_n", "Keys a step of the loop handles.",
         _tiling("tile_n")),
    _row("tiling", "num_worker_warps", "", None, "stages[].tiling.num_worker_warps",
         "Warps asked for the worker groups; 0 when left to the compiler.",
         _hint("num_worker_warps")),
    _row("tiling", "num_ctas", "", None, "stages[].tiling.num_ctas",
         "Blocks asked for a cluster; 0 when left to the compiler.", _hint("num_ctas")),
    _row("tiling", "occupancy_hint", "", None, "stages[].tiling.occupancy",
         "Resident blocks asked of the compiler; 0 when left to it.", _hint("occupancy")),
    _row("launch", "blocks", "", None, "stages[].grid", "Blocks of the launch.", _blocks),
    _row("launch", "waves", "", None, "stages[].grid, static.occupancy.blocks_per_sm, device",
         "Blocks over the blocks that the device holds at a time.", _waves),
    _row("launch", "last_wave_fill", "", "higher", "as waves",
         "Share of the last wave's places that are taken.", _last_wave_fill),
    _row("roofline", "flops", "FLOP", "lower", "stages[].flops", "Algorithmic work of the stage.",
         lambda r, s: s.flops),
    _row("roofline", "bytes", "bytes", "lower", "stages[].bytes",
         "Algorithmic DRAM traffic of the stage.", lambda r, s: s.bytes),
    _row("roofline", "intensity", "FLOP/byte", None, "stages[].flops / bytes",
         "Arithmetic intensity of the stage.", _intensity),
    _row("roofline", "intensity_over_ridge", "", None, "stages[].predictions[]",
         "Intensity over the device's ridge point: below 1 memory binds, above it compute.",
         _intensity_over_ridge),
    _row("roofline", "bound", "", None, "stages[].predictions[].bound",
         "Ceiling that binds on the record's device: compute or memory.", _predicted("bound"),
         "text"),
    _row("roofline", "predicted_us", "us", "lower", "stages[].predictions[].time_us",
         "Roofline floor of the stage on the record's device.", _predicted("time_us")),
    _row("roofline", "roofline_fraction", "", "higher", "predictions[].time_us / duration",
         "Roofline floor over measured time of the stage.", _roofline_fraction),
    _row("static", "registers", "registers", "lower", "stages[].static.registers",
         "Registers a thread.", _static("registers")),
    _row("static", "stack_bytes", "bytes", "lower", "stages[].static.stack_bytes",
         "Stack a thread; what does not fit in registers lives there.", _static("stack_bytes")),
    _row("static", "spill_loads", "instructions", "lower", "stages[].static.spill_loads",
         "Loads from local memory in the machine code (LDL).", _static("spill_loads")),
    _row("static", "spill_stores", "instructions", "lower", "stages[].static.spill_stores",
         "Stores to local memory in the machine code (STL).", _static("spill_stores")),
    _row("static", "spill_instructions", "instructions", "lower",
         "stages[].static.spill_loads + spill_stores",
         "Register spills: loads and stores of local memory in the machine code.", _spills),
    _row("static", "shared_bytes", "bytes", None, "stages[].static.shared_bytes",
         "Shared memory a block, as launched.", _static("shared_bytes")),
    _row("static", "warps_per_block", "", None, "stages[].static.warps_per_block",
         "Warps that the compiler gave a block.", _static("warps_per_block")),
    _row("static", "spills_in_loops", "instructions", "lower",
         "stages[].static.spills_in_loops", "Register spills inside a loop.",
         _static("spills_in_loops")),
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
    _row("static", "mma_fast_path", "", None, "stages[].static.mma_note",
         "Whether every matrix multiplication takes the fast path of the arch.",
         _mma_fast_path, "flag"),
    _row("static", "tma_loads", "instructions", None, "stages[].static.tma_loads",
         "Tensor Memory Accelerator loads in the machine code.", _static("tma_loads")),
    _row("static", "tma_stores", "instructions", None, "stages[].static.tma_stores",
         "Tensor Memory Accelerator stores in the machine code.", _static("tma_stores")),
    _row("static", "missed_remarks", "", "lower", "stages[].static.remarks[kind=missed or failed]",
         "Optimizations that the compiler says it missed or failed at.", _missed),
    _row("static", "occupancy", "", "higher", "stages[].static.occupancy.fraction",
         "Resident warps over the warps that a multiprocessor can hold.",
         _static("occupancy", "fraction")),
    _row("static", "blocks_per_sm", "", "higher", "stages[].static.occupancy.blocks_per_sm",
         "Blocks that fit a multiprocessor.", _static("occupancy", "blocks_per_sm")),
    _row("static", "resident_warps", "", "higher", "stages[].static.occupancy.warps",
         "Warps that fit a multiprocessor.", _static("occupancy", "warps")),
    _row("static", "occupancy_limiter", "", None, "stages[].static.occupancy.limiter",
         "Resource that keeps further blocks away.", _static("occupancy", "limiter"), "text"),
    _row("time", "duration_us", "us", "lower", "stages[].duration.median_us",
         "Median time of the stage.", lambda r, s: s.duration.median_us if s.duration else None),
    _run("time", "total_us", "us", "lower", "outcome.total.median_us",
         "Median time of the whole call.", lambda r, o: o.total.median_us if o.total else None),
    _row("time", "stage_share", "", None, "duration / outcome.total",
         "Time of the stage over that of the whole call.", _stage_share),
    _row("time", "achieved_tflops", "TFLOP/s", "higher", "flops / duration",
         "Algorithmic FLOPs over the median time.", _per_us("flops", 1e6)),
    _row("time", "achieved_gbps", "GB/s", "higher", "bytes / duration",
         "Algorithmic bytes over the median time.", _per_us("bytes", 1e3)),
    _run("time", "time_spread", "", "lower", "outcome.total",
         "Longest less shortest run, over the median.", _spread),
    _run("time", "peer_ratio", "", "lower", "outcome.total / outcome.peers[]",
         "Time over that of the fastest peer in the same run.", _peer_ratio),
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
         _counter_sum("dram__bytes_read.sum", "dram__bytes_write.sum")),
    _run("interpreter", "loaded_bytes", "bytes", "lower",
         "outcome.correctness.cases[].bytes_loaded",
         "Bytes that loads asked for, over all checked cases.", _counted("bytes_loaded")),
    _run("interpreter", "stored_bytes", "bytes", "lower",
         "outcome.correctness.cases[].bytes_stored",
         "Bytes that stores wrote, over all checked cases.", _counted("bytes_stored")),
    _run("interpreter", "counted_mma_flops", "FLOP", "lower",
         "outcome.correctness.cases[].mma_flops",
         "Matrix FLOPs executed, over all checked cases.", _counted("mma_flops")),
    _run("interpreter", "max_relative_error", "", "lower",
         "outcome.correctness.cases[].max_relative_error",
         "Largest relative error over all checked cases.", _largest_error),
)  # fmt: skip

METRICS: Mapping[str, Metric] = MappingProxyType({metric.name: metric for metric in _TABLE})


def metric(name: str) -> Metric:
    """The metric with a name.

    Raises:
        UnknownNameError: There is none.
    """
    if name not in METRICS:
        raise UnknownNameError("metric", name, list(METRICS))
    return METRICS[name]


def readings(record: Record) -> list[Reading]:
    """Every value that the record states, in catalogue order, stage by stage."""
    return [reading for item in METRICS.values() for reading in readings_of(record, item)]


def readings_of(record: Record, item: Metric) -> list[Reading]:
    """The values of one metric: one, or one a stage."""
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
        failed = "" if _passed(record) else ": the run failed"
        raise KnowledgeError(f"results/{record.path.as_posix()} states no {name}{failed}")
    if len(found) > 1:
        stages = ", ".join(str(r.stage) for r in found)
        raise KnowledgeError(
            f"results/{record.path.as_posix()} states {name} for several stages, "
            f"say which: {stages}"
        )
    return found[0]
