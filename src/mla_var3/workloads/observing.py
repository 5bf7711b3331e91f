"""Runs check problems and sums up their inputs and references in few figures, for revisions.

``evidence.revisions`` keeps them: a record checked on other inputs or another reference is stale.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, Any

from mla_var3.evidence.revisions import Observed, Tensor
from mla_var3.workloads.base import Problem

if TYPE_CHECKING:
    import torch

#: Multiplier and increment of the generator of the signs (Numerical Recipes).
_MULTIPLIER, _INCREMENT = 1664525, 1013904223


def problem_of(plan: type[Problem]) -> type[Problem]:
    """The class of a plan that says what is computed: the nearest that no kernel defines."""
    return next(one for one in plan.__mro__ if one.__module__.startswith("mla_var3.workloads."))


def name_of(problem: type[Problem]) -> str:
    """A problem's name in tables: ``<layer>.<class>``."""
    layer = problem.__module__.removeprefix("mla_var3.workloads.").split(".")[0]
    return f"{layer}.{problem.__name__}"


def observe(problem: type[Problem]) -> list[Observed]:
    """Inputs, reference outputs and tolerances of each check problem, in few figures."""
    return [_observed(one) for one in problem().check_plans()]


def _observed(problem: Problem) -> Observed:
    inputs = problem.prepare_inputs("cpu")
    outputs = problem.reference_fn(*inputs)
    named = {f"input{place}": tensor for place, tensor in enumerate(inputs)} | outputs
    return Observed(
        problem=_fields(problem),
        tensors={name: figures(tensor) for name, tensor in named.items()},
        tolerance={name: dataclasses.astuple(problem.tolerance(name)) for name in outputs},
    )


def _fields(problem: Problem) -> dict[str, Any]:
    """All fields of a problem, hidden ones too, that hold a plain value."""
    values = {f.name: getattr(problem, f.name) for f in dataclasses.fields(problem)}
    plain = (bool, int, float, str)
    return {name: value for name, value in values.items() if isinstance(value, plain)}


def figures(tensor: torch.Tensor) -> Tensor:
    """A tensor in figures that two processors agree on."""
    import torch

    values = tensor.detach().double().flatten()
    finite = torch.isfinite(values)
    values = values.masked_fill(~finite, 0.0)
    count = max(values.numel(), 1)
    # Signs without torch's generator, whose sequence is its own affair.
    state = torch.arange(values.numel(), dtype=torch.int64) * _MULTIPLIER + _INCREMENT
    signs = 1.0 - 2.0 * ((state >> 16) & 1).double()
    return Tensor(
        shape=tuple(tensor.shape),
        dtype=str(tensor.dtype).removeprefix("torch."),
        norm=_short(math.sqrt(float(values.square().sum()) / count)),
        sample=_short(float((values * signs).sum()) / math.sqrt(count)),
        infinite=int((~finite).sum()),
    )


def _short(value: float) -> float:
    return float(f"{value:.6g}")
