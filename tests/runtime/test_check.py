from __future__ import annotations

import dataclasses
import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mla_var3.errors import PlanError
from mla_var3.runtime import KernelPipeline, Metadata
from mla_var3.runtime.check import (
    CaseResult,
    OutputError,
    check_plan,
    compare,
)
from mla_var3.runtime.execution import Argued, Diagnostic, Execution
from mla_var3.runtime.memory import other_bytes, other_values, poison_outputs
from mla_var3.workloads import Tolerance
from mla_var3.workloads.base import RELATIVE, ROW_FACTOR
from mla_var3.workloads.mla.problems import LSE_TOLERANCE

from .toys import ToyPlan, kernel

INF = math.inf


LSE = Tolerance(LSE_TOLERANCE, LSE_TOLERANCE, "absolute")


def allowed(dtype: str) -> Tolerance:
    return Tolerance(RELATIVE[dtype], RELATIVE[dtype] * ROW_FACTOR)


def rows(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


class TestCompareOutputs:
    @pytest.mark.parametrize("dtype", ["bf16", "fp16"])
    def test_the_same_is_right_and_so_is_a_small_error(self, dtype):
        ref = rows(3, 5, 64)
        assert compare("o", ref, ref, allowed(dtype)).error == 0.0
        assert compare("o", ref * (1 + 0.9 * RELATIVE[dtype]), ref, allowed(dtype)).ok
        assert not compare("o", ref * (1 + 1.1 * RELATIVE[dtype]), ref, allowed(dtype)).ok

    @pytest.mark.parametrize("bad", [math.nan, INF, -INF])
    def test_one_bad_element_is_wrong(self, bad):
        ref = rows(3, 5, 64)
        out = ref.clone()
        out[1, 2, 3] = bad
        assert not compare("o", out, ref, allowed("bf16")).ok

    def test_one_bad_row_is_wrong_though_the_whole_is_near(self):
        ref = rows(10_000, 8)
        out = ref.clone()
        out[77] += 4 * RELATIVE["bf16"] * ref[77].norm() / math.sqrt(8)
        error = compare("o", out, ref, allowed("bf16"))
        assert error.error < RELATIVE["bf16"] * ROW_FACTOR < error.worst_row
        assert not error.ok

    def test_a_row_near_zero_is_measured_against_the_typical_one(self):
        ref = rows(100, 8)
        ref[3] *= 1e-6
        out = ref.clone()
        out[3] += 1e-5
        assert compare("o", out, ref, allowed("bf16")).ok

    def test_rows_that_must_be_zero(self):
        ref = torch.zeros(4, 8)
        assert compare("o", ref, ref, allowed("bf16")).ok
        assert not compare("o", ref + 0.1, ref, allowed("bf16")).ok
        half = rows(4, 8)
        half[:2] = 0.0
        assert compare("o", half, half, allowed("bf16")).ok
        wrong = half.clone()
        wrong[0] = 0.1
        assert not compare("o", wrong, half, allowed("bf16")).ok

    @given(factor=st.floats(1e-6, 1e6))
    def test_scaling_both_changes_nothing(self, factor):
        ref = rows(6, 16).double()
        out = ref + 1e-3 * rows(16).double()
        one, scaled = (
            compare("o", out, ref, allowed("bf16")),
            compare("o", out * factor, ref * factor, allowed("bf16")),
        )
        assert scaled.error == pytest.approx(one.error, rel=1e-6)
        assert scaled.worst_row == pytest.approx(one.worst_row, rel=1e-6)

    @pytest.mark.parametrize("shape", [(3, 5), (3, 5, 1), (1, 64), (3, 64)])
    def test_another_shape_is_refused(self, shape):
        with pytest.raises(PlanError, match=re.escape(f"output o has shape {shape}")):
            compare("o", torch.zeros(shape), torch.zeros(3, 5, 64), allowed("bf16"))


class TestCompareLse:
    def test_rows_without_keys_agree_exactly(self):
        ref = torch.tensor([1.0, -INF, 2.0])
        assert compare("lse", ref, ref, LSE).ok

    @pytest.mark.parametrize(
        ("out", "ref"),
        [(0.0, -INF), (-INF, 0.0), (INF, -INF), (math.nan, -INF), (math.nan, 0.0), (-1e30, -INF)],
    )
    def test_what_is_not_the_same_infinity_is_wrong(self, out, ref):
        error = compare("lse", torch.tensor([1.0, out]), torch.tensor([1.0, ref]), LSE)
        assert not error.ok
        assert error.error == INF

    def test_the_difference_is_absolute(self):
        ref = torch.tensor([100.0, 0.0])
        assert compare("lse", ref + 0.9 * LSE_TOLERANCE, ref, LSE).ok
        assert not compare("lse", ref + 1.1 * LSE_TOLERANCE, ref, LSE).ok


class TestResult:
    def error(self, relative: float, allowed: float = 1.0) -> OutputError:
        return OutputError("o", relative, relative, Tolerance(allowed, allowed))

    def execution(self, severity: str) -> Execution:
        found = Diagnostic("out-of-bounds", severity, "k.py", 7, "reads past the end")  # type: ignore[arg-type]
        return Execution("k", diagnostics=(found,))

    def test_errors_of_the_interpreter_make_right_numbers_wrong(self):
        plan = ToyPlan()
        right = CaseResult(plan, (self.error(0.5),), (self.execution("warning"),))
        assert right.ok
        assert right.explain() == ""
        wrong = CaseResult(plan, (self.error(0.5),), (self.execution("error"),))
        assert not wrong.ok
        assert wrong.explain() == "out-of-bounds at k.py:7: reads past the end"

    def test_the_largest_error_is_told_and_nan_is_largest(self):
        plan = ToyPlan()
        assert CaseResult(plan, (self.error(0.1), self.error(0.3))).max_relative_error == 0.3
        nan = CaseResult(plan, (self.error(0.1), self.error(math.nan)))
        assert math.isnan(nan.max_relative_error)
        assert not nan.ok
        assert nan.explain().startswith("o: relative error nan (allowed 1.0e+00)")


def test_outputs_of_all_stages_are_poisoned():
    x = torch.arange(4.0)
    counter = torch.zeros(4, dtype=torch.int32)
    first, second = kernel("a", x), kernel("b", x)
    second._output_tensors["count"] = counter
    first.output_tensors["y"].zero_()
    poison_outputs(KernelPipeline(_name="p", stages=[first, second]))
    assert first.output_tensors["y"].isnan().all()
    assert second.output_tensors["y"].isnan().all()
    assert (counter == 0x5A).all()


def test_a_right_plan_passes_with_its_reports():
    result = check_plan(ToyPlan())
    assert result.ok
    assert result.max_relative_error == 0.0
    assert [run.kernel for run in result.executions] == ["scaled"]
    assert result.executions[0].bytes_stored == 80


def test_a_wrong_plan_fails_and_says_by_how_much():
    result = check_plan(ToyPlan(wrong=True))
    assert not result.ok
    assert "y: relative error 4.99e-01 (allowed 4.0e-03)" in result.explain()


class HalfWritten(ToyPlan):
    def plan(self, *inputs):
        built = super().plan(*inputs)
        built.grid_fn = lambda _: (1,)
        return built


def test_what_is_not_written_is_wrong():
    result = check_plan(HalfWritten())
    assert math.isnan(result.max_relative_error)
    assert not result.ok


class Overwriting(ToyPlan):
    def plan(self, *inputs):
        first = kernel("toy", inputs[0])
        # The reference would be of what the second stage leaves of the input.
        second = kernel("after", inputs[0], inputs[0], output="z")
        return KernelPipeline(_name="p", stages=[second, first])


def test_an_input_that_a_kernel_overwrites_is_wrong():
    result = check_plan(Overwriting())
    assert result.overwritten == ("x",)
    assert "input x was overwritten" in result.explain()
    assert not result.ok


class Once(ToyPlan):
    """Right the first time only, as where a counter is not set back."""

    def plan(self, *inputs):
        built = super().plan(*inputs)
        grids = iter([built.grid_fn(built.tiling), (1,)])
        built.grid_fn = lambda _: next(grids)
        return built


def test_what_a_launch_leaves_behind_shows_in_the_next_one():
    assert check_plan(Once()).ok
    assert not check_plan(Once(), runs=2).ok


@dataclasses.dataclass(frozen=True, kw_only=True)
class Signaling(ToyPlan):
    """A launch finds signals; before it ends they become ``signal``."""

    signal: int = 0
    found: int = 0

    def plan(self, *inputs):
        built = super().plan(*inputs)
        signals = torch.full((3,), self.found, dtype=torch.int32)
        scratch = torch.zeros(2)
        built.input_tensors = {**built.input_tensors, "signals": signals, "scratch": scratch}
        grid = built.grid_fn

        def launched(tiling):
            signals[1], scratch[1] = self.signal, 1.0
            return grid(tiling)

        built.grid_fn = launched
        return built


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**31), 2**31 - 1))
def test_signals_are_left_as_they_were_but_for_the_highest_bit(found, signal):
    """A barrier of a whole grid turns that bit over; other scratch memory may hold anything."""
    same = (found - signal) % 2**31 == 0
    result = check_plan(Signaling(found=found, signal=signal))
    assert result.left == (() if same else ("signals",))
    assert result.ok == same
    assert ("signals is not as it was before the launch" in result.explain()) != same


