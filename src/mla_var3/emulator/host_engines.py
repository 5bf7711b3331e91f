"""JIT engines of host functions that the CuTe DSL compiled, bound to the emulated runtime."""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Sequence
from typing import Any

from mla_var3.emulator import ffi
from mla_var3.emulator.emulation import PROGRAMS, Emulation
from mla_var3.emulator.host_runtime import INT, POINTER, Runtime
from mla_var3.errors import EmulatorError

#: The host function in a compiled module, by the name that an engine finds it under.
_ENTRY = re.compile(r"llvm\.func @(_mlir_ciface_\w+)\(")


def call(emulation: Emulation, module: str, text: str, arguments: Sequence[Any]) -> None:
    """Run a host function that the DSL compiled before; its launches go to an emulation.

    Args:
        emulation: The one that is open.
        module: The host code, in MLIR's LLVM dialect.
        text: The PTX of its kernels.
        arguments: C values of its arguments, without the stream.

    Raises:
        EmulatorError: The module has no host function, or the function fails.
    """
    entry = _ENTRY.search(module)
    if entry is None:
        raise EmulatorError("the compiled module has no host function; the DSL changed")
    engine, _ = _hosted(module, text)
    library, device, status = POINTER(), INT(), INT()
    place = ctypes.pointer(library)
    for name, cells in (
        ("cuda_init", (place, status)),
        ("cuda_load_to_device", (place, device, status)),
        (entry[1], (*arguments, POINTER(), status)),
    ):
        _invoke(engine, name, cells)
        if status.value and emulation.failure is None:
            raise EmulatorError(f"{name} ended with status {status.value}")


@functools.lru_cache(maxsize=PROGRAMS)
def _hosted(module: str, text: str) -> tuple[Any, Runtime]:
    """An engine of host code, made once, and what its callbacks need as long as it is there."""
    engine = engine_of(module)
    return engine, registered(engine, text)


def engine_of(module: str) -> Any:
    """A JIT engine of host code."""
    from cutlass._mlir import execution_engine, ir

    dialects: Any = ir  # It has no types.
    with dialects.Context(), dialects.Location.unknown():
        parsed = dialects.Module.parse(module)
        return execution_engine.ExecutionEngine(parsed, opt_level=0, shared_libs=[])


def registered(engine: Any, text: str) -> Runtime:
    """The runtime symbols of an engine, whose launches run kernels of a PTX text."""
    runtime = Runtime(text)
    symbols = dict(runtime.callbacks)
    if ffi.installed():
        engine.emulator_symbols = ffi.Symbols()  # Callbacks have to outlive the engine's calls.
        symbols |= engine.emulator_symbols.callbacks
    for name, callback in symbols.items():
        engine.raw_register_runtime(name, ctypes.cast(callback, POINTER))
    return runtime


def _invoke(engine: Any, name: str, cells: Sequence[Any]) -> None:
    """Call a function of an engine with the addresses of its arguments and of its result."""
    pointers = (POINTER * len(cells))(*map(ctypes.addressof, cells))
    ctypes.CFUNCTYPE(None, POINTER)(engine.raw_lookup(name))(pointers)
