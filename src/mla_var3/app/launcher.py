"""From a parsed command line to the mode that runs it."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from rich.console import Console
from rich.markdown import Markdown

from mla_var3 import devices
from mla_var3.app.options import RunOptions
from mla_var3.errors import PlanError, ToolchainError, UsageError
from mla_var3.paths import out_dir, results_dir
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.registry import Version

EXIT_FAILED = 1
#: Columns of tables when the output is no terminal.
PIPE_WIDTH = 120


def run(version: Version, plan: KernelPlan, options: RunOptions) -> int:
    """Run ``plan`` in the asked mode; 0 when it passed, 1 when the kernel is wrong.

    Raises:
        HyperMlaError: Bad input or a missing tool.
    """
    mode = options.prof_type or ("annotation" if torch.cuda.is_available() else "static")
    for flag in ("arch", "device"):
        if mode != "static" and getattr(options, flag) is not None:
            raise UsageError(
                f"--{flag} is for --prof_type=static; mode {mode} takes the GPU of this machine"
            )
    for folder in (options.out_dir or out_dir(), results_dir()):
        _require_writable(folder)
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=PIPE_WIDTH)

    def progress(text: str) -> None:
        console.print(f"· {text}", markup=False)

    if mode == "static":
        return _static(version, plan, options, console)
    from mla_var3.profiling import modes

    result = modes.profile(version, plan, options, mode, progress)
    console.print(Markdown(result.summary))
    for path in result.paths:
        print(f"wrote {_short(path)}")
    return 0 if result.ok else EXIT_FAILED


def _static(version: Version, plan: KernelPlan, options: RunOptions, console: Console) -> int:
    from mla_var3.profiling import static_profile
    from mla_var3.profiling.report import render

    archs = static_profile.parse_archs(options.arch)
    device = devices.find(options.device) if options.device else None
    if device is not None:
        arch = device.compile_arch
        if options.arch is None:
            archs = (arch,)
        elif arch not in archs:
            raise PlanError(f"--device {device.key} is {arch}, which --arch {options.arch} lacks")
    with console.status(version.key) as status:

        def told(text: str) -> None:
            status.update(text)
            console.print(f"· {text}", markup=False)

        result = static_profile.static_profile_plan(
            plan,
            version=version,
            archs=archs,
            device=device,
            out_dir=options.out_dir,
            retune=options.retune,
            tune_max_iters=options.tune_max_iters,
            progress=told,
        )
    summary = render(result.records, static_profile.next_steps(result.records), brief=True)
    console.print(Markdown(summary))
    for path in (*result.record_paths, result.report):
        print(f"wrote {_short(path)}")
    print(f"wrote {_short(result.report.parent)}/ (bytecode, TileIR, SASS, cubin, tilings)")
    return 0 if result.ok else EXIT_FAILED


def _require_writable(folder: Path) -> None:
    there = next(p for p in (folder.absolute(), *folder.absolute().parents) if p.exists())
    if not there.is_dir():
        raise ToolchainError(f"nothing can be written to {folder}: {there} is a file, not a folder")
    if not os.access(there, os.W_OK | os.X_OK):
        raise ToolchainError(f"nothing can be written to {folder}: {there} does not allow it")


def _short(path: Path) -> str:
    try:
        return path.resolve().relative_to(Path.cwd().resolve()).as_posix()
    except ValueError:
        return str(path)