@dataclasses.dataclass(frozen=True, kw_only=True)
class Copying(ToyPlan):
    """Copies its input when it is bound, or at the first call and never again."""

    late: bool = False

    def plan(self, *inputs):
        (x,) = inputs
        copy = x.clone()
        built = super().plan(copy)
        grid, calls = built.grid_fn, []

        def launched(tiling):
            if self.late and not calls:
                copy.copy_(x)
            calls.append(tiling)
            return grid(tiling)

        built.grid_fn = launched
        return built


def test_what_binding_copies_of_inputs_is_wrong():
    assert not check_plan(Copying()).ok


def test_what_the_first_launch_keeps_of_inputs_shows_in_the_second():
    assert check_plan(Copying(late=True)).ok
    assert not check_plan(Copying(late=True), runs=2).ok


@pytest.mark.parametrize("change", [other_bytes, other_values])
def test_inputs_are_as_they_were_afterwards(change):
    both = rows(4, 6).bfloat16()
    inputs = [*both.split((4, 2), -1), rows(8).half()[::2], torch.arange(5, dtype=torch.uint8)]
    inputs += [rows(3).to(torch.float8_e4m3fn), rows(3)[:, None].expand(3, 5), torch.arange(4)]
    before = [x.float().clone() for x in inputs]
    with change(inputs):
        changed = [not torch.equal(x.float(), y) for x, y in zip(inputs, before, strict=True)]
        assert changed == [True] * 6 + [change is other_bytes]
    assert all(torch.equal(x.float(), y) for x, y in zip(inputs, before, strict=True))


