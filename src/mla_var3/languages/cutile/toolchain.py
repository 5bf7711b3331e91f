"""Finds cuTile's compiler tileiras and its disassemblers; lists archs and bytecode versions."""

from __future__ import annotations

import functools
import re

from mla_var3.errors import ToolchainError, UnknownNameError
from mla_var3.static import tools
from mla_var3.static.tools import DISASSEMBLERS, Tool, package_version, release

#: Packages that tileiras calls into (ptxas, libnvvm); cuTile wants all of one release.
COMPILER_PACKAGES = ("nvidia-cuda-tileiras", "nvidia-cuda-nvcc", "nvidia-nvvm")
#: Tool -> package that ships it.
PACKAGES = {
    "tileiras": "nvidia-cuda-tileiras",
    "tileirdisasm": "nvidia-cuda-tileiras",
    **DISASSEMBLERS,
}
#: Release of tileiras that remarks, hints and figures were checked against.
TILEIRAS_RELEASE = "13.4"


@functools.cache
def find(name: str) -> Tool:
    """Locate one tool of :data:`PACKAGES` and check its version.

    Raises:
        UnknownNameError: No such tool is known.
        ToolchainError: Its package is missing, broken, or of the wrong version.
    """
    if name not in PACKAGES:
        raise UnknownNameError("tool", name, sorted(PACKAGES))
    if name in DISASSEMBLERS:
        return tools.disassembler(name)
    package = PACKAGES[name]
    _check_release(package, package_version(package))
    return tools.locate(name, package)


def _check_release(package: str, version: str) -> None:
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
    text = tools.run(find("tileiras"), ["--help"])
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

    read = set(tools.run(find("tileiras"), ["--list-versions"]).split())
    written = [version.as_string() for version in _SUPPORTED_VERSIONS]
    common = [version for version in written if version in read]
    if not common:
        raise ToolchainError(
            f"cuda-tile writes TileIR bytecode {', '.join(written)} and tileiras reads "
            f"{', '.join(sorted(read)) or 'none'}: no version in common"
        )
    return max(common, key=release)
