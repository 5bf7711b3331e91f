"""What the adversarial and property tests share: launching, source lines, reference rounding."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import Diagnostic, LaunchReport, Options, launch

#: Integer dtypes with their width and signedness.
INTEGERS = {
    torch.int8: (8, True),
    torch.int16: (16, True),
    torch.int32: (32, True),
    torch.int64: (64, True),
    torch.uint8: (8, False),
    torch.uint16: (16, False),
    torch.uint32: (32, False),
    torch.uint64: (64, False),
}

#: Floating formats as (precision in bits, least normal exponent, largest finite value).
FLOATS = {
    torch.float16: (11, -14, 65504.0),
    torch.bfloat16: (8, -126, (2 - 2**-7) * 2.0**127),
    torch.float32: (24, -126, (2 - 2**-23) * 2.0**127),
    torch.float8_e4m3fn: (4, -6, 448.0),
    torch.float8_e5m2: (3, -14, 57344.0),
}
TF32 = (11, -126, (2 - 2**-10) * 2.0**127)


def run(kernel: Any, *args: Any, grid: tuple[int, ...] = (1,), **options: Any) -> LaunchReport:
    """Launch ``kernel`` on the CPU with the given options."""
    return launch(grid, kernel, args, options=Options(**options))


def run_clean(kernel: Any, *args: Any, grid: tuple[int, ...] = (1,), **options: Any) -> None:
    """Launch ``kernel`` and require that the interpreter has nothing to say against it."""
    report = run(kernel, *args, grid=grid, **options)
    assert report.diagnostics == []


def refusal(
    kernel: Any, *args: Any, grid: tuple[int, ...] = (1,), **options: Any
) -> InterpreterError:
    """Launch a kernel that must be refused, and return the error: one line that says why."""
    with pytest.raises(InterpreterError) as caught:
        run(kernel, *args, grid=grid, **options)
    assert len(str(caught.value).splitlines()) == 1, str(caught.value)
    return caught.value


def refusal_by_cutile(kernel: Any, *args: Any, grid: tuple[int, ...] = (1,)) -> InterpreterError:
    """Launch a kernel that cuTile must refuse: its own error is the cause of ours."""
    error = refusal(kernel, *args, grid=grid)
    assert isinstance(error.__cause__, ct.TileError)
    return error


def line_of(kernel: Any, mark: str) -> int:
    """Number of the source line of ``kernel`` that carries the comment ``# <mark>``."""
    lines, first = inspect.getsourcelines(kernel._annotated_function.pyfunc)
    [number] = [first + i for i, line in enumerate(lines) if line.rstrip().endswith(f"# {mark}")]
    return number


def only(report: LaunchReport, kind: str) -> Diagnostic:
    """The single diagnostic of a launch, which must be of this kind."""
    assert [d.kind for d in report.diagnostics] == [kind], report.diagnostics
    return report.diagnostics[0]


def assert_points_at(diagnostic: Diagnostic, kernel: Any, mark: str) -> None:
    """Require that a diagnostic names the file of ``kernel`` and the line marked ``# <mark>``."""
    source = inspect.getsourcefile(kernel._annotated_function.pyfunc)
    assert source is not None
    assert Path(str(diagnostic.file)).name == Path(source).name
    assert diagnostic.line == line_of(kernel, mark)


def wrap(value: int, dtype: torch.dtype) -> int:
    """``value`` reduced to the range of an integer dtype, as two's complement does."""
    bits, signed = INTEGERS[dtype]
    value %= 1 << bits
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def limits(dtype: torch.dtype) -> tuple[int, int]:
    """Least and greatest value of an integer dtype."""
    bits, signed = INTEGERS[dtype]
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)


def round_even(value: float | Fraction, precision: int, least: int, largest: float) -> float:
    """Round to the nearest number of a binary format, ties to even, with exact arithmetic."""
    if isinstance(value, float) and (math.isnan(value) or math.isinf(value) or value == 0):
        return value
    exact = Fraction(value)
    if exact == 0:
        return 0.0
    exponent = math.frexp(abs(float(exact)))[1] - 1
    if abs(exact) >= Fraction(2) ** (exponent + 1):  # float() rounded up to a power of two
        exponent += 1
    quantum = Fraction(2) ** (max(exponent, least) - precision + 1)
    rounded = round(exact / quantum) * quantum  # round() of a Fraction goes to even on ties
    if abs(rounded) > Fraction(largest):
        return math.copysign(math.inf, exact)
    return math.copysign(float(rounded), exact)


def round_to(values: Iterable[float], dtype: torch.dtype) -> list[float]:
    """Round numbers to a floating dtype with exact arithmetic."""
    return [round_even(value, *FLOATS[dtype]) for value in values]


def assert_same(actual: torch.Tensor, expected: Iterable[Any]) -> None:
    """Require equal values, with NaN equal to NaN and -0.0 unequal to 0.0."""
    got, want = actual.flatten().tolist(), list(expected)
    assert [_token(v) for v in got] == [_token(v) for v in want]


def _token(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else (value, math.copysign(1.0, value))
    return value
