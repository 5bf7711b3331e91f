"""``breakpoint()`` in an interpreted cuTile kernel: opens Python's debugger at the kernel's line.

``breakpoints`` lets cuTile's front end accept the call; ``stop`` returns the interpreter's step,
which calls ``sys.breakpointhook`` (pdb by default) with the block's tiles as variables.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from cuda.tile._ir.core_ops import TilePrintf
from cuda.tile._ir.ir import add_operation_variadic
from cuda.tile._ir.ops import tile_impl_registry
from cuda.tile._ir.type import TokenTy
from cuda.tile._ir.typing_support import BUILTIN_FUNC_SIGNATURES

from mla_var3.interpreter.launch_report import SourceLine
from mla_var3.interpreter.lowering import Lowering
from mla_var3.interpreter.program import Env, Runtime, Step

#: The format of the operation that stands for a breakpoint; no program can print it.
MARK = "\0breakpoint"


def _breakpoint() -> None:
    add_operation_variadic(TilePrintf, (TokenTy(),), format=MARK, args=())


@contextlib.contextmanager
def breakpoints() -> Iterator[None]:
    """Lets cuTile's front end accept ``breakpoint()``, which it does not know."""
    known = tile_impl_registry.op_implementations
    if breakpoint in known:
        yield
        return
    BUILTIN_FUNC_SIGNATURES[breakpoint] = _breakpoint
    tile_impl_registry.impl(breakpoint)(_breakpoint)
    try:
        yield
    finally:
        known.pop(breakpoint, None)
        BUILTIN_FUNC_SIGNATURES.pop(breakpoint, None)


def stop(lo: Lowering, where: SourceLine) -> Step:
    """Returns the step that opens the debugger of ``sys.breakpointhook``."""
    file, line = where
    # Compiled at the kernel's own line, so that the debugger shows its source.
    code = compile("\n" * (line - 1) + "breakpoint()", file, "exec")
    names = lo.names()

    def step(env: Env, rt: Runtime) -> None:
        tiles = {name: env[slot] for name, slot in names.items()}
        exec(code, {"__name__": "kernel", "block": rt.block, **tiles})

    return step
