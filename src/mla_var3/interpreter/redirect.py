"""Sends every ``ct.launch`` of a context, or of an unmodified script, to the interpreter."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import cuda.tile as ct
import cuda.tile.tune._tune
from cuda.tile import _cext, _compile, _execution
from cuda.tile.compilation import KernelSignature

from mla_var3.errors import InterpreterError
from mla_var3.gpuless import scripts, streams
from mla_var3.gpuless.cuda import cuda_on_cpu, on_the_cpu
from mla_var3.gpuless.device import Device
from mla_var3.interpreter.launch_report import LaunchReport, recording
from mla_var3.interpreter.launcher import launch
from mla_var3.interpreter.signature import launch_signature

#: Microseconds that every configuration of a search takes, so that the first one is chosen.
_SEARCHED_US = 1.0


def _launch(
    stream: Any,
    grid: Sequence[int],
    kernel: Any,
    args: Sequence[Any],
    *,
    programmatic_dependent_launch: bool = False,
) -> None:
    """What ``ct.launch`` becomes; errors of cuTile are raised as cuTile raises them."""

    def work() -> None:
        with on_the_cpu(), _as_cutile_raises():
            launch(tuple(grid) or (1,), kernel, args)

    streams.submit(work)


class LaunchError(InterpreterError, TypeError, ValueError):
    """Arguments that no kernel takes; cuTile raises one of these for them."""


@contextlib.contextmanager
def _as_cutile_raises() -> Iterator[None]:
    """Turns the interpreter's errors into those that a program expects of cuTile."""
    try:
        yield
    except InterpreterError as error:
        if isinstance(error.__cause__, ct.TileError | TypeError | ValueError):
            raise error.__cause__ from None
        raise LaunchError(str(error)) from error


def _signature(
    kernel: Any, kernel_args: Sequence[Any], calling_convention: Any, *, symbol: str | None = None
) -> KernelSignature:
    """What ``KernelSignature.from_kernel_args`` becomes, which asks the driver."""
    with on_the_cpu(), _as_cutile_raises():
        signature = launch_signature(kernel, kernel_args)
    signature = KernelSignature(signature.parameters, calling_convention)
    if symbol is not None:
        return KernelSignature(signature.parameters, calling_convention, symbol)
    return signature.with_mangled_symbol(kernel._annotated_function.pyfunc.__name__)


@contextlib.contextmanager
def redirected(device: Device | None = None) -> Iterator[list[LaunchReport]]:
    """Interprets every ``ct.launch`` of the ``with`` block, on the CPU.

    A search over configurations (``ct.tune``) takes the first one, since no time is measured.

    Args:
        device: What the program is told about the GPU.

    Yields:
        The reports of the launches, in order.
    """
    device = device or Device()
    patches: list[tuple[Any, str, Any]] = [
        (ct, "launch", _launch),
        (_cext, "launch", _launch),
        (KernelSignature, "from_kernel_args", staticmethod(_signature)),
        (cuda.tile.tune._tune, "_benchmark", lambda *_: _SEARCHED_US),
        (cuda.tile.tune._tune, "benchmark_with_timeout", lambda *_, **__: _SEARCHED_US),
        *(
            (module, "get_compute_capability", lambda *_: device.capability)
            for module in (_cext, _compile, _execution)
        ),
    ]
    with contextlib.ExitStack() as stack:
        for target, name, value in patches:
            stack.enter_context(mock.patch.object(target, name, value))
        stack.enter_context(cuda_on_cpu(device))
        yield stack.enter_context(recording())


def run_script(
    script: Path, arguments: Sequence[str] = (), device: Device | None = None
) -> tuple[list[LaunchReport], scripts.Ended]:
    """Runs a script as ``python script`` would, without a GPU.

    Args:
        script: The script.
        arguments: Its command line.
        device: What it is told about the GPU.

    Returns:
        The reports of its launches, and how it ended.

    Raises:
        UsageError: If there is no such file.
        InterpreterError: If the interpreter refuses a launch.
    """
    scripts.exists(script)
    with redirected(device) as reports:
        return reports, scripts.run(script, arguments)
