"""Tells which line of Python decides a branch of PTX, and which loop one without such a line is of.

The DSL gives an ``if`` or a loop of device code no place of its own: all of them carry the line of
the host function. What computes a condition has one, and so has what a loop goes through.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

from mla_var3.gpuless.ptx import Instruction, Kernel

#: A register, as operands name it.
_REGISTER = re.compile(r"[%A-Za-z_$][\w$@%]*")
#: What joins conditions that comparisons made.
_LOGIC = ("not", "and", "or", "xor", "mov")

#: What a loop that is not unrolled goes through.
_RUN = ("range", "cutlass.range", "cutlass.range_dynamic")
#: File number and line.
Line = tuple[int, int]


class Branch(NamedTuple):
    """A branch that goes either way.

    Attributes:
        pc: Of its instruction.
        kind: ``jump`` goes forward by a condition and ``turn`` back; ``skip`` goes around a loop
            that has no condition of its own, and ``again`` to its next turn.
        line: Of the condition, or of the loop.
    """

    pc: int
    kind: Literal["jump", "turn", "skip", "again"]
    line: Line


def branches(kernel: Kernel) -> Iterator[Branch]:
    """The branches of a kernel that have a line."""
    made: dict[str, Instruction] = {}
    for i in kernel.instructions:
        if i.parts[0] == "bra" and i.guard is not None:
            target = kernel.labels[i.args[-1]]
            back = target <= i.pc
            if line := _decided(i.guard, made) or (i.line if i.own else None):
                yield Branch(i.pc, "turn" if back else "jump", line)
            elif line := _loop(kernel, *((target, i.pc) if back else (i.pc + 1, target))):
                yield Branch(i.pc, "again" if back else "skip", line)
        elif i.args:
            # The first operand is the result, or a pair of them.
            made.update((name, i) for name in _REGISTER.findall(i.args[0]))


def _decided(name: str, made: Mapping[str, Instruction]) -> Line | None:
    """Line of the comparison that a predicate comes from; None where it has none."""
    open_, seen = [name], set[str]()
    while open_:
        one = open_.pop(0)
        if one in seen or (i := made.get(one)) is None:
            continue
        seen.add(one)
        if i.own:
            return i.line
        if i.parts[0] in _LOGIC:
            open_ += [found for arg in i.args[1:] for found in _REGISTER.findall(arg)]
    return None


def _loop(kernel: Kernel, start: int, end: int) -> Line | None:
    """The loop that some instructions are of: that which most of them lie between.

    Functions that a loop calls have loops too, which are a part of it; and one around it has lines
    elsewhere, or the same, and is the longer.
    """
    places: dict[tuple[int, int, int], list[int]] = {}
    for i in kernel.instructions[start:end]:
        if i.own and i.line is not None:
            number, line = i.line
            for first, last in _loops(kernel.files.get(number, "")):
                if first < line <= last:
                    places.setdefault((number, first, last), []).append(i.pc)
    if not places:
        return None
    number, first, _ = max(places, key=lambda one: (places[one][-1] - places[one][0], one[1]))
    return number, first


@functools.lru_cache(maxsize=256)
def _loops(file: str) -> tuple[tuple[int, int], ...]:
    """First and last lines of the loops of a source that run; none where it cannot be read.

    Others are unrolled as they are traced, and a ``while`` has a condition with a line.
    """
    try:
        parsed = ast.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError, SyntaxError):
        return ()
    return tuple(
        (node.lineno, node.end_lineno or node.lineno)
        for node in ast.walk(parsed)
        if isinstance(node, ast.For)
        and isinstance(node.iter, ast.Call)
        and ast.unparse(node.iter.func) in _RUN
    )
