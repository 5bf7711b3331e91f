"""Correctness: a version's outputs against its plan's reference, on the CPU or a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from mla_var3 import interpreter
from mla_var3.errors import PlanError
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan

#: Largest accepted ||out - ref|| / ||ref|| by dtype of the plan. Outputs rounded to bf16 carry
#: about 2**-9 / sqrt(3) = 1.1e-3 and weights rounded before the second product as much again;
#: fp16 has three more bits.
TOLERANCE = {"bf16": 4e-3, "fp16": 6e-4}
#: A single row may err by this factor more than the whole (fewer terms average out).
ROW_FACTOR = 3.0
#: LSE is computed in fp32 from exact products of the same inputs; absolute, since it is a log.
LSE_TOLERANCE = 2e-3


@dataclass(frozen=True)
class OutputError:
    """How far one output is from its reference."""

    name: str
    relative: float
    worst_row: float
    allowed: float
    allowed_row: float

    @property
    def ok(self) -> bool:
        """Within tolerance; NaN never is."""
        return self.relative <= self.allowed and self.worst_row <= self.allowed_row

    def __str__(self) -> str:
        return (
            f"{self.name}: relative error {self.relative:.2e} (allowed {self.allowed:.1e}), "
            f"worst row {self.worst_row:.2e} (allowed {self.allowed_row:.1e})"
        )


@dataclass(frozen=True)
class CaseResult:
    """One problem, checked."""

    plan: KernelPlan
    errors: tuple[OutputError, ...]
    diagnostics: tuple[interpreter.Diagnostic, ...] = ()
    reports: tuple[interpreter.LaunchReport, ...] = field(default=(), repr=False)

    @property
    def ok(self) -> bool:
        """All outputs right and no diagnostic that is an error."""
        return all(e.ok for e in self.errors) and not self.faults

    @property
    def faults(self) -> list[interpreter.Diagnostic]:
        """Diagnostics of severity error."""
        return [d for d in self.diagnostics if d.severity == "error"]

    @property
    def max_relative_error(self) -> float:
        """Largest relative error over the outputs; NaN when any is NaN."""
        values = [e.relative for e in self.errors]
        return math.nan if any(math.isnan(v) for v in values) else max(values)

    def explain(self) -> str:
        """What is wrong, in one line; empty when nothing is."""
        wrong = [str(e) for e in self.errors if not e.ok]
        wrong += [f"{d.kind} at {d.file}:{d.line}: {d.message}" for d in self.faults]
        return "; ".join(wrong)


def compare(name: str, out: torch.Tensor, ref: torch.Tensor, dtype: str) -> OutputError:
    """Compare one output with its reference.

    Args:
        name: Output name; ``lse`` is compared absolutely, rows at -inf must agree exactly.
        out: Output ``[..., n]``.
        ref: Reference of the same shape, fp32 or better.
        dtype: The plan's dtype, which sets the tolerance.

    Raises:
        PlanError: The shapes differ, so that broadcasting would hide what is missing.
    """
    if out.shape != ref.shape:
        raise PlanError(
            f"output {name} has shape {tuple(out.shape)}, its reference {tuple(ref.shape)}"
        )
    out, ref = out.double(), ref.double().to(out.device)
    if name == "lse":
        same = out == ref  # Also where both are -inf, whose difference is NaN.
        error = torch.where(same, torch.zeros_like(out), (out - ref).abs())
        worst = float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())
        return OutputError(name, worst, worst, LSE_TOLERANCE, LSE_TOLERANCE)
    allowed = TOLERANCE[dtype]
    difference, norm = (out - ref), ref.norm()
    relative = float(difference.norm() / norm) if norm > 0 else float(difference.norm())
    # Rows are measured against the typical row, so that a row near zero is not blown up.
    rows, ref_rows = difference.norm(dim=-1), ref.norm(dim=-1)
    floor = ref_rows[ref_rows > 0].median() if bool((ref_rows > 0).any()) else ref_rows.new_ones(())
    worst = float((rows / ref_rows.clamp_min(floor)).max())
    return OutputError(name, relative, worst, allowed, allowed * ROW_FACTOR)


def poison_outputs(obj: RuntimeObject) -> None:
    """Fill all outputs of all stages with NaN, so that whatever is not written shows."""
    for _, kernel in obj.stages():
        for tensor in kernel.output_tensors.values():
            tensor.fill_(math.nan if tensor.is_floating_point() else 0x5A)


def check_plan(plan: KernelPlan, device: str = "cpu") -> CaseResult:
    """Run ``plan`` once on random inputs and compare with its reference.

    Args:
        plan: A resolved plan.
        device: ``cpu`` interprets (with diagnostics), ``cuda`` launches.

    Returns:
        Errors of each output, with the interpreter's reports when on the CPU.

    Raises:
        PlanError: An output has no reference, or a reference no output.
    """
    plan.validate()
    inputs = plan.prepare_inputs(device)
    obj = plan.plan(*inputs)
    poison_outputs(obj)
    with interpreter.recording() as reports:
        outputs = obj()
    if device != "cpu":
        torch.cuda.synchronize()
    reference = plan.reference_fn(*inputs)
    if set(outputs) != set(reference):
        raise PlanError(
            f"{type(plan).__name__} has outputs {', '.join(sorted(outputs))} but references for "
            f"{', '.join(sorted(reference)) or 'none'}"
        )
    errors = tuple(
        compare(name, outputs[name], expected, plan.dtype) for name, expected in reference.items()
    )
    diagnostics = tuple(d for report in reports for d in report.diagnostics)
    return CaseResult(plan, errors, diagnostics, tuple(reports))


def check_plans(
    plans: Sequence[KernelPlan],
    device: str = "cpu",
    progress: Callable[[CaseResult], None] | None = None,
) -> list[CaseResult]:
    """Check each plan in turn, calling ``progress`` after each."""
    results = []
    for plan in plans:
        results.append(check_plan(plan, device))
        if progress:
            progress(results[-1])
    return results
