"""Runs a bound plan in further ways, in which it has to be as right.

Beside another plan of the same sizes, under tilings that it was not bound under, on inputs whose
rows lie apart, and on an input that holds NaN.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from mla_var3.errors import PlanError
from mla_var3.runtime import memory
from mla_var3.runtime.autotune import candidates
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import tiling_text

if TYPE_CHECKING:
    import torch

Outputs = Mapping[str, "torch.Tensor"]
#: Bytes of the smallest numbers that are given NaN: those of fp8 are scaled.
SMALLEST = 2


def beside(
    plan: KernelPlan, obj: RuntimeObject, inputs: Sequence[torch.Tensor]
) -> Iterator[tuple[str, Outputs]]:
    """Outputs once another plan of these sizes, on other values, has run stage by stage beside."""
    if len(obj.stages()) == 1:
        return
    others = memory.copies(inputs)
    other = plan.plan(*others)
    with memory.other_values(others):
        for one in (obj, other):
            memory.poison_outputs(one)
        for ours, theirs in zip(obj.stages(), other.stages(), strict=True):
            ours[1]()
            theirs[1]()
    yield " beside another plan of the same sizes", _outputs(obj)


def retuned(plan: KernelPlan, obj: RuntimeObject, most: int) -> Iterator[tuple[str, Outputs]]:
    """Outputs under tilings that tuning times, of launches that were bound under others."""
    if not most:
        return  # Stages that other plans made take no tilings of this one.
    bound = obj.tilings()
    kernels = dict(obj.stages())
    ways = {path: candidates(kernel, plan, most + 1) for path, kernel in kernels.items()}
    for number in range(1, max(map(len, ways.values()))):
        for path, kernel in kernels.items():
            kernel.tiling = ways[path][number % len(ways[path])]
        memory.poison_outputs(obj)
        obj()
        told = "; ".join(tiling_text(kernel.tiling.values()) for kernel in kernels.values())
        yield f" under {told}, bound under others", _outputs(obj)
    for path, kernel in kernels.items():
        kernel.tiling = bound[path]


def spread(plan: KernelPlan, inputs: Sequence[torch.Tensor]) -> Iterator[tuple[str, Outputs]]:
    """Outputs for inputs whose rows lie apart, but for those of which the plan refuses such.

    Also of inputs whose groups of rows alone do, and in another order. They hold no number that
    makes sense while the plan is bound: one that keeps copies keeps that. In another order a plan
    may copy them: what is one axis for its kernels is none then.
    """
    for grouped, turned, said in (
        (False, False, "apart"), (True, False, "apart by groups"), (False, True, "in another order")
    ):  # fmt: skip
        if plan.keeps_layouts or (turned and plan.in_order):
            return
        apart = memory.spread(inputs, grouped=grouped, turned=turned)
        taken = _taken(plan, inputs, apart) if apart is not None else None
        if taken is None:
            continue
        with contextlib.nullcontext() if turned else memory.other_bytes(taken):
            obj = plan.plan(*taken)
        memory.poison_outputs(obj)
        obj()
        yield f" of inputs whose rows lie {said}", _outputs(obj)


def _taken(
    plan: KernelPlan, inputs: Sequence[torch.Tensor], apart: Sequence[torch.Tensor]
) -> list[torch.Tensor] | None:
    """Those inputs apart that a plan takes so, beside the others; None where it takes none."""
    found, some = [*inputs], False
    for place, x in enumerate(apart):
        if x.stride() == inputs[place].stride():
            continue
        one = [*found[:place], x, *found[place + 1 :]]
        with contextlib.suppress(PlanError):
            plan.plan(*one)
            found, some = one, True
    return found if some else None


def with_nan(
    plan: KernelPlan, obj: RuntimeObject, inputs: Sequence[torch.Tensor]
) -> Iterator[tuple[str, Outputs, Outputs]]:
    """Outputs where the first number of the first input is NaN, and the reference's.

    What is NaN in both is 0 in both: a row that has read a NaN must not look as if it were right,
    and no other row may have it.
    """
    first = inputs[0]
    if not first.is_floating_point() or first.element_size() < SMALLEST or not first.numel():
        return
    place = (0,) * first.ndim
    was = first[place].clone()
    first[place] = float("nan")
    memory.poison_outputs(obj)
    obj()
    found, expected = _outputs(obj), dict(plan.reference_fn(*inputs))
    first[place] = was
    for name, reference in expected.items():
        both = reference.isnan().cpu()
        if name not in plan.maxima:
            both &= found[name].isnan().cpu()
        found[name] = found[name].masked_fill(both.to(found[name].device), 0.0)
        expected[name] = reference.masked_fill(both.to(reference.device), 0.0)
    yield " of an input with NaN", found, expected


def _outputs(obj: RuntimeObject) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in obj.output_tensors.items()}
