"""A run on the GPU: checked, timed, and as a record; the first half of every mode there."""

from __future__ import annotations

from collections.abc import Callable

import torch

from mla_var3 import evidence, languages
from mla_var3.profiling import binding, recording
from mla_var3.profiling.settings import Settings
from mla_var3.profiling.timing import Timer
from mla_var3.runtime import waiting
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

#: Runs launches back to back, as many as asked; gives microseconds.
Replay = Callable[[int], float]
Ended = tuple[KernelPlan, evidence.Passed | evidence.Failed]


def timed(
    version: Version, plan: KernelPlan, settings: Settings
) -> tuple[KernelPlan, evidence.Record]:
    """Check and time a resolved plan.

    Returns:
        The plan with its tilings fixed, and the record of mode ``event``, not yet written.
    """

    def body() -> Ended:
        timer = Timer(settings.bench_runs)
        if settings.no_autotune:
            bound, obj = plan, binding.bind(plan)
        else:
            bound, obj = binding.tuned(version, plan, timer, settings)
        checked = None
        if settings.check:
            settings.say("checking against the reference")
            checked, wrong = check_on_gpu(bound)
            if wrong is not None:
                return bound, wrong
        settings.say(f"timing {settings.bench_runs} runs")
        total, durations = _time(obj, timer)
        return bound, recording.passed(
            obj, correctness=checked, protocol=timer.protocol, total=total,
            durations=durations,
        )  # fmt: skip

    bound, outcome = or_failed(version, plan, body, "event", settings)
    torch.cuda.empty_cache()  # A profiler starts a process of its own, which needs the memory.
    return bound, record(version, bound, "event", outcome)


def _time(
    obj: RuntimeObject, timer: Timer
) -> tuple[evidence.Duration, dict[str, evidence.Duration]]:
    """Time of the whole, and of each stage by its path."""
    total, stages = timer.time(obj), obj.stages()
    if len(stages) == 1:
        return total, {stages[0][0]: total}
    return total, {path: timer.time(kernel) for path, kernel in stages}


def or_failed(
    version: Version,
    plan: KernelPlan,
    body: Callable[[], Ended],
    mode: evidence.Mode,
    settings: Settings,
) -> Ended:
    """What ``body`` gives, or a failed outcome when the compiler, driver or memory refuses.

    A launch that hangs ends the process, and leaves a failed record of ``mode``.
    """

    def hung(reason: str) -> None:
        failed = record(version, plan, mode, evidence.Failed(error=reason))
        evidence.write(failed, settings.results)

    refusals: tuple[type[BaseException], ...] = (
        RuntimeError, *languages.find(version.language).failures(),
    )  # fmt: skip
    try:
        with waiting.last_words(hung):
            return body()
    except refusals as error:
        said = str(error).strip().splitlines()
        return plan, evidence.Failed(error=said[0] if said else type(error).__name__)


def check_on_gpu(plan: KernelPlan) -> tuple[evidence.Correctness, evidence.Failed | None]:
    """The comparison with the reference, and the outcome where it found a fault."""
    result = check_plan(plan, "cuda")
    checked = recording.correctness([result], "torch fp32 on the same GPU")
    return checked, None if result.ok else evidence.Failed(
        error=result.explain(), correctness=checked
    )


def record(
    version: Version, plan: KernelPlan, mode: evidence.Mode, outcome: evidence.Outcome
) -> evidence.Record:
    """The record of a run on the GPU of this process."""
    device, state = recording.gpu()
    tools = recording.tools_of(version, "torch")
    return recording.make(version, plan, mode, device.key, outcome, device=state, tools=tools)
