"""Mode ``event``: checks a plan on the GPU, times the whole and each stage by CUDA events."""

from __future__ import annotations

from typing import Any

from mla_var3.profiling import prologue
from mla_var3.profiling.settings import ProfileResult, Settings
from mla_var3.runtime.plan import KernelPlan


def event_profile_plan(plan: KernelPlan, **settings: Any) -> ProfileResult:
    """Check ``plan`` on the GPU, then time the whole and each stage; write record and report.

    Args:
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`, such as ``out_dir``,
            ``version``, ``label``, ``bench_runs``.

    Raises:
        ToolchainError: There is no GPU.
    """
    return prologue.profile("event", plan, Settings(**settings))
