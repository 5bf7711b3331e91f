"""The CUDA runtime that compiled host code calls; needs neither the DSL nor a GPU."""

import ctypes
from types import SimpleNamespace

import numpy as np
import pytest

from mla_var3.emulator import emulation
from mla_var3.emulator.emulation import Emulation
from mla_var3.emulator.host_runtime import FAILED, SYMBOLS, Runtime
from mla_var3.emulator.options import Options
from mla_var3.emulator.units.tensormap import TensorMap, tiled


def test_what_a_device_says_of_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime, out = Runtime("text"), ctypes.c_int(-1)

    def asked(attribute: int) -> int:
        assert (
            runtime.callbacks["_cudaDeviceGetAttribute"](ctypes.addressof(out), attribute, 0) == 0
        )
        return out.value

    assert [asked(n) for n in (75, 76, 97, 3, 999)] == [9, 0, 232448, 1024, 0]
    emulated = Emulation(Options(multiprocessors=132))
    emulated.device = emulated.device_of("sm_120a")
    monkeypatch.setattr(emulation, "_active", emulated)
    assert [asked(n) for n in (75, 76, 97)] == [12, 0, 99 << 10]
    assert not emulated.counted
    assert asked(16) == 132
    assert emulated.counted
    for name in ("_cudaGetDevice", "_cuKernelGetAttribute"):
        out.value = 7
        given = [ctypes.addressof(out), 0, None, 0][: len(SYMBOLS[name])]
        assert runtime.callbacks[name](*given) == 0
        assert out.value == 0
    assert runtime.callbacks["cuda_dialect_assert_success"](3) == 0


def test_kernels_have_handles_of_their_own() -> None:
    runtime, out = Runtime("text"), ctypes.c_void_p()
    handles = []
    for name in (b"one", b"two"):
        assert runtime.callbacks["_cudaLibraryGetKernel"](ctypes.addressof(out), None, name) == 0
        handles.append(out.value)
    assert [runtime.kernels[h] for h in handles] == ["one", "two"]
    given = [ctypes.addressof(out), *[None] * 3, 0, None, None, 0]
    assert runtime.callbacks["_cudaLibraryLoadData"](*given) == 0
    assert out.value == id(runtime)


def test_no_exception_passes_through_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime("text")
    launch = runtime.callbacks["_cudaLaunchKernelEx"]
    assert launch(None, None, None) == FAILED  # Nothing is active: there is nobody to tell.
    told = SimpleNamespace(failure=None, children=None)
    monkeypatch.setattr(emulation, "_active", told)
    assert launch(None, 77, None) == FAILED
    first = told.failure
    assert isinstance(first, AttributeError)
    assert launch(None, 78, None) == FAILED
    assert told.failure is first
    refused: list[BaseException] = []
    told.failure, told.children = None, SimpleNamespace(tell_refusal=refused.append)
    for _ in range(2):
        assert launch(None, 77, None) == FAILED
    assert refused == [told.failure], "the process that started this one is told, once"


def test_the_drivers_call_makes_the_same_map() -> None:
    dims, strides, box = (64, 32, 8), (128, 8192), (16, 4, 2)
    wanted = tiled(1 << 40, dims, (2, *strides), box, "f16", 2)
    held = [np.array(x, np.uint64) for x in (dims, strides)]
    held += [np.array(x, np.uint32) for x in (box, (1, 1, 1))]
    out = np.zeros(144, np.uint8)
    done = Runtime("")._guard(Runtime("").cuTensorMapEncodeTiled)(
        out.ctypes.data, 6, 3, 1 << 40, *(x.ctypes.data for x in held), 0, 2, 0, 0
    )
    assert done == 0
    assert TensorMap.decode(out[:128].tobytes()) == wanted
    assert not out[128:].any()
