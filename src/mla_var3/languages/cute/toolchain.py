"""Finds the CuTe DSL's compiler, ptxas and disassemblers, checks versions, and runs them."""

from __future__ import annotations

import ctypes
import functools
import importlib.metadata
import importlib.util
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path

from mla_var3.errors import ToolchainError
from mla_var3.static import tools
from mla_var3.static.source import relative_source

#: Distributions whose versions shape the facts.
TOOLS = (
    "nvidia-cutlass-dsl",
    "nvidia-cuda-nvcc",
    "nvidia-cuda-cuobjdump",
    "nvidia-cuda-nvdisasm",
)

#: Release of the DSL that the reading of its output was checked against.
DSL_RELEASE = "4.8"

#: Our files that call the compiler: no place of a kernel.
_OWN = re.compile(r"/mla_var3/(languages/cute|examples)/")
_COLOR = re.compile(r"\x1b\[[0-9;]*m")
_MESSAGE = re.compile(r"error(?:\[\w+\])?:\s*(.+)")
_PLACE = re.compile(r"-->\s*(\S+):(\d+)")
#: How a machine's shortage reads, also where a compiler words it.
_SHORTAGE = re.compile(
    r"out of memory|allocat\w* (?:memory|failed)|bad_alloc|no space left|temporarily unavailable"
    r"|too many open files|timed? ?out|killed|signal \d",
    re.IGNORECASE,
)
_SUGGESTION = re.compile(r"suggestion:\s*(.+?)(?=\s*suggestion:|$)", re.DOTALL)


def missing() -> str | None:
    """Why nothing can be compiled here; None when it can."""
    if importlib.util.find_spec("nvidia_cutlass_dsl") is None:
        return (
            "the CuTe DSL is not installed "
            "(python -m pip install 'nvidia-cutlass-dsl[cu13]'; Linux and Windows only)"
        )
    version = importlib.metadata.version("nvidia-cutlass-dsl")
    if tools.release(version) != tools.release(DSL_RELEASE):
        return (
            f"nvidia-cutlass-dsl {version} is installed, and this project is checked against "
            f"release {DSL_RELEASE} (python -m pip install 'nvidia-cutlass-dsl[cu13]=="
            f"{DSL_RELEASE}.*')"
        )
    return None


def require() -> None:
    """Raise ToolchainError unless the DSL is installed in the release that is known here."""
    if reason := missing():
        raise ToolchainError(reason)


@functools.cache
def versions() -> dict[str, str]:
    """Version of each of :data:`TOOLS`, and of the CUDA that the DSL was built with.

    Raises:
        ToolchainError: One is not installed.
    """
    require()
    return {name: tools.package_version(name) for name in TOOLS} | {"cuda": f"cu{flavor()}"}


@functools.cache
def flavor() -> int:
    """Major version of CUDA whose build of the DSL is loaded."""
    from cutlass.base_dsl.version_info import CUDA_VERSION

    return int(CUDA_VERSION.major)


def library_folder() -> Path:
    """Where the DSL's runtime library and the archive to link exported kernels with lie."""
    distribution = f"nvidia-cutlass-dsl-libs-cu{flavor()}"
    return packaged(distribution, "libcuda_dialect_runtime_static.a").parent


@functools.cache
def packaged(distribution: str, name: str) -> Path:
    """A file of an installed distribution, by its last name.

    Raises:
        ToolchainError: The distribution is missing, or has no such file.
    """
    tools.package_version(distribution)
    for file in importlib.metadata.files(distribution) or ():
        path = Path(str(file.locate()))
        if file.name == name and path.is_file():
            return path.resolve()
    raise ToolchainError(f"package {distribution} holds no {name}; reinstall it")


@functools.cache
def load_runtime() -> None:
    """Make the runtime's symbols visible to the DSL, which looks them up when it exports."""
    library = library_folder() / "libcute_dsl_runtime.so"
    try:
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ToolchainError(f"{library.name} cannot be loaded: {error}") from error


def read(tool: str, arguments: Sequence[str | Path]) -> str:
    """What one of the disassemblers prints; ToolchainError when it fails."""
    return tools.run(tools.disassembler(tool), arguments)


def ptxas(ptx: Path, target: str, cubin: Path | None = None) -> str:
    """What ptxas says of a PTX file: resources, and the warnings that the DSL keeps to itself.

    Args:
        ptx: The file.
        target: Such as ``sm_90a``.
        cubin: Where to write what it makes, if it is wanted.

    Returns:
        Its messages; where it refuses the file, that it does so.
    """
    program = tools.locate("ptxas", "nvidia-cuda-nvcc")
    # Not to /dev/null: where it refuses a file, it removes what it was to write.
    with tempfile.TemporaryDirectory() as folder:
        made = cubin or Path(folder, "cubin")
        done = tools.Runner().run(program, ["-v", f"-arch={target}", ptx, "-o", made])
    return done.stderr + done.stdout


def sentence(error: BaseException) -> str:
    """A compiler's complaint in one sentence, with the Python line where it names one."""
    text = _COLOR.sub("", str(error))
    place = _PLACE.search(text)
    where = f"{relative_source(place[1])}:{place[2]}: " if place else _raised_at(error)
    message = _MESSAGE.search(text)
    if message is None:
        return tools.one_line(f"{where}{type(error).__name__}: {text}")
    hint = _SUGGESTION.search(text)
    advice = f" ({tools.one_line(hint[1], 160).rstrip('.')})" if hint else ""
    return tools.one_line(f"{where}{message[1].rstrip('.')}{advice}", 500)


def is_verdict(error: BaseException) -> bool:
    """Whether an error is what the DSL says of a kernel, and would say again.

    What a machine without memory, room or time made of a compile is none, however the DSL words it.
    """
    from cutlass.base_dsl.common import DSLUserCodeError
    from cutlass.base_dsl.compiler import CompilerDiagnosticError

    if not isinstance(error, DSLUserCodeError | CompilerDiagnosticError):
        return False
    chain = list(_chain(error))
    return not any(isinstance(one, OSError | MemoryError | SystemError) for one in chain) and not (
        any(_SHORTAGE.search(_said(one)) for one in chain)
    )


def _said(error: BaseException) -> str:
    """What an error says, without the lines of source that the DSL shows beside it."""
    return str(getattr(error, "message", None) or error)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what led to it."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__


def _raised_at(error: BaseException) -> str:
    """``file:line: `` of the innermost frame outside installed packages; empty without one."""
    inside = (sys.prefix, sys.base_prefix)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        named = not frame.filename.startswith((*inside, "<"))
        if named and not _OWN.search(frame.filename):
            return f"{relative_source(frame.filename)}:{frame.lineno}: "
    return ""
