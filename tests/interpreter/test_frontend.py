"""The front end: refusals with their line, and the cache of programs."""

from __future__ import annotations

from typing import Any

import cuda.tile as ct
import pytest
import torch

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import frontend, kernel_signature, launch

from .helpers import line_of


@ct.kernel
def double(x, y, TILE: ct.Constant[int]):
    ct.store(y, (0,), ct.load(x, (0,), (TILE,)) * 2)


@ct.kernel
def refused(x):
    ct.store(x, (0,), ct.load(x, (0, 0), (4,)))  # rank


@ct.kernel
def wants_an_array(x: ct.IndexedWithInt64[ct.Array]):
    pass


def helper(tile: Any) -> Any:
    return tile + ct.load(tile, (0,), (4,))


@ct.kernel
def refused_in_a_helper(x):
    ct.store(x, (0,), helper(ct.load(x, (0,), (4,))))


def typed(kernel: Any, *args: Any) -> Any:
    return frontend.typed_ir(kernel, kernel_signature(kernel, args))


def test_the_ir_is_that_of_nvidia() -> None:
    root = typed(double, torch.zeros(4), torch.zeros(4), 4)
    opcodes = [op.op for op in root.traverse()]
    assert opcodes.count("tile_load") == opcodes.count("tile_store") == 1
    assert opcodes[-1] == "return"


def test_a_refusal_names_kernel_line_and_reason() -> None:
    with pytest.raises(InterpreterError) as caught:
        typed(refused, torch.zeros(4))
    message = str(caught.value)
    assert f"test_frontend.py:{line_of(refused, 'rank')}: " in message
    assert "'refused'" in message
    assert "Index size 2 does not match the array rank 1" in message
    assert isinstance(caught.value.__cause__, ct.TileError)


def test_a_refusal_in_a_function_names_its_line() -> None:
    with pytest.raises(InterpreterError) as caught:
        launch((1,), refused_in_a_helper, (torch.zeros(4),))
    first = helper.__code__.co_firstlineno
    assert f"test_frontend.py:{first + 1}: " in str(caught.value)


def test_arguments_that_do_not_fit_the_annotation() -> None:
    with pytest.raises(InterpreterError, match=r"test_frontend\.py:\d+: .*'wants_an_array'"):
        launch((1,), wants_an_array, (3,))


def test_programs_are_kept_by_signature(monkeypatch: pytest.MonkeyPatch) -> None:
    frontend.clear_cache()
    compiled = []
    real = frontend.typed_ir
    monkeypatch.setattr(frontend, "typed_ir", lambda k, s: compiled.append(s.symbol) or real(k, s))
    x, y = torch.arange(4.0), torch.zeros(4)
    for _ in range(3):
        launch((1,), double, (x, y, 4))
    launch((1,), double.replace_hints(occupancy=2), (x, y, 4))
    assert len(compiled) == 1
    launch((1,), double, (x, y, 2))
    launch((1,), double, (torch.arange(4.0).double(), y.double(), 4))
    assert len(compiled) == 3
    assert torch.equal(y, x * 2)
    frontend.clear_cache()
    launch((1,), double, (x, y, 4))
    assert len(compiled) == 4


def test_an_operation_of_another_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from mla_var3.interpreter.handlers import HANDLERS

    monkeypatch.delitem(HANDLERS, "tile_load")
    frontend.clear_cache()
    with pytest.raises(InterpreterError, match=r"test_frontend\.py:\d+: .*'tile_load'"):
        launch((1,), double, (torch.zeros(4), torch.zeros(4), 4))
