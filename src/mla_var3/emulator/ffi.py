"""Emulation of the CuTe DSL's TVM-FFI call path (functions compiled with ``--enable-tvm-ffi``).

Registers the runtime symbols that such functions need beyond the plain path, and shows them CPU
tensors as tensors on a GPU. ``host`` uses it for every emulated compile.
"""

from __future__ import annotations

import ctypes
import dataclasses
import importlib.util
from collections.abc import Callable, Iterator
from typing import Any

from mla_var3.emulator.dlpack import KDL_CUDA, on_gpu

POINTER, INT = ctypes.c_void_p, ctypes.c_int
INIT = ctypes.CFUNCTYPE(INT, ctypes.POINTER(POINTER))
LOAD = ctypes.CFUNCTYPE(INT, ctypes.POINTER(POINTER), INT)
#: What libtvm_ffi itself gives to compiled code.
FROM_LIBRARY = (
    "TVMFFIErrorSetRaisedFromCStr",
    "TVMFFIErrorSetRaisedFromCStrParts",
    "TVMFFIEnvGetStream",
)


def installed() -> bool:
    """Whether TVM-FFI is here; the DSL refuses ``--enable-tvm-ffi`` without."""
    return importlib.util.find_spec("tvm_ffi") is not None


class Symbols:
    """The symbols of this path; they live as long as the engine that they are registered in."""

    def __init__(self) -> None:
        import tvm_ffi

        self.library = ctypes.CDLL(tvm_ffi.libinfo.find_libtvm_ffi())
        self.callbacks: dict[str, Any] = {
            "cuda_dialect_init_library_once": ctypes.CFUNCTYPE(INT, *[POINTER] * 4)(_load_once),
            "CuteDSLRT_TVMFFISetRaisedCudaError": ctypes.CFUNCTYPE(None, POINTER, INT)(self._raise),
            "_cudaSetDevice": ctypes.CFUNCTYPE(INT, INT)(lambda _: 0),
            # Called when the engine ends, perhaps after Python: it must not be Python.
            "cuda_dialect_unload_library_once": ctypes.CDLL(None).abs,
            "cuda_dialect_get_error_name": ctypes.CDLL(None).abs,
        } | {name: getattr(self.library, name) for name in FROM_LIBRARY}

    def _raise(self, _: int, code: int) -> None:
        message = f"the emulator stopped the launch ({code})".encode()
        self.library.TVMFFIErrorSetRaisedFromCStr(b"RuntimeError", message)


def _load_once(state: int, init: int, load: int, _: int) -> int:
    """Load the library of kernels on the first call, as the DSL's own runtime does."""
    library = ctypes.cast(state, ctypes.POINTER(POINTER))
    return 0 if library[0] else int(INIT(init)(library) or LOAD(load)(library, 0))


class _Shown:
    """A CPU tensor to whoever asks by DLPack: on a GPU."""

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor

    def __dlpack__(self, **_: Any) -> Any:
        return on_gpu(self.tensor.detach().__dlpack__())

    def __dlpack_device__(self) -> tuple[int, int]:
        return (KDL_CUDA, 0)


def gpu_view(tensor: Any, own: Callable[[Any], None]) -> Any:
    """A torch tensor as one on the GPU, its memory told to ``own``; anything else as it is."""
    if not hasattr(tensor, "untyped_storage"):
        return tensor
    own(tensor)
    return _Shown(tensor)


def shown(value: Any, own: Callable[[Any], None]) -> Any:
    """An argument with each tensor in it on the GPU."""
    import tvm_ffi

    if hasattr(value, "untyped_storage"):
        return tvm_ffi.from_dlpack(gpu_view(value, own))
    if type(value) in (list, tuple):
        return type(value)(shown(v, own) for v in value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(shown(v, own) for v in value))
    if type(value) is dict:
        return {k: shown(v, own) for k, v in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = (f.name for f in dataclasses.fields(value) if f.init)
        return dataclasses.replace(value, **{n: shown(getattr(value, n), own) for n in fields})
    return value


def replacements(own: Callable[[Any], None]) -> Iterator[tuple[Any, str, Any]]:
    """What of the DSL is replaced for this path: owner, name, value."""
    from cutlass.cutlass_dsl import tvm_ffi_provider as provider

    yield provider.TVMFFIJitCompiledFunctionBase, "_create_tvm_ffi_function", _function
    for kind in (
        provider.TVMFFIJitCompiledFunction,
        provider.TVMFFIJitCompiledFunctionWithKwargs,
    ):
        yield kind, "__call__", _call(kind.__call__, own)


def _function(self: Any) -> Any:
    return None if self.engine is None else function(self.engine, self.function_name)


def function(engine: Any, name: str) -> Any:
    """A function of an engine in which the emulator's symbols are registered."""
    import tvm_ffi

    pointer = engine.raw_lookup(f"__tvm_ffi_{name}")
    return tvm_ffi.Function.__from_mlir_packed_safe_call__(pointer, keep_alive_object=engine)


def _call(original: Callable[..., Any], own: Callable[[Any], None]) -> Callable[..., Any]:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = {k: shown(v, own) for k, v in kwargs.items()}
        return original(self, *(shown(a, own) for a in args), **named)

    return call
