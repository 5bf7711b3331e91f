"""Mode ``disabled``: runs a plan and checks its outputs, untimed, on a GPU or smaller on a CPU."""

from __future__ import annotations

from typing import Any

from mla_var3 import evidence
from mla_var3.profiling import binding, folders, prologue, recording, running
from mla_var3.profiling.job import Job
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime import waiting
from mla_var3.runtime.check import check_plan
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan


def disabled_profile_plan(plan: KernelPlan, **settings: Any) -> ProfileResult:
    """Run ``plan`` once where torch can, and compare it with its reference.

    On a GPU the problem itself is run with its default tilings; without ``check`` the kernels are
    launched and nothing is written, since nothing was observed. On a CPU the problem is shrunk to
    what runs there within seconds, and always checked.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.

    Raises:
        NotExecutableError: There is no GPU, and the language does not run on a CPU.
    """
    import torch

    job = Job.of(plan, Settings(**settings))
    made = _on_gpu(job) if torch.cuda.is_available() else _on_cpu(job)
    if isinstance(made.outcome, evidence.Passed) and made.outcome.correctness is None:
        return ProfileResult((made,))
    path, _ = evidence.write(made, job.settings.results)
    with folders.new_folder(job.version, "disabled", made.slug, job.settings.out_dir) as folder:
        return prologue.finish([made], [path], folder, job.settings)


def _on_gpu(job: Job) -> evidence.Record:
    job = binding.on_gpu(job)

    def body() -> running.Ended:
        if not job.settings.check:
            obj = binding.bind(job.plan)
            obj()
            waiting.synchronize()
            return job, recording.passed(obj)
        checked, wrong = running.check_on_gpu(job.plan)
        return job, wrong or recording.passed(_shape(job.plan), correctness=checked)

    _, outcome = running.or_failed(job, body, "disabled")
    return running.record(job, "disabled", outcome)


def _on_cpu(job: Job) -> evidence.Record:
    job.plan.validate()
    job = job.with_(job.plan.resolve(job.plan.target).shrunk())
    job.say(f"no GPU: checking {job.version.key} on the CPU at {job.plan.slug()}")
    result = check_plan(job.plan)
    checked = recording.correctness([result], "torch fp32 on the CPU")
    outcome: evidence.Outcome
    if result.ok:
        outcome = recording.passed(_shape(job.plan), correctness=checked)
    else:
        outcome = evidence.Failed(error=result.explain(), correctness=checked)
    return recording.make(job, "disabled", evidence.CPU, outcome, more_tools=["torch"])


def _shape(plan: KernelPlan) -> RuntimeObject:
    """The kernels of a plan, without memory behind their tensors."""
    return plan.plan(*plan.prepare_inputs("meta"))
