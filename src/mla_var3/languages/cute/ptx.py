"""Reads facts from a kernel's PTX: mbarrier arrivals, transaction bytes, setmaxnreg budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import groupby

from mla_var3.errors import EmulatorError, ToolchainError
from mla_var3.gpuless.ptx import Instruction, Kernel, Module, parse

_ADDRESS = re.compile(r"\[([%\w$@]+)\s*(?:\+\s*(-?\d+))?\]")

#: Instructions that build a descriptor of a tile in shared memory.
_BUILDING = ("or.b64", "add.s64", "add.u64", "mov.b64", "mov.u64")

#: Bytes of an mbarrier (PTX ISA, section "Parallel Synchronization: mbarrier").
BARRIER_BYTES = 8


def module(text: str) -> Module:
    """Read the PTX that a compiler wrote.

    Raises:
        ToolchainError: It is none, or states no version.
    """
    try:
        found = parse(text)
    except EmulatorError as error:
        raise ToolchainError(f"the compiler's output has changed: {error}") from error
    if not found.version:
        raise ToolchainError("the PTX states no version; the compiler's output has changed")
    return found


def _of(kernel: Kernel, *starts: str) -> Iterator[Instruction]:
    return (i for i in kernel.instructions if i.op.startswith(starts))


def constants(kernel: Kernel) -> dict[str, int]:
    """Registers that are set to a constant, once."""
    found: dict[str, set[int]] = {}
    for move in _of(kernel, "mov.b32", "mov.u32", "mov.b64", "mov.u64"):
        if (value := _number(move.args[1])) is not None:
            found.setdefault(move.args[0], set()).add(value)
    return {register: next(iter(v)) for register, v in found.items() if len(v) == 1}


def _number(operand: str) -> int | None:
    return int(operand, 0) if re.fullmatch(r"-?(0[xX][0-9a-fA-F]+|\d+)", operand) else None


def barriers(kernel: Kernel) -> list[tuple[int, int]]:
    """(barriers, arrivals) of neighboring mbarriers that wait for the same arrivals.

    Empty where an address or a count is worked out at run time.
    """
    sums = {
        add.args[0]: (add.args[1], offset)
        for add in _of(kernel, "add.s32", "add.s64")
        if (offset := _number(add.args[2])) is not None
    }
    known = constants(kernel)
    placed: dict[tuple[str, int], int] = {}
    for init in _of(kernel, "mbarrier.init"):
        match = _ADDRESS.fullmatch(init.args[0])
        arrivals = known.get(init.args[1], _number(init.args[1]))
        if match is None or arrivals is None:
            return []
        base, at = match[1], int(match[2] or 0)
        if base in sums:
            base, at = sums[base][0], sums[base][1] + at
        if (base, at) in placed:
            return []
        placed[base, at] = arrivals
    rows = sorted(placed.items())
    # Neighbors differ by 8 bytes, so place less rank x 8 is the same for all of a run.
    runs = groupby(
        enumerate(rows),
        lambda item: (item[1][0][0], item[1][0][1] - BARRIER_BYTES * item[0], item[1][1]),
    )
    return [(len(list(group)), arrivals) for (_, _, arrivals), group in runs]


def transactions(kernel: Kernel) -> tuple[int, ...]:
    """Constant byte counts that barriers are told to expect, ascending, each once."""
    known = constants(kernel)
    told = (i.args[-1] for i in _of(kernel, "mbarrier.") if "expect_tx" in i.parts)
    values = {known.get(operand, _number(operand)) for operand in told}
    return tuple(sorted(value for value in values if value))


#: Swizzle of a warpgroup's operand in bytes, by bits 62 and 63 of its descriptor (PTX ISA,
#: "Matrix Descriptor Format" of wgmma).
_SWIZZLES = {0: 0, 1: 128, 2: 64, 3: 32}


def operand_swizzle(kernel: Kernel) -> int | None:
    """The narrowest swizzle of the tiles that warpgroups multiply, in bytes; 0 for none.

    The bits of descriptors that a kernel's constants hold tell it. None where no warpgroup
    multiplies.
    """
    if not any(True for _ in _of(kernel, "wgmma.mma_async")):
        return None
    numbers = (_number(operand) for i in _of(kernel, *_BUILDING) for operand in i.args[1:])
    kinds = {n >> 62 & 3 for n in numbers if n is not None and abs(n) >= 1 << 32}
    # Without such a constant the bits are all zero, as where tiles lie without a swizzle.
    found = [_SWIZZLES[kind] for kind in kinds if kind]
    return min(found, default=0)


def budgets(kernel: Kernel) -> list[tuple[str, int]]:
    """``setmaxnreg`` by direction (``inc``, ``dec``) and registers per thread."""
    return [(i.parts[1], int(i.args[0])) for i in _of(kernel, "setmaxnreg.")]
