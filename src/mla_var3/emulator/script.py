"""Runs a Python script that was written for a GPU under the emulator, unmodified.

Replaces torch.cuda, timers and driver calls, and emulates launches of the CuTe DSL and Triton.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

from mla_var3.emulator import driver, exported, triton
from mla_var3.emulator.emulation import Emulation
from mla_var3.emulator.host import emulate, require_dsl
from mla_var3.emulator.options import Options
from mla_var3.gpuless import scripts


def load() -> None:
    """Import what every script needs.

    Raises:
        ToolchainError: The pinned CuTe DSL is not here.
    """
    from mla_var3.gpuless import cuda  # noqa: F401

    require_dsl()
    import cutlass.cute.testing
    import cutlass.testing  # noqa: F401


@contextlib.contextmanager
def environment(options: Options, arch: str, others: Sequence[Options] = ()) -> Iterator[Emulation]:
    """``emulate`` for whole scripts: torch.cuda, timers and the driver are replaced too."""
    import torch

    from mla_var3.gpuless.cuda import cuda_on_cpu

    with emulate(options, arch, others) as emulation, contextlib.ExitStack() as stack:
        stack.enter_context(exported.temporary_folder())
        import cutlass.cute.testing
        import cutlass.testing

        for module in (cutlass.cute.testing, cutlass.testing):
            untimed = functools.partial(_untimed, emulation)
            stack.enter_context(mock.patch.object(module, "benchmark", untimed))
        stack.enter_context(mock.patch.object(cutlass.testing, "_benchmark_for_autotune", _once))
        device = emulation.device
        for owner, name, value in driver.replacements(device):
            stack.enter_context(mock.patch.object(owner, name, value))
        stack.enter_context(cuda_on_cpu(device, emulation.own))
        if triton.installed():
            stack.enter_context(triton.triton_on_cpu(emulation, device))
        torch.set_num_threads(1)
        yield emulation


def _untimed(
    emulation: Emulation,
    function: Any = None,
    *_: Any,
    kernel_arguments: Any = None,
    workspace_generator: Any = None,
    **__: Any,
) -> float:
    """Nothing is timed. Where nothing was launched before, the results of one run are wanted."""
    if not emulation.launches:
        if kernel_arguments is None and workspace_generator is not None:
            kernel_arguments = workspace_generator()
        if kernel_arguments is not None:
            function(*kernel_arguments.args, **kernel_arguments.kwargs)
    return 1.0


def _once(
    function: Any,
    *arguments: Any,
    warmup_iterations: int,
    iterations: int,
    use_cold_l2: bool,
    print_verbose: bool,
    current_stream: Any = None,
    **named: Any,
) -> float:
    """One run in place of a timing: the tuner takes its results for the real ones."""
    function(*arguments, **named)
    return 1.0


def run_script(
    path: Path,
    arguments: Sequence[str],
    options: Options,
    arch: str,
    others: Sequence[Options] = (),
    where_quick: Sequence[Options] = (),
) -> Emulation:
    """Run a script as ``python script.py arguments`` would, each launch in all ways that are asked.

    ``others`` run each launch in further ways, ``where_quick`` only launches that synchronize and
    are soon done. How it ended is kept as ``ended``, a failed assertion too: what was found until
    then tells why.

    Raises:
        UsageError: The file does not exist.
        EmulatorError: A launch cannot be emulated.
    """
    scripts.exists(path)
    with environment(options, arch, others) as emulation:
        emulation.where_quick = tuple(where_quick)
        emulation.ended = scripts.run(path, arguments)
    return emulation
