"""Table of profiling modes by name, and ``run``, which loads one and runs a plan in it."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mla_var3.errors import UnknownNameError
from mla_var3.profiling.settings import ProfileResult
from mla_var3.runtime.plan import KernelPlan

if TYPE_CHECKING:
    import torch

#: Modes that measure times.
TIMED = ("event", "annotation", "ncu", "nsys")
MODES = ("disabled", "static", *TIMED)


def run(mode: str, plan: KernelPlan, **settings: Any) -> ProfileResult:
    """Run ``plan`` in a mode.

    Args:
        mode: One of ``MODES``.
        plan: What to run.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`, and for mode ``static``
            ``archs`` and ``device``.

    Raises:
        UnknownNameError: There is no such mode.
    """
    if mode not in MODES:
        raise UnknownNameError("mode", mode, list(MODES))
    module = importlib.import_module(f"mla_var3.profiling.{mode}")
    profile: Callable[..., ProfileResult] = getattr(module, f"{mode}_profile_plan")
    return profile(plan, **settings)


def profile_plan(
    plan: KernelPlan,
    prof_type: str = "event",
    *,
    device: torch.device | str | None = None,
    out_dir: Path | str | None = None,
    **settings: Any,
) -> ProfileResult:
    """Run ``plan`` in a mode, on one GPU of several where ``device`` names it.

    Args:
        plan: What to run.
        prof_type: The mode.
        device: ``cuda``, ``cuda:1``, or a torch device; the current GPU by default.
        out_dir: Folder for bulk artefacts.
        settings: Fields of :class:`mla_var3.profiling.settings.Settings`.
    """
    with _on(device):
        return run(prof_type, plan, out_dir=out_dir, **settings)


def _on(device: torch.device | str | None) -> contextlib.AbstractContextManager[Any]:
    if ":" not in str(device):
        return contextlib.nullcontext()
    import torch

    return torch.cuda.device(device)
