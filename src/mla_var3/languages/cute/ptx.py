"""Reads PTX: its kernels, instructions with their Python lines, barriers and register budgets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby

from mla_var3.errors import ToolchainError

_ENTRY = re.compile(r"^\.(?:visible|weak) \.entry (\S+?)\(", re.MULTILINE)
_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]+)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)")
_OPCODE = re.compile(r"^\s*(?:@!?%\w+\s+)?([a-z][a-z0-9_]*(?:[.:]+[A-Za-z0-9_]+)*)[\s;]")
_VERSION = re.compile(r"^\.version (\S+)", re.MULTILINE)
_MOVE = re.compile(r"\bmov\.[bu](?:32|64)\s+(%\w+), (-?\d+|0x[0-9a-fA-F]+);")
_INIT = re.compile(r"\bmbarrier\.init\S*\s+\[(%\w+|\w+)(?:\+(-?\d+))?\], (%\w+|\d+)")
_EXPECT = re.compile(r"\bmbarrier\.\S*expect_tx\S*\s+(?:%\w+, |_, )?\[[^\]]+\], (%\w+|\d+)")
_ADD = re.compile(r"\badd\.s(?:32|64)\s+(%\w+), (%\w+), (-?\d+);")
_BUDGET = re.compile(r"\bsetmaxnreg\.(inc|dec)\.\S+\s+(\d+)")

#: Bytes of an mbarrier (PTX ISA, section "Parallel Synchronization: mbarrier").
BARRIER_BYTES = 8


@dataclass(frozen=True)
class Statement:
    """One PTX instruction.

    Attributes:
        opcode: With its modifiers.
        number: Line of the PTX text, 1-based.
        file: Python source; None where the compiler gives none.
        line: Line of it, 1-based.
    """

    opcode: str
    number: int
    file: str | None
    line: int | None


@dataclass(frozen=True)
class Entry:
    """One kernel of a PTX module.

    Attributes:
        name: As in the module.
        text: Its text, from its header on.
        first: Line of the module that ``text`` starts with, 1-based.
        files: Source files of the module by number.
    """

    name: str
    text: str
    first: int
    files: dict[int, str]

    @cached_property
    def statements(self) -> tuple[Statement, ...]:
        """Instructions in order.

        Code written as inline PTX carries line counts of its own; it is ascribed to the Python
        line in force before it.
        """
        return tuple(self._read())

    def _read(self) -> Iterator[Statement]:
        file, line, inlined = None, None, False
        for number, text in enumerate(self.text.splitlines(), self.first):
            if "// begin inline asm" in text or "// end inline asm" in text:
                inlined = "begin" in text
            elif match := _LOC.match(text):
                if not inlined:
                    file, line = self.files.get(int(match[1])), int(match[2]) or None
            elif match := _OPCODE.match(text):
                yield Statement(match[1], number, file, line)

    @cached_property
    def constants(self) -> dict[str, int]:
        """Registers that are set to a constant, once."""
        found: dict[str, set[int]] = {}
        for register, value in _MOVE.findall(self.text):
            found.setdefault(register, set()).add(int(value, 0))
        return {register: next(iter(v)) for register, v in found.items() if len(v) == 1}

    def _value(self, operand: str) -> int | None:
        return self.constants.get(operand) if operand.startswith("%") else int(operand, 0)

    def barriers(self) -> list[tuple[int, int]]:
        """(barriers, arrivals) of neighboring mbarriers that wait for the same arrivals.

        Empty where an address or a count is worked out at run time.
        """
        sums = {to: (base, int(offset)) for to, base, offset in _ADD.findall(self.text)}
        placed: dict[tuple[str, int], int] = {}
        for base, offset, count in _INIT.findall(self.text):
            at, arrivals = int(offset or 0), self._value(count)
            if base in sums:
                base, at = sums[base][0], sums[base][1] + at
            if arrivals is None or (base, at) in placed:
                return []
            placed[base, at] = arrivals
        rows = sorted(placed.items())
        # Neighbors differ by 8 bytes, so place less rank x 8 is the same for all of a run.
        runs = groupby(
            enumerate(rows),
            lambda item: (item[1][0][0], item[1][0][1] - BARRIER_BYTES * item[0], item[1][1]),
        )
        return [(len(list(group)), arrivals) for (_, _, arrivals), group in runs]

    def transactions(self) -> tuple[int, ...]:
        """Constant byte counts that barriers are told to expect, ascending, each once."""
        values = {self._value(operand) for operand in _EXPECT.findall(self.text)}
        return tuple(sorted(value for value in values if value))

    def budgets(self) -> list[tuple[str, int]]:
        """``setmaxnreg`` by direction (``inc``, ``dec``) and registers per thread."""
        return [(direction, int(count)) for direction, count in _BUDGET.findall(self.text)]


def version(text: str) -> str:
    """The PTX version that the module states."""
    match = _VERSION.search(text)
    if match is None:
        raise ToolchainError("the PTX states no version; the compiler's output has changed")
    return match[1]


def entries(text: str) -> dict[str, Entry]:
    """Kernels of a module by name.

    Raises:
        ToolchainError: There is none.
    """
    starts = list(_ENTRY.finditer(text))
    if not starts:
        raise ToolchainError("the PTX holds no kernel; the compiler's output has changed")
    files = {int(number): name for number, name in _FILE.findall(text)}
    ends = [match.start() for match in starts[1:]] + [len(text)]
    return {
        match[1]: Entry(
            match[1], text[match.start() : end], text.count("\n", 0, match.start()) + 1, files
        )
        for match, end in zip(starts, ends, strict=True)
    }
