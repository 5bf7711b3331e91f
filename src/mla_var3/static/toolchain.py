"""Finds NVIDIA's compiler tools inside the installed Python packages, and runs them.

The tools come from packages, never from ``PATH``: a toolkit that happens to be installed beside
them has other versions, and other versions give other facts.
"""

from __future__ import annotations

import functools
import importlib.metadata
import os
import re
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from mla_var3.errors import ToolchainError, UnknownNameError

#: Tool -> package that ships it.
PACKAGES = {
    "tileiras": "nvidia-cuda-tileiras",
    "tileirdisasm": "nvidia-cuda-tileiras",
    "cuobjdump": "nvidia-cuda-cuobjdump",
    "nvdisasm": "nvidia-cuda-nvdisasm",
}

#: Packages that tileiras calls into (ptxas, libnvvm); cuTile wants all of one release.
COMPILER_PACKAGES = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")

#: Release of tileiras that remarks, hints and figures were checked against.
TILEIRAS_RELEASE = "13.4"

#: Oldest disassembler release that knows every arch this tileiras compiles for.
DISASSEMBLER_RELEASE = "13.4"

#: Variables that make tileiras load another toolkit's libnvvm, and then fail without a reason.
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
def find(name: str) -> Tool:
    """Locate one tool of :data:`PACKAGES` and check its version.

    Args:
        name: A key of :data:`PACKAGES`.

    Raises:
        UnknownNameError: No such tool is known.
        ToolchainError: Its package is missing, broken, or of the wrong version.
    """
    if name not in PACKAGES:
        raise UnknownNameError("tool", name, sorted(PACKAGES))
    package = PACKAGES[name]
    version = package_version(package)
    _check_release(package, version)
    wanted = {name, f"{name}.exe"}
    for file in importlib.metadata.files(package) or ():
        path = Path(str(file.locate()))
        if file.name in wanted and path.is_file() and os.access(path, os.X_OK):
            return Tool(name, path.resolve(), version)
    raise ToolchainError(
        f"package {package} {version} holds no executable {name}; reinstall it "
        f"(python -m pip install --force-reinstall {package}=={version})"
    )


def _check_release(package: str, version: str) -> None:
    if package in COMPILER_PACKAGES:
        if release(version) != release(TILEIRAS_RELEASE):
            raise ToolchainError(
                f"{package} {version} is installed, and this project is checked against release "
                f"{TILEIRAS_RELEASE} (python -m pip install '{package}=={TILEIRAS_RELEASE}.*')"
            )
        for other in COMPILER_PACKAGES:
            if release(found := package_version(other)) != release(version):
                raise ToolchainError(
                    f"{other} {found} and {package} {version} are of different releases; tileiras "
                    f"needs both of {TILEIRAS_RELEASE}"
                )
    elif release(version) < release(DISASSEMBLER_RELEASE):
        raise ToolchainError(
            f"{package} {version} is older than {DISASSEMBLER_RELEASE}, the release of the "
            f"compiler (python -m pip install -U {package})"
        )


@functools.cache
def versions() -> dict[str, str]:
    """Version of everything that shapes the facts, by name; raises ToolchainError as `find`."""
    return {
        "cuda-tile": package_version("cuda-tile"),
        **{tool: find(tool).version for tool in PACKAGES},
        "bytecode": bytecode_version(),
    }


@functools.cache
def known_archs() -> tuple[str, ...]:
    """The archs tileiras compiles for, such as ``sm_90``, as the tool itself lists them."""
    text = run("tileiras", ["--help"]).stdout
    archs = tuple(dict.fromkeys(re.findall(r"^\s+=(sm_\d+[a-z]?)\b", text, re.MULTILINE)))
    if not archs:
        raise ToolchainError("tileiras --help lists no arch; its output has changed")
    return archs


def require_arch(arch: str) -> str:
    """Return ``arch``; UnknownNameError when tileiras does not compile for it."""
    if arch not in known_archs():
        raise UnknownNameError("arch", arch, list(known_archs()))
    return arch


@functools.cache
def bytecode_version() -> str:
    """Newest TileIR bytecode version that both cuda-tile writes and tileiras reads."""
    from cuda.tile._compile import _SUPPORTED_VERSIONS

    read = set(run("tileiras", ["--list-versions"]).stdout.split())
    written = [version.as_string() for version in _SUPPORTED_VERSIONS]
    common = [version for version in written if version in read]
    if not common:
        raise ToolchainError(
            f"cuda-tile writes TileIR bytecode {', '.join(written)} and tileiras reads "
            f"{', '.join(sorted(read)) or 'none'}: no version in common"
        )
    return max(common, key=release)


def environment() -> dict[str, str]:
    """Environment for the tools: this process's without :data:`HIDDEN_VARIABLES`.

    The folder of nvdisasm comes first on PATH, since cuobjdump looks for it there.
    """
    env = {key: value for key, value in os.environ.items() if key not in HIDDEN_VARIABLES}
    env["PATH"] = os.pathsep.join((str(find("nvdisasm").path.parent), env.get("PATH", "")))
    return env


class Runner:
    """Runs tools from several threads and ends all of them at once when stopped."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def run(
        self, name: str, args: Sequence[str | Path], *, timeout: float | None = None
    ) -> Completed:
        """Run one tool to its end.

        Args:
            name: A key of :data:`PACKAGES`.
            args: Its arguments.
            timeout: Seconds it may take.

        Raises:
            ToolchainError: It cannot be started, or the runner was stopped before it ended.
            TimeoutError: It took longer; the process has been ended.
        """
        tool = find(name)
        with self._lock:
            if self._stopped:
                raise ToolchainError(f"{name} was not started: the compile was interrupted")
            try:
                process = subprocess.Popen(
                    [str(tool.path), *map(str, args)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    errors="replace",
                    env=environment(),
                )
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
                process.kill()
                process.wait()
            with self._lock:
                self._live.discard(process)
                stopped = self._stopped
        if stopped:
            raise ToolchainError(f"{name} was ended: the compile was interrupted")
        return Completed(process.returncode, stdout, stderr)

    def stop(self) -> None:
        """End every running tool and start no more."""
        with self._lock:
            self._stopped = True
            for process in self._live:
                process.kill()


def run(name: str, args: Sequence[str | Path], *, timeout: float | None = None) -> Completed:
    """Run one tool and insist that it succeeds.

    Raises:
        ToolchainError: It cannot be started or fails.
    """
    done = Runner().run(name, args, timeout=timeout)
    if done.returncode != 0:
        raise ToolchainError(f"{name} failed: {one_line(done.stderr or done.stdout)}")
    return done


def one_line(text: str, limit: int = 300) -> str:
    """The text's lines as one, cut at ``limit`` characters."""
    joined = " ".join(text.split())
    return joined if len(joined) <= limit else joined[: limit - 3] + "..."
