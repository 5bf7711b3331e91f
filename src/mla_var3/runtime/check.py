"""Correctness check: runs a plan and compares its outputs with its reference, on a CPU or GPU."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import further_runs, memory, waiting
from mla_var3.runtime.execution import (
    Argued,
    Diagnostic,
    Execution,
    Order,
    argued,
    recording,
    starting,
)
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import KernelPlan
from mla_var3.workloads import Tolerance

if TYPE_CHECKING:
    import torch

#: Of what a host computes too, number by number.
SAME = Tolerance(0.0, 0.0, "absolute")


@dataclass(frozen=True)
class OutputError:
    """How far one output is from its reference."""

    name: str
    error: float
    worst_row: float
    allowed: Tolerance

    @property
    def ok(self) -> bool:
        """Within tolerance; NaN never is."""
        return self.error <= self.allowed.whole and self.worst_row <= self.allowed.row

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.allowed.kind} error {self.error:.2e} (allowed "
            f"{self.allowed.whole:.1e}), worst row {self.worst_row:.2e} (allowed "
            f"{self.allowed.row:.1e})"
        )


@dataclass(frozen=True)
class CaseResult:
    """One problem, checked."""

    plan: KernelPlan
    errors: tuple[OutputError, ...]
    executions: tuple[Execution, ...] = field(default=(), repr=False)
    overwritten: tuple[str, ...] = ()
    left: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Outputs right, inputs and signals as they were, no diagnostic that is an error."""
        kept = not self.overwritten and not self.left
        return all(e.ok for e in self.errors) and not self.faults and kept

    @property
    def diagnostics(self) -> list[Diagnostic]:
        """What was found while the kernels ran."""
        return [d for execution in self.executions for d in execution.diagnostics]

    @property
    def faults(self) -> list[Diagnostic]:
        """Diagnostics of severity error."""
        return [d for d in self.diagnostics if d.severity == "error"]

    def knowing(self, known: Sequence[Argued], slow: bool = False) -> Self:
        """The same, where some findings are no faults.

        Args:
            known: Those that are argued.
            slow: Whether those that only cost time are none either: tuning times tilings.
        """

        def settled(found: Diagnostic) -> Diagnostic:
            if slow and found.slow:
                return dataclasses.replace(found, severity="warning")
            return argued(found, known)

        return dataclasses.replace(
            self,
            executions=tuple(
                dataclasses.replace(one, diagnostics=tuple(map(settled, one.diagnostics)))
                for one in self.executions
            ),
        )

    @property
    def max_relative_error(self) -> float:
        """Largest error over the outputs; NaN when any is NaN."""
        values = [e.error for e in self.errors]
        return math.nan if any(math.isnan(v) for v in values) else max(values)

    def explain(self) -> str:
        """What is wrong, in one line; empty when nothing is."""
        wrong = [str(e) for e in self.errors if not e.ok]
        wrong += [f"input {name} was overwritten" for name in self.overwritten]
        wrong += [
            f"{name} is not as it was before the launch, and the next one begins with it"
            for name in self.left
        ]
        return "; ".join(wrong + [str(d) for d in self.faults])


def compare(name: str, out: torch.Tensor, ref: torch.Tensor, allowed: Tolerance) -> OutputError:
    """Compare one output with its reference.

    Args:
        name: Output name.
        out: Output ``[..., n]``.
        ref: Reference of the same shape, fp32 or better.
        allowed: How far they may be apart.

    Raises:
        PlanError: The shapes differ, so that broadcasting would hide what is missing; there is no
            number to compare; or one of them is complex.
    """
    if out.shape != ref.shape:
        raise PlanError(
            f"output {name} has shape {tuple(out.shape)}, its reference {tuple(ref.shape)}"
        )
    if not out.numel() or out.is_meta or ref.is_meta:
        raise PlanError(f"output {name} holds no number to compare")
    if out.is_complex() != ref.is_complex():
        raise PlanError(f"output {name} is {out.dtype}, its reference {ref.dtype}")
    out, ref = _real(out).double(), _real(ref).double().to(out.device)
    if allowed.kind == "absolute":
        worst = _absolute(out, ref)
        return OutputError(name, worst, worst, allowed)
    return OutputError(name, *_relative(out, ref), allowed)


def _real(tensor: torch.Tensor) -> torch.Tensor:
    """Complex numbers ``[..., n]`` as real ones ``[..., 2 n]``; others as they are."""
    import torch

    if not tensor.is_complex():
        return tensor
    pairs = torch.view_as_real(tensor.resolve_conj())
    return pairs.flatten(-2) if tensor.dim() else pairs


def _absolute(out: torch.Tensor, ref: torch.Tensor) -> float:
    """The largest difference; where both are the same infinity there is none."""
    error = (out - ref).abs().masked_fill(out == ref, 0.0)
    return float(error.nan_to_num(nan=math.inf, posinf=math.inf).max())


def _relative(out: torch.Tensor, ref: torch.Tensor) -> tuple[float, float]:
    """Error over the norm of the whole, and of the worst row against the typical row."""
    difference, norm = out - ref, ref.norm()
    whole = float(difference.norm() / norm) if norm > 0 else float(difference.norm())
    # Rows are measured against the typical row, so that a row near zero is not blown up.
    rows, ref_rows = difference.norm(dim=-1), ref.norm(dim=-1)
    floor = ref_rows[ref_rows > 0].median() if bool((ref_rows > 0).any()) else ref_rows.new_ones(())
    return whole, float((rows / ref_rows.clamp_min(floor)).max())


