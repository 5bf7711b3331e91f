"""Run a script that was written for a GPU under the emulator, unmodified."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mla_var3.emulator import triton
from mla_var3.emulator.host import Emulation, emulate, replaced
from mla_var3.emulator.options import Options
from mla_var3.errors import EmulatorError


def capability(arch: str) -> tuple[int, int]:
    """``sm_90a`` to (9, 0)."""
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if not match:
        raise EmulatorError(f"{arch!r} is not an architecture such as sm_90a")
    return int(match[1]), int(match[2])


@contextlib.contextmanager
def environment(options: Options, arch: str, others: Sequence[Options] = ()) -> Iterator[Emulation]:
    """``emulate`` for whole scripts: torch.cuda, timers and the driver are replaced too."""
    import torch

    from mla_var3.emulator.torch_mode import cuda_on_cpu

    with emulate(options, arch, others) as emulation, contextlib.ExitStack() as stack:
        import cutlass.cute.testing
        import cutlass.testing

        for module in (cutlass.cute.testing, cutlass.testing):
            stack.enter_context(replaced(module, "benchmark", lambda *_, **__: 1.0))
        stack.enter_context(replaced(cutlass.testing, "_benchmark_for_autotune", _once))
        _driver(stack)
        device = (capability(arch), options.multiprocessors)
        stack.enter_context(cuda_on_cpu(emulation.own, *device))
        if triton.installed():
            stack.enter_context(triton.triton_on_cpu(emulation, *device))
        torch.set_num_threads(1)
        yield emulation


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


def _driver(stack: contextlib.ExitStack) -> None:
    """The few driver calls that scripts, and the DSL for them, make themselves."""
    import cuda.bindings.driver as driver

    answers: dict[str, tuple[Any, ...]] = {
        "cuInit": (),
        "cuStreamSynchronize": (),
        "cuStreamDestroy": (),
        "cuCtxSynchronize": (),
        "cuStreamCreate": (driver.CUstream(0),),
        "cuDeviceGet": (driver.CUdevice(0),),
        "cuDeviceGetCount": (1,),
        "cuDriverGetVersion": (driver.CUDA_VERSION,),
        "cuCtxGetCurrent": (driver.CUcontext(1),),
        "cuCtxGetDevice": (driver.CUdevice(0),),
    }
    for name, values in answers.items():
        answer = (driver.CUresult.CUDA_SUCCESS, *values)
        stack.enter_context(replaced(driver, name, lambda *_, answer=answer: answer))


def run_script(
    path: Path,
    arguments: Sequence[str],
    options: Options,
    arch: str,
    others: Sequence[Options] = (),
) -> Emulation:
    """Run a script as ``python script.py arguments`` would, each launch in all ways that are asked.

    An exception of the script's, such as a failed assertion, is kept as ``error``: what was found
    until then tells why.

    Raises:
        EmulatorError: The file does not exist, or a launch cannot be emulated.
    """
    if not path.is_file():
        raise EmulatorError(f"there is no script {path}")
    folder = str(path.resolve().parent)
    with contextlib.ExitStack() as stack:
        emulation = stack.enter_context(environment(options, arch, others))
        stack.enter_context(replaced(sys, "argv", [str(path), *arguments]))
        stack.enter_context(replaced(sys, "path", [folder, *sys.path]))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        emulation.error = _ended(path)
    return emulation


def _ended(path: Path) -> Exception | None:
    """Run a script to its end; the exception that ended it, unless the emulator raised it."""
    try:
        runpy.run_path(str(path), run_name="__main__")
    except SystemExit as stop:
        if stop.code not in (None, 0):
            raise
    except EmulatorError:
        raise
    except Exception as error:  # noqa: BLE001  # Whatever it is, the findings come first.
        return error
    return None


def quiet(function: Any, *args: Any) -> tuple[Any, str]:
    """Call a function and keep what it prints."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        result = function(*args)
    return result, out.getvalue()
