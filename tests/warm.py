"""Processes that begin with torch imported, and with nothing of this project.

What runs in a copy of the checkout, or with an edited kernel, needs a process of its own; loading
torch in each takes longer than most of what they do.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import runpy
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Mapping
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

#: The server begun here: Python keeps one for a process, and ``check`` begins it otherwise.
_ours: int | None = None


def processes() -> ForkServerContext:
    """Starts processes that import the project anew."""
    global _ours
    context = multiprocessing.get_context("forkserver")
    server = forkserver._forkserver
    if server._forkserver_pid != _ours:
        server._stop()  # What a test before this one began has the project loaded.
    context.set_forkserver_preload(["torch", "cuda.tile"])
    server.ensure_running()
    _ours = server._forkserver_pid
    return context


def run(
    module: str, *arguments: str, root: Path, **environment: str
) -> subprocess.CompletedProcess[str]:
    """What ``python -m module`` says in a copy of the checkout.

    Args:
        module: A module of the copy's package.
        arguments: Its command line.
        root: Top of the copy, where it runs and whose ``src`` it imports.
        environment: Variables beside those of this process.

    Returns:
        Exit code, standard output and standard error, as ``subprocess.run`` gives them.
    """
    env = {**os.environ, "HYPERMLA_ROOT": str(root), "PYTHONPATH": str(root / "src"), **environment}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("out", "err")]
        argv = [module, *arguments]
        process = processes().Process(target=_run, args=(argv, root, env, files))
        process.start()
        process.join()
        said, errors = (file.read_text(encoding="utf-8") for file in files)
        return subprocess.CompletedProcess(argv, process.exitcode or 0, said, errors)


def _run(argv: list[str], root: Path, env: Mapping[str, str], files: list[Path]) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT), number)
    os.environ.clear()
    os.environ.update(env)
    os.chdir(root)
    assert not [name for name in sys.modules if name.split(".")[0] == "mla_var3"]
    sys.path.insert(0, str(root / "src"))
    sys.argv = argv
    code = 0
    try:
        runpy.run_module(argv[0], run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  # As Python itself ends.
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    sys.stdout.flush()
    os._exit(code)
