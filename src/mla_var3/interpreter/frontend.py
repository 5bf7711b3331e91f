"""Gets a cuTile kernel's typed IR for one signature, lowers it, and caches the lowered program."""

from __future__ import annotations

import functools
import threading
import weakref
from types import FunctionType
from typing import Any

from cuda.tile._bytecode.version import BytecodeVersion
from cuda.tile._compile import compile_tile
from cuda.tile._exception import Loc, TileError
from cuda.tile._passes import hir2ir
from cuda.tile.compilation import KernelSignature

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import ops as _ops  # noqa: F401 - its handlers register themselves
from mla_var3.interpreter.debugger import breakpoints
from mla_var3.interpreter.lowering import lower
from mla_var3.interpreter.probes import Probes
from mla_var3.interpreter.program import Program
from mla_var3.interpreter.signature import annotated_function, signature_key

# Named outright, so that the front end need not run the compiler to ask which versions it knows.
BYTECODE_VERSION = BytecodeVersion.V_13_4

_cache: weakref.WeakKeyDictionary[FunctionType, dict[tuple[Any, ...], Program]] = (
    weakref.WeakKeyDictionary()
)
_lock = threading.Lock()

#: Functions whose signatures are kept; a kernel calls some dozens.
_SIGNATURES = 256
# The front end works out the signature of a function for each of its calls, a twentieth of its
# time; a part that another release of cuTile lacks is left out.
if hasattr(hir2ir, "get_signature"):
    hir2ir.get_signature = functools.lru_cache(_SIGNATURES)(hir2ir.get_signature)


def typed_ir(kernel: Any, signature: KernelSignature) -> Any:
    """Runs cuTile's front end and returns the typed IR of one signature.

    Args:
        kernel: A function decorated with ``@ct.kernel``.
        signature: See ``kernel_signature``.

    Returns:
        The root block of the IR (``cuda.tile._ir.ir.Block``).

    Raises:
        InterpreterError: If cuTile refuses the kernel; the message has its reason and line.
    """
    annotated = annotated_function(kernel)
    try:
        with breakpoints():
            result = compile_tile(
                annotated,
                [signature],
                bytecode_version=BYTECODE_VERSION,
                return_final_ir=True,
                return_cubin=False,
            )
    except TileError as error:
        raise InterpreterError(
            f"{place(error.loc)}: cuTile refuses kernel {annotated.pyfunc.__name__!r}: "
            f"{_sentence(error.message)}"
        ) from error
    except (TypeError, ValueError, NotImplementedError, OSError) as error:  # OSError: no source
        code = annotated.pyfunc.__code__
        raise InterpreterError(
            f"{code.co_filename}:{code.co_firstlineno}: cuTile refuses kernel "
            f"{annotated.pyfunc.__name__!r}: {error}"
        ) from error
    return result.final_ir[0]


def program(kernel: Any, signature: KernelSignature, probes: Probes | None = None) -> Program:
    """Returns the executable program of a kernel for a signature, from the cache if known.

    Kernels that differ only in compiler hints share their programs, since hints change no value.
    """
    function = annotated_function(kernel).pyfunc
    key = (*signature_key(signature), probes)
    with _lock:
        programs = _cache.setdefault(function, {})
    found = programs.get(key)
    if found is None:
        found = programs[key] = lower(typed_ir(kernel, signature), function.__name__, probes)
    return found


def clear_cache() -> None:
    """Forgets every program; the next launch runs the front end again."""
    with _lock:
        _cache.clear()


def place(loc: Loc) -> str:
    """Returns ``file:line`` of a location in a kernel's source."""
    return f"{loc.filename or '<unknown>'}:{loc.line}"


def _sentence(message: str) -> str:
    """Returns a message of cuTile on one line, without the location of an error inside another."""
    lines = (line.strip() for line in message.splitlines())
    return " ".join(line for line in lines if line and line != "Unknown location")
