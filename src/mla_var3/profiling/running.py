"""GPU run of a job, the first half of the timing modes: tunes, checks, times, makes a record."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mla_var3 import evidence
from mla_var3.profiling import binding, recording
from mla_var3.profiling.job import Job
from mla_var3.profiling.timing import Timer
from mla_var3.runtime import waiting
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan

#: Runs launches back to back, as many as asked; gives microseconds.
Replay = Callable[[int], float]
Ended = tuple[Job, evidence.Passed | evidence.Failed]


def timed(job: Job) -> tuple[Job, evidence.Record]:
    """Check and time a job whose plan is resolved.

    Returns:
        The job with the tilings of its plan fixed, and the record of mode ``event``, not yet
        written.
    """
    settings = job.settings

    def body() -> Ended:
        timer = Timer(settings.bench_runs)
        if settings.no_autotune:
            bound, obj = job, binding.bind(job.plan)
        else:
            bound, obj = binding.tuned(job, timer)
        checked = None
        if settings.check:
            job.say("checking against the reference")
            checked, wrong = check_on_gpu(bound.plan)
            if wrong is not None:
                return bound, wrong
        job.say(f"timing {settings.bench_runs} runs")
        total, durations = _time(obj, timer)
        return bound, recording.passed(
            obj, correctness=checked, protocol=timer.protocol, total=total, durations=durations
        )

    bound, outcome = or_failed(job, body, "event")
    torch.cuda.empty_cache()  # A profiler starts a process of its own, which needs the memory.
    return bound, record(bound, "event", outcome)


def _time(
    obj: RuntimeObject, timer: Timer
) -> tuple[evidence.Duration, dict[str, evidence.Duration]]:
    """Time of the whole, and of each stage by its path."""
    total, stages = timer.time(obj), obj.stages()
    if len(stages) == 1:
        return total, {stages[0][0]: total}
    return total, {path: timer.time(kernel) for path, kernel in stages}


def or_failed(job: Job, body: Callable[[], Ended], mode: evidence.Mode) -> Ended:
    """What ``body`` gives, or a failed outcome when the compiler, driver or memory refuses.

    A launch that hangs ends the process, and leaves a failed record of ``mode``.
    """

    def hung(reason: str) -> None:
        failed = record(job, mode, evidence.Failed(error=reason))
        evidence.write(failed, job.settings.results)

    refusals: tuple[type[BaseException], ...] = (RuntimeError, *job.language.failures())
    try:
        with waiting.last_words(hung):
            return body()
    except refusals as error:
        said = str(error).strip().splitlines()
        return job, evidence.Failed(error=said[0] if said else type(error).__name__)


def check_on_gpu(plan: KernelPlan) -> tuple[evidence.Correctness, evidence.Failed | None]:
    """The comparison with the reference, and the outcome where it found a fault."""
    result = check_plan(plan, "cuda")
    checked = recording.correctness([result], "torch fp32 on the same GPU")
    return checked, None if result.ok else evidence.Failed(
        error=result.explain(), correctness=checked
    )


def record(job: Job, mode: evidence.Mode, outcome: evidence.Outcome) -> evidence.Record:
    """The record of a run on the GPU of this process."""
    device, state = recording.gpu()
    return recording.make(job, mode, device.key, outcome, device=state, more_tools=["torch"])
