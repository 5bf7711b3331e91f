"""Import path of ``mla_var3.profiling`` for scripts; nothing loads before it is used."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mla_var3.profiling.settings import ProfileResult
    from mla_var3.runtime.plan import KernelPlan


def profile_plan(
    plan: KernelPlan,
    prof_type: str = "event",
    *,
    device: str | None = None,
    out_dir: Path | str | None = None,
    **settings: Any,
) -> ProfileResult:
    """See :func:`mla_var3.profiling.modes.profile_plan`."""
    from mla_var3.profiling import modes

    return modes.profile_plan(plan, prof_type, device=device, out_dir=out_dir, **settings)
