"""Times many versions in turn, round after round in one process, so that none has a cooler chip.

Above a few query tokens an H200 runs at its power limit, and whoever comes first after a pause
looks a tenth faster. So all are bound and checked first, warmed up in a round that does not count,
and then timed in turn, round after round.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from mla_var3 import evidence
from mla_var3.errors import NotExecutableError
from mla_var3.profiling import binding, energy, gpu_lock, recording, running
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import Settings
from mla_var3.profiling.timing import Timer, capture, summarise
from mla_var3.runtime import waiting
from mla_var3.runtime.kernel import RuntimeObject

ROUNDS = 5
#: Key of the whole among the graphs and times of stages.
WHOLE = ""


@dataclass
class Entry:
    """One version on its way to a record.

    Attributes:
        job: The version and its plan, all sizes and tilings fixed.
        obj: Its kernels on the GPU; None where it failed or is absent.
        graphs: One call of the whole, and of each stage by its path where there are several.
        correctness: The comparison with the reference.
        failed: Why it has no times.
        absent: Why it cannot be run here.
        samples_us: Times so far, by the same keys.
        energy: What it drew.
    """

    job: Job
    obj: RuntimeObject | None = None
    graphs: dict[str, torch.cuda.CUDAGraph] = field(default_factory=dict)
    correctness: evidence.Correctness | None = None
    failed: evidence.Failed | None = None
    absent: str = ""
    samples_us: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    energy: evidence.Energy | None = None


def timed(
    jobs: Sequence[Job], settings: Settings, rounds: int = ROUNDS
) -> list[tuple[Entry, evidence.Record | None]]:
    """Check all, then time all in rounds; the records are not yet written.

    Args:
        jobs: What to run.
        settings: How; ``bench_runs`` are spread over the rounds.
        rounds: Rounds that count.

    Returns:
        Each version with its record, None for one that is absent.

    Raises:
        ToolchainError: There is no GPU.
    """
    binding.require_gpu("event")
    with gpu_lock.held(settings.say):
        return _in_rounds(jobs, settings, rounds)


def _in_rounds(
    jobs: Sequence[Job], settings: Settings, rounds: int
) -> list[tuple[Entry, evidence.Record | None]]:
    timer = Timer(settings.bench_runs)
    entries = [_ready(job, timer) for job in jobs]
    running_ = [entry for entry in entries if entry.graphs]
    per_round = -(-settings.bench_runs // rounds)
    settings.say(f"timing {len(running_)} versions in {rounds} rounds of {per_round} runs")
    for number in range(rounds + 1):  # The first warms up.
        for entry in running_:
            _round(entry, timer, per_round, counts=number > 0)
    _weigh(running_, settings)
    protocol = timer.protocol.model_copy(
        update={"bench_runs": per_round * rounds, "rounds": rounds}
    )
    return [(entry, _record(entry, protocol)) for entry in entries]


def _ready(job: Job, timer: Timer) -> Entry:
    """Bound, checked and captured; a failure or an absent library stands in the entry."""
    entry, settings = Entry(binding.on_gpu(job)), job.settings
    job.say(f"checking {job.version.key}")

    def body() -> running.Ended:
        if settings.check:
            entry.correctness, wrong = running.check_on_gpu(entry.job.plan)
            if wrong is not None:
                return entry.job, wrong
        if settings.no_autotune:
            entry.obj = binding.bind(entry.job.plan)
        else:
            entry.job, entry.obj = binding.tuned(entry.job, timer)
        entry.graphs = _captured(entry.obj)
        return entry.job, recording.passed(entry.obj)

    try:
        _, outcome = running.or_failed(entry.job, body, "event")
    except NotExecutableError as error:
        return dataclasses.replace(entry, absent=str(error))
    if isinstance(outcome, evidence.Failed):
        return dataclasses.replace(entry, obj=None, graphs={}, failed=outcome)
    return entry


def _captured(obj: RuntimeObject) -> dict[str, torch.cuda.CUDAGraph]:
    stages = obj.stages()
    graphs = {WHOLE: capture(obj)}
    if len(stages) > 1:
        graphs |= {path: capture(kernel) for path, kernel in stages}
    return graphs


def _round(entry: Entry, timer: Timer, runs: int, *, counts: bool) -> None:
    for key, graph in entry.graphs.items():
        samples = timer.replays_us(graph, runs)
        entry.samples_us[key] += samples if counts else []


def _weigh(entries: Sequence[Entry], settings: Settings) -> None:
    """Energy of each, where the board tells it."""
    meter = energy.meter()
    if isinstance(meter, str):
        settings.say(meter)
        return
    runs = [
        (_replayer(entry.graphs[WHOLE]), summarise(entry.samples_us[WHOLE]).median_us)
        for entry in entries
    ]
    for entry, drawn in zip(entries, energy.in_turn(meter, runs), strict=True):
        entry.energy = drawn


def _replayer(graph: torch.cuda.CUDAGraph) -> running.Replay:
    def replay(count: int) -> float:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        for _ in range(count):
            graph.replay()
        end.record()
        waiting.synchronize()
        return start.elapsed_time(end) * 1e3

    return replay


def _record(entry: Entry, protocol: evidence.Protocol) -> evidence.Record | None:
    if entry.absent:
        return None
    outcome: evidence.Outcome
    if entry.failed is not None:
        outcome = entry.failed
    else:
        assert entry.obj is not None
        durations = {key: summarise(samples) for key, samples in entry.samples_us.items()}
        total = durations.pop(WHOLE)
        if not durations:
            durations = {path: total for path, _ in entry.obj.stages()}
        passed = recording.passed(
            entry.obj, correctness=entry.correctness, protocol=protocol, total=total,
            durations=durations,
        )  # fmt: skip
        outcome = passed.model_copy(update={"energy": entry.energy})
    return running.record(entry.job, "event", outcome)