def test_a_finding_that_is_argued_is_no_fault():
    found = Diagnostic("race", "error", "kernels/a/kit.py", 7, "two stores")
    result = CaseResult(ToyPlan(), (), (Execution("k", diagnostics=(found,)),))
    assert not result.ok
    assert not result.knowing([Argued("race", "other.py", None, "why")]).ok
    assert result.knowing([Argued("race", "kit.py", None, "the same is stored")]).ok


def test_what_only_costs_time_is_a_fault_unless_tuning_is_to_see_it():
    found = Diagnostic("serialized", "error", "kit.py", 7, "it waits", slow=True)
    result = CaseResult(ToyPlan(), (), (Execution("k", diagnostics=(found,)),))
    assert not result.knowing([]).ok
    assert result.knowing([], slow=True).ok


class NothingCompared(ToyPlan):
    def reference_fn(self, *inputs):
        return {}


class MoreCompared(ToyPlan):
    def reference_fn(self, *inputs):
        return {**super().reference_fn(*inputs), "lse": inputs[0]}


@pytest.mark.parametrize(
    ("plan", "names"), [(NothingCompared(), "none"), (MoreCompared(), "lse, y")]
)
def test_every_output_has_a_reference_and_the_reverse(plan, names):
    with pytest.raises(PlanError, match=f"has outputs y but references for {names}"):
        check_plan(plan)


def test_an_invalid_plan_is_refused_before_anything_runs():
    with pytest.raises(PlanError, match="size=0"):
        check_plan(ToyPlan(size=0))


@pytest.mark.gpu
def test_on_a_gpu():
    assert check_plan(ToyPlan(), "cuda").ok
    assert not check_plan(dataclasses.replace(ToyPlan(), wrong=True), "cuda").ok


@pytest.mark.parametrize("shape", [(), (5,), (3, 4)])
def test_of_complex_numbers_both_parts_are_compared(shape):
    ref = torch.randn(shape, dtype=torch.complex64)
    tolerance = Tolerance(1e-3, 3e-3)
    assert compare("o", ref.conj().conj(), ref, tolerance).ok
    assert not compare("o", ref.conj(), ref, tolerance).ok


class TestMetadata:
    """What a decoding step makes before its launches is held against what the host makes."""

    @staticmethod
    def plan(expected_factor: float) -> ToyPlan:
        class Scheduled(ToyPlan):
            def metadata(self, device):
                x = torch.arange(24.0, device=device)
                made = kernel("schedule", x, factor=3.0)
                return [Metadata(made, {"y": x[:20] * expected_factor})]

        return Scheduled(size=5)

    def test_it_is_checked_where_asked_for(self):
        assert check_plan(self.plan(2.0)).ok
        result = check_plan(self.plan(2.0), metadata=True)
        assert not result.ok
        assert result.explain().startswith("schedule.y: absolute error")

    def test_the_same_numbers_are_right_and_its_run_is_recorded(self):
        result = check_plan(self.plan(3.0), metadata=True)
        assert result.ok
        assert len(result.executions) == 1 + len(check_plan(self.plan(3.0)).executions)
