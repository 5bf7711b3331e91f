"""Functions compiled with ``--enable-tvm-ffi`` on CPU tensors; needs the DSL and TVM-FFI."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

pytest.importorskip("tvm_ffi", reason="TVM-FFI is not installed")
pytest.importorskip("cutlass", reason="the CuTe DSL is not installed")

import cutlass.cute as cute
import torch
from cutlass.cute.runtime import from_dlpack

from mla_var3.emulator import emulate
from mla_var3.emulator.ffi import Symbols, gpu_view, shown


@cute.kernel
def double(x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    y[thread] = x[thread] + x[thread]


@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    double(x, y).launch(grid=(1, 1, 1), block=(64, 1, 1))


def test_torch_tensors_are_passed_as_they_are() -> None:
    x, y = torch.arange(64, dtype=torch.float32), torch.zeros(64)
    with emulate() as run:
        fake = [from_dlpack(t, enable_tvm_ffi=True) for t in (x, y)]
        compiled = cute.compile(host, *fake, options="--enable-tvm-ffi")
        compiled(x, y)
        compiled(x, y)
    assert torch.equal(y, 2 * x)
    assert len(run.launches) == 2
    assert run.diagnostics == []
    assert run.bytes("global write") == 2 * 256


def test_a_finding_names_the_line_and_the_allocation() -> None:
    x, y = torch.arange(64, dtype=torch.float32), torch.zeros(64)
    with emulate() as run:
        fake = [from_dlpack(t, enable_tvm_ffi=True) for t in (x, y)]
        compiled = cute.compile(host, *fake, options="--enable-tvm-ffi")
        run.own(x, unwritten=True)
        compiled(x, y)
    (found,) = run.diagnostics
    assert found.kind == "uninitialized-read"
    assert "test_ffi.py" in str(found.at)


def test_tensors_are_found_in_containers() -> None:
    owned: list[int] = []
    x = torch.zeros(4)
    out = shown({"a": [x, 3], "b": (x, "text")}, lambda t: owned.append(t.data_ptr()))
    assert owned == [x.data_ptr()] * 2
    assert out["a"][0].__dlpack_device__() == (2, 0)
    assert (out["a"][1], out["b"][1]) == (3, "text")


class Pair(NamedTuple):
    one: Any
    two: Any


@dataclass
class Holder:
    tensor: Any
    other: int
    made: Any = field(default=None, init=False)


def test_named_tuples_and_dataclasses_are_made_again() -> None:
    owned: list[int] = []
    x = torch.zeros(4)

    def own(tensor: torch.Tensor) -> None:
        owned.append(tensor.data_ptr())

    pair, held = shown(Pair(x, 3), own), shown(Holder(x, 5), own)
    assert (type(pair), pair.two) == (Pair, 3)
    assert (type(held), held.other) == (Holder, 5)
    assert {t.__dlpack_device__() for t in (pair.one, held.tensor)} == {(2, 0)}
    assert owned == [x.data_ptr()] * 2
    assert shown(Holder, own) is Holder
    assert gpu_view("text", own) == "text"
    assert gpu_view(x, own).__dlpack_device__() == (2, 0)


def test_a_launch_that_is_stopped_raises_in_the_library() -> None:
    raised: list[tuple[bytes, bytes]] = []
    library = SimpleNamespace(TVMFFIErrorSetRaisedFromCStr=lambda *said: raised.append(said))
    Symbols._raise(SimpleNamespace(library=library), 0, 719)  # type: ignore[arg-type]
    assert raised == [(b"RuntimeError", b"the emulator stopped the launch (719)")]
