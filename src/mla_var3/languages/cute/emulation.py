"""A CuTe kernel on the CPU: its own host function, its PTX emulated, barriers and races checked."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from mla_var3.errors import HyperMlaError, NotExecutableError
from mla_var3.languages.cute import signature
from mla_var3.runtime.execution import Diagnostic, Execution
from mla_var3.static.source import relative_source

if TYPE_CHECKING:
    import torch

    from mla_var3.emulator import Diagnostic as Found
    from mla_var3.emulator import Emulation

#: What is emulated: the oldest arch with everything that our kernels use and the emulator knows.
TARGET = "sm_90a"
#: Clusters that run side by side in processes of their own; 0 takes every core.
JOBS = 1


@functools.cache
def cannot_execute() -> str | None:
    """Why CuTe kernels do not run here; None when they do."""
    from mla_var3.emulator.host import require_dsl

    try:
        require_dsl()
    except HyperMlaError as error:
        return str(error)
    return None


def execute(
    name: str,
    host: Any,
    arguments: tuple[Any, ...],
    unwritten: tuple[torch.Tensor, ...],
) -> Execution:
    """Run a host function on CPU tensors.

    Args:
        name: Name of the kernel.
        host: The host function.
        arguments: Its arguments without the stream.
        unwritten: The outputs; reading one before it is written is a finding.

    Raises:
        NotExecutableError: The DSL is not installed, or the kernel needs what is not emulated.
    """
    if (reason := cannot_execute()) is not None:
        raise NotExecutableError(f"{name}: {reason}")
    from mla_var3.emulator import Options, emulate

    with emulate(Options(jobs=JOBS), TARGET) as run:
        for tensor in unwritten:
            run.own(tensor, unwritten=True)
        call(host, arguments)
    return _execution(name, run)


def call(host: Any, arguments: tuple[Any, ...]) -> None:
    """Compile a host function for these very tensors, and call it, inside of ``emulate``."""
    import cuda.bindings.driver as cuda
    from cutlass import cute

    specs = signature.specs(host, arguments)
    values = [_value(spec, value) for spec, value in zip(specs, arguments, strict=True)]
    stream = cuda.CUstream(0)
    compiled = cute.compile(host, *values, stream)
    constant = signature.ConstantSpec
    given = [v for spec, v in zip(specs, values, strict=True) if not isinstance(spec, constant)]
    compiled(*given, stream)


def _value(spec: signature.Spec, value: Any) -> Any:
    """An argument as the DSL takes it; a CPU tensor says which of its axes vary."""
    import torch
    from cutlass.cute.runtime import from_dlpack

    tensor = value.tensor if isinstance(value, signature.Dynamic) else value
    if not isinstance(tensor, torch.Tensor):
        return signature.fake(spec, value)
    wrapped = from_dlpack(tensor, assumed_align=signature.ALIGNMENT)
    order = tuple(range(tensor.ndim))
    for axis in value.axes if isinstance(value, signature.Dynamic) else ():
        wrapped = wrapped.mark_compact_shape_dynamic(axis % tensor.ndim, order, value.multiple_of)
    return wrapped


def _execution(name: str, run: Emulation) -> Execution:
    return Execution(
        name,
        sum(int(counts.matrix_flops.sum()) for counts in run.counts),
        run.bytes("global read"),
        run.bytes("global write"),
        tuple(map(_diagnostic, run.diagnostics)),
    )


def _diagnostic(found: Found) -> Diagnostic:
    message = found.message + (f"; the other side is {found.other}" if found.other else "")
    if found.missing:
        message += f"; missing: {found.missing}"
    file = relative_source(found.at.file) if found.at.file else "ptx"
    return Diagnostic(found.kind, "error", file, found.at.line or found.at.pc, message)
