"""Reads a cubin's ELF: a digest of its code and constants, and how many wgmma and waits it has."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile

from mla_var3.errors import ToolchainError

#: Sections that a GPU executes or reads; what follows the name is a symbol. All else is for tools:
#: symbols, line tables, the PTX that was assembled.
CODE, CONSTANTS = ".text.", ".nv.constant"
#: On Hopper, an instruction is 16 bytes, whose lowest 12 bits tell what it is: ``HGMMA`` of
#: registers or of shared memory, and ``WARPGROUP``, of which this bit of its second half tells
#: ``DEPBAR`` from ``ARRIVE``. NVIDIA documents none of it; nvdisasm names them so.
_OPCODE, _HGMMA, _WARPGROUP, _DEPBAR = 0xFFF, (0x9F0, 0xDF0), 0x9C5, 1 << 16


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


def wgmma_counts(cubin: bytes) -> tuple[int, int]:
    """Waits for warpgroup multiplications (``WARPGROUP.DEPBAR``) and multiplications (``HGMMA``).

    It takes a hundredth of the time of a disassembler. Zeros say nothing: another release of the
    assembler may encode them otherwise.
    """
    waits = multiplications = 0
    for kind, content in _parts(cubin):
        if kind == CODE:
            low, high = np.frombuffer(content, "<u8").reshape(-1, 2).T
            opcode = low & np.uint64(_OPCODE)
            multiplications += int(np.isin(opcode, _HGMMA).sum())
            waits += int(((opcode == _WARPGROUP) & (high & np.uint64(_DEPBAR) != 0)).sum())
    return waits, multiplications


def _parts(cubin: bytes) -> Iterator[tuple[str, bytes]]:
    """Sections that count, each with its kind in place of its name (``.nv.constant3``)."""
    for section in ELFFile(io.BytesIO(cubin)).iter_sections():
        if section.name.startswith(CODE):
            yield CODE, section.data()
        elif section.name.startswith(CONSTANTS):
            bank = section.name.removeprefix(CONSTANTS).partition(".")[0]
            yield CONSTANTS + bank, section.data()
