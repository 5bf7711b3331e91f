"""Mode ``disabled``: run and check, without a time: on the GPU, or small on the CPU."""

from __future__ import annotations

from typing import Any

from mla_var3 import evidence
from mla_var3.profiling import binding, folders, prologue, recording, running
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

    given = Settings(**settings).of(plan)
    made = _on_gpu(plan, given) if torch.cuda.is_available() else _on_cpu(plan, given)
    if isinstance(made.outcome, evidence.Passed) and made.outcome.correctness is None:
        return ProfileResult((made,))
    path, _ = evidence.write(made, given.results)
    version = given.version_of(plan)
    with folders.new_folder(version, "disabled", made.slug, given.out_dir) as folder:
        return prologue.finish([made], [path], folder, given)


def _on_gpu(plan: KernelPlan, settings: Settings) -> evidence.Record:
    version, plan = settings.version_of(plan), binding.resolve_for_gpu(plan)

    def body() -> running.Ended:
        if not settings.check:
            obj = binding.bind(plan)
            obj()
            waiting.synchronize()
            return plan, recording.passed(obj)
        checked, wrong = running.check_on_gpu(plan)
        return plan, wrong or recording.passed(_shape(plan), correctness=checked)

    _, outcome = running.or_failed(version, plan, body, "disabled", settings)
    return running.record(version, plan, "disabled", outcome)


def _on_cpu(plan: KernelPlan, settings: Settings) -> evidence.Record:
    version = settings.version_of(plan)
    plan.validate()
    small = plan.resolve(plan.target).shrunk()
    settings.say(f"no GPU: checking {version.key} on the CPU at {small.slug()}")
    result = check_plan(small)
    checked = recording.correctness([result], "torch fp32 on the CPU")
    outcome: evidence.Outcome
    if result.ok:
        outcome = recording.passed(_shape(small), correctness=checked)
    else:
        outcome = evidence.Failed(error=result.explain(), correctness=checked)
    tools = recording.tools_of(version, "torch")
    return recording.make(version, small, "disabled", evidence.CPU, outcome, tools=tools)


def _shape(plan: KernelPlan) -> RuntimeObject:
    """The kernels of a plan, without memory behind their tensors."""
    return plan.plan(*plan.prepare_inputs("meta"))
