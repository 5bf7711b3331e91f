"""Computes a digest of a cubin's machine code and constants from its ELF, for fingerprints."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from mla_var3.errors import ToolchainError

#: Sections that a GPU executes or reads; what follows the name is a symbol. All else is for tools:
#: symbols, line tables, the PTX that was assembled.
CODE, CONSTANTS = ".text.", ".nv.constant"


def code_digest(cubin: bytes) -> str:
    """SHA-256 of a cubin's machine code and constants, whatever its kernels are called.

    Raises:
        ToolchainError: It is not a cubin, or holds no code.
    """
    try:
        parts = sorted(_parts(cubin))
    except (ELFError, OverflowError, ValueError) as error:  # An offset past all files, say.
        raise ToolchainError(f"the cubin is not an ELF file: {error}") from error
    if not any(kind == CODE for kind, _ in parts):
        raise ToolchainError("the cubin holds no machine code")
    digest = hashlib.sha256()
    for kind, content in parts:
        digest.update(f"{kind}{len(content)}:".encode() + content)
    return digest.hexdigest()


def _parts(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Sections that count, each with its kind in place of its name (``.nv.constant3``)."""
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if section.name.startswith(CODE):
            yield CODE, section.data()
        elif section.name.startswith(CONSTANTS):
            bank = section.name.removeprefix(CONSTANTS).partition(".")[0]
            yield CONSTANTS + bank, section.data()
