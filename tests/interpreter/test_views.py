"""Pointers to elements of other widths, and what an operation that changes nothing passes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from cuda.tile import _datatype as dt

from mla_var3.interpreter.arrays import Pointer
from mla_var3.interpreter.launch_report import DiagnosticLog
from mla_var3.interpreter.memory import Memory
from mla_var3.interpreter.ops import views

WIDTHS = {
    dt.bool_: 1, dt.int8: 1, dt.float8_e4m3fn: 1, dt.float16: 2, dt.bfloat16: 2, dt.int32: 4,
    dt.float32: 4, dt.int64: 8, dt.float64: 8,
}  # fmt: skip


@pytest.mark.parametrize("pointee", WIDTHS, ids=str)
def test_a_pointer_goes_on_by_the_bytes_of_its_elements(pointee: dt.DType) -> None:
    assert views.pointee_bytes(dt.pointer_dtype(pointee)) == WIDTHS[pointee]


@pytest.mark.parametrize("to", WIDTHS, ids=str)
@pytest.mark.parametrize("offset", [0, 8, 24])
def test_a_pointer_of_another_type_is_at_the_same_byte(to: dt.DType, offset: int) -> None:
    """cuTile has the operation, and makes it of no kernel that is known."""
    x = Memory(DiagnosticLog(), True).add_arrays([("x", torch.zeros(64, dtype=torch.int32))])[0]
    kind = SimpleNamespace(dtype=dt.pointer_dtype(to))
    result: Any = 1
    op = SimpleNamespace(pointer=0, result_var=SimpleNamespace(get_type=lambda: kind))
    lo = SimpleNamespace(slot=lambda variable: result if variable is op.result_var else variable)
    env: list[Any] = [Pointer(x, offset, 4), None]
    views.reinterpret_pointer(op, lo)(env, None)
    assert (env[1].itemsize, env[1].array) == (WIDTHS[to], x)
    assert env[1].offset * env[1].itemsize == offset * 4
