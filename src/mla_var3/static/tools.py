"""Finds NVIDIA's binary tools inside the installed Python packages, and runs them.

The tools come from packages, never from ``PATH``: a toolkit that happens to be installed beside
them has other versions, and other versions give other facts.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3 import forked
from mla_var3.errors import ToolchainError

#: Disassembler -> package that ships it.
DISASSEMBLERS = {
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
}
#: Oldest release of them that knows every arch the compilers here compile for.
DISASSEMBLER_RELEASE = "13.4"

#: Variables that make a compiler load another toolkit's libraries, and then fail without a reason.
HIDDEN_VARIABLES = ("CUDA_HOME", "CUDA_PATH")


@dataclass(frozen=True)
class Tool:
    """One program: its name, where it is, and the version of the package it came in."""

    name: str
    path: Path
    version: str


@dataclass(frozen=True)
class Completed:
    """What a tool that ended left: exit status and both streams."""

    returncode: int
    stdout: str
    stderr: str


def release(version: str) -> tuple[int, ...]:
    """Major and minor of a version text, for comparing."""
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def one_line(text: str, limit: int = 300) -> str:
    """The text's lines as one, cut at ``limit`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."


def package_version(package: str) -> str:
    """Version of an installed package.

    Raises:
        ToolchainError: It is not installed.
    """
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError as error:
        raise ToolchainError(
            f"package {package} is not installed, and static analysis needs it "
            f"(python -m pip install {package})"
        ) from error


@functools.cache
def locate(name: str, package: str) -> Tool:
    """An executable of a package.

    Raises:
        ToolchainError: The package is missing or holds no such executable.
    """
    version = package_version(package)
    wanted = {name, f"{name}.exe"}
    for file in importlib.metadata.files(package) or ():
        path = Path(str(file.locate()))
        if file.name in wanted and path.is_file() and os.access(path, os.X_OK):
            return Tool(name, path.resolve(), version)
    raise ToolchainError(
        f"package {package} {version} holds no executable {name}; reinstall it "
        f"(python -m pip install --force-reinstall {package}=={version})"
    )


@functools.cache
def disassembler(name: str) -> Tool:
    """``cuobjdump`` or ``nvdisasm``.

    Raises:
        ToolchainError: Its package is missing, broken, or older than the compilers.
    """
    package = DISASSEMBLERS[name]
    if release(version := package_version(package)) < release(DISASSEMBLER_RELEASE):
        raise ToolchainError(
            f"package {package} {version} is older than {DISASSEMBLER_RELEASE}, the release of "
            f"the compiler (python -m pip install -U {package})"
        )
    return locate(name, package)


def environment() -> dict[str, str]:
    """Environment for the tools: this process's without :data:`HIDDEN_VARIABLES`.

    The folder of nvdisasm comes first on PATH, since cuobjdump looks for it there.
    """
    env = {key: value for key, value in os.environ.items() if key not in HIDDEN_VARIABLES}
    folder = disassembler("nvdisasm").path.parent
    env["PATH"] = os.pathsep.join((str(folder), env.get("PATH", "")))
    env["LC_ALL"] = "C"  # Messages are parsed.
    return env


#: Runs a tool in a group of its own, and ends the group when asked to: a compiler starts others,
#: and what the kernel tells of our end reaches its first process alone.
_GUARD = """
import os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
try:
    started = os.posix_spawn(sys.argv[2], sys.argv[2:], os.environ, setsigdef=[signal.SIGPIPE])
except OSError as error:
    sys.exit(f"\\0{error.strerror}")
ended = os.waitstatus_to_exitcode(os.waitpid(started, 0)[1])
if ended < 0:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.kill(os.getpid(), -ended)
os._exit(ended)
"""


def _end_group(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


class Runner:
    """Runs tools from several threads and ends all of them at once when stopped.

    A tool, and all that it starts, also ends when this process does, however that ends.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(
        self, tool: Tool, args: Sequence[str | Path], *, timeout: float | None = None
    ) -> Completed:
        """Run one tool to its end.

        Args:
            tool: The tool.
            args: Its arguments.
            timeout: Seconds it may take.

        Raises:
            ToolchainError: It cannot be started, or the runner was stopped before it ended.
            TimeoutError: It took longer; the process has been ended.
        """
        name = tool.name
        with self._lock:
            if self._stopped:
                raise ToolchainError(f"{name} was not started: the compile was interrupted")
            try:
                process = subprocess.Popen(
                    [sys.executable, "-I", "-S", "-c", _GUARD, str(os.getpid()),
                     str(tool.path), *map(str, args)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    env=environment(),
                    process_group=0,
                    preexec_fn=forked.asked_to_end_with_parent,
                )  # fmt: skip
            except OSError as error:
                raise ToolchainError(f"{name} cannot be started: {error.strerror}") from error
            self._live.add(process)
        try:
            stdout, stderr = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"{name} took longer than {timeout:g} s") from error
        finally:
            # Also reached by an interrupt: never leave a compiler running behind us.
            if process.poll() is None:
                _end_group(process)
                process.wait()
            with self._lock:
                self._live.discard(process)
                stopped = self._stopped
        if stopped:
            raise ToolchainError(f"{name} was ended: the compile was interrupted")
        if stderr.startswith("\0"):
            raise ToolchainError(f"{name} cannot be started: {stderr[1:].strip()}")
        return Completed(process.returncode, stdout, stderr)

    def stop(self) -> None:
        """End every running tool and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                _end_group(process)


def run(tool: Tool, args: Sequence[str | Path], *, timeout: float | None = None) -> str:
    """What one tool prints, insisting that it succeeds.

    Raises:
        ToolchainError: It cannot be started or fails.
    """
    done = Runner().run(tool, args, timeout=timeout)
    if done.returncode != 0:
        raise ToolchainError(f"{tool.name} failed: {one_line(done.stderr or done.stdout)}")
    return done.stdout
