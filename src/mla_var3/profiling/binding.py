"""Binds a plan to tensors on the GPU and, unless turned off, tunes its tilings by timing."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from mla_var3 import languages
from mla_var3.devices import Device
from mla_var3.errors import ToolchainError
from mla_var3.profiling import recording
from mla_var3.profiling.job import Job
from mla_var3.profiling.timing import Timer
from mla_var3.runtime import autotune
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.plan import KernelPlan

#: Runs that each tiling is timed for.
TUNING_RUNS = 10


def require_gpu(mode: str) -> None:
    """Raise ToolchainError unless torch sees a GPU."""
    import torch

    if not torch.cuda.is_available():
        raise ToolchainError(
            f"mode {mode} needs a CUDA GPU and torch sees none; --prof_type=static needs none"
        )


def resolve_for_gpu(plan: KernelPlan) -> KernelPlan:
    """``plan`` with its open sizes filled in for the GPU, validated."""
    return _resolved(plan, recording.gpu()[0])


def on_gpu(job: Job) -> Job:
    """The job for the GPU here, its plan's open sizes filled in for it."""
    device = recording.gpu()[0]
    return job.with_(_resolved(job.plan, device), device)


def _resolved(plan: KernelPlan, device: Device) -> KernelPlan:
    plan = plan.resolve(device.machine(plan.dtype))
    plan.validate()
    return plan


def bind(plan: KernelPlan) -> RuntimeObject:
    """The plan's kernels on fresh inputs on the GPU."""
    return plan.plan(*plan.prepare_inputs("cuda"))


def tuned(job: Job, timer: Timer) -> tuple[Job, RuntimeObject]:
    """Bind a job of the GPU here with tuned tilings: stored ones, else those that time fastest now.

    Returns:
        The job with the tilings of its plan fixed, and the bound runtime object.
    """
    assert job.device is not None
    version, key, settings = job.version, job.device.key, job.settings
    user = dict(job.plan.tilings)
    stored = {} if settings.retune else autotune.load(version, job.plan, key)
    plan = dataclasses.replace(job.plan, tilings={**stored, **user})
    obj = bind(plan)
    if stored:
        return job.with_(plan), obj
    trials = autotune.tune(
        obj, plan, _measure(timer), limit=settings.tune_max_iters, progress=job.say
    )
    if not trials:
        return job.with_(plan), obj
    autotune.remember(version, plan, key, recording.RUN, trials)
    chosen = {kernel.name: kernel.tiling for _, kernel in obj.stages()}
    autotune.save(version, plan, key, chosen)
    # Bound again, since a plan may size its other stages by a tiling.
    plan = dataclasses.replace(plan, tilings={**chosen, **user})
    return job.with_(plan), bind(plan)


def _measure(timer: Timer) -> Callable[[Kernel], float]:
    def median_us(kernel: Kernel) -> float:
        try:
            return sorted(timer.samples_us(kernel, TUNING_RUNS))[TUNING_RUNS // 2]
        except languages.find(kernel.language).failures() as error:
            raise ToolchainError(str(error)) from error  # A tiling that the compiler refuses.

    return median_us