def _overwritten(
    obj: RuntimeObject, inputs: Sequence[torch.Tensor], before: Sequence[int]
) -> tuple[str, ...]:
    """Names of the inputs that are not as they were."""
    names = {
        tensor.data_ptr(): name
        for _, kernel in obj.stages()
        for name, tensor in kernel.input_tensors.items()
    }
    return tuple(
        names.get(tensor.data_ptr(), str(number))
        for number, (tensor, old, new) in enumerate(
            zip(inputs, before, memory.contents(inputs), strict=True)
        )
        if old != new
    )


def _signals(obj: RuntimeObject, inputs: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Whole numbers that a launch finds and that are neither inputs nor outputs, by name.

    By such counters and flags blocks tell each other what they have done.
    """
    known = {x.data_ptr() for x in inputs}
    known |= {x.data_ptr() for _, kernel in obj.stages() for x in kernel.output_tensors.values()}
    return {
        name: tensor
        for _, kernel in obj.stages()
        for name, tensor in kernel.input_tensors.items()
        if tensor.data_ptr() not in known and not tensor.is_floating_point()
    }


def _is_left(before: torch.Tensor, after: torch.Tensor) -> bool:
    """Whether signals differ in more than their highest bits.

    These a barrier of the whole grid turns over each time, and takes either way.
    """
    import torch

    return bool(((before ^ after) & torch.iinfo(before.dtype).max).any())


def check_plan(
    plan: KernelPlan,
    device: str = "cpu",
    order: Order | None = None,
    runs: int = 1,
    *,
    conflicts: bool = True,
    metadata: bool = False,
    beside: bool = False,
    nan: bool = False,
    retuned: int = 0,
) -> CaseResult:
    """Run ``plan`` on random inputs and compare with its reference.

    Args:
        plan: A resolved plan.
        device: ``cpu`` runs the kernels as their language can (with diagnostics), ``cuda``
            launches them.
        order: The order in which blocks start, where the language lets it be chosen.
        runs: How often its launches are run; outputs of the last are compared. What a launch
            leaves behind for the next one shows in a second run only, and so does what the first
            keeps of inputs, which have other values then.
        conflicts: Whether bank conflicts and sectors are counted too, which says nothing of right
            and wrong.
        metadata: Whether what a decoding step makes before its launches is checked too.
        beside: Whether another plan of the same sizes is run beside it too, stage by stage: what
            the two share, such as memory for partial results, is of neither. And on inputs whose
            rows lie apart.
        nan: Whether it is run on an input that holds NaN, too.
        retuned: Under how many other tilings its launches are run as they were bound, as tuning
            runs them.

    Returns:
        Errors of each output, with what the CPU runs showed.

    Raises:
        PlanError: An output has no reference, or a reference no output.
        NotExecutableError: The language cannot run the kernel on the CPU.
    """
    plan.validate()
    inputs = plan.prepare_inputs(device)
    before = memory.contents(inputs)
    # What binding copies of them is not what launches find, but for layouts that a library wants.
    with contextlib.nullcontext() if plan.keeps_layouts else memory.other_bytes(inputs):
        obj = plan.plan(*inputs)
    signals = _signals(obj, inputs)
    found = {name: tensor.clone() for name, tensor in signals.items()}
    memory.poison_outputs(obj)
    once = plan.metadata(inputs[0].device) if metadata else ()
    for one in once:
        memory.poison_outputs(one.kernel)
    with recording(conflicts) as executions, starting(order):
        made = [one.kernel() for one in once]
        others = runs > 1 and not plan.keeps_layouts
        with memory.other_values(inputs) if others else contextlib.nullcontext():
            outputs = obj()
        for _ in range(runs - 1):
            memory.poison_outputs(obj)
            outputs = obj()
        kept = {name: tensor.clone() for name, tensor in outputs.items()}
        further = [*further_runs.beside(plan, obj, inputs)] if beside else []
        further += further_runs.retuned(plan, obj, retuned)
        further += further_runs.spread(plan, inputs) if beside else ()
        spoilt = [*further_runs.with_nan(plan, obj, inputs)] if nan else []
    if device != "cpu":
        waiting.synchronize()
    overwritten = _overwritten(obj, inputs, before)
    left = tuple(name for name, was in found.items() if _is_left(was, signals[name]))
    reference = plan.reference_fn(*inputs)
    if set(outputs) != set(reference):
        raise PlanError(
            f"{type(plan).__name__} has outputs {', '.join(sorted(outputs))} but references for "
            f"{', '.join(sorted(reference)) or 'none'}"
        )
    errors = tuple(
        compare(f"{name}{said}", found[name], expected, plan.tolerance(name))
        for said, found in (("", kept), *further)
        for name, expected in reference.items()
    )
    errors += tuple(
        compare(f"{name}{said}", found[name], expected, plan.tolerance(name))
        for said, found, references in spoilt
        for name, expected in references.items()
    )
    errors += tuple(
        compare(f"{one.kernel.name}.{name}", ran[name][..., : expected.shape[-1]], expected, SAME)
        for one, ran in zip(once, made, strict=True)
        for name, expected in one.expected.items()
    )
    return CaseResult(plan, errors, tuple(executions), overwritten, left)
