"""What a kernel does with the edits that it can choose: which predicates only select by them.

Of such an edit one run tells all: as long as both values of each selection are the same, the kernel
does what it does without the edit.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from dataclasses import dataclass

from mla_var3.gpuless.ptx import Instruction, Kernel

#: What the register holds for number 0: no kernel compares with such a constant.
FIRST = 0x5AD00000
#: How many numbers there may be.
MOST = 1 << 16
#: Compares the register with a number's constant, and a flag made of that with 0.
ASKS, TESTS = "setp.eq.u32", ("setp.eq.b32", "setp.ne.b32", "setp.eq.s32", "setp.ne.s32")
_NAME = re.compile(r"[%\w$@]+")


@dataclass(frozen=True)
class Selections:
    """The edits that a kernel can choose.

    Attributes:
        numbers: Numbers of all of them.
        by: By predicate the number of an edit that does nothing but select by such predicates.
    """

    numbers: frozenset[int]
    by: Mapping[str, int]

    @property
    def others(self) -> frozenset[int]:
        """Numbers of those that do more than select."""
        return self.numbers - set(self.by.values())


def find(kernel: Kernel) -> Selections:
    """The edits that a kernel can choose.

    What is written in any other way than ``choices`` writes it does more than select.
    """
    asked: dict[str, int] = {}  # The number by a comparison's predicate, a flag and a test.
    flags: dict[str, int] = {}
    tests: dict[str, int] = {}
    asking: set[str] = set()
    unclear: set[int] = set()
    elsewhere: set[str] = set()
    rest: list[Instruction] = []
    for i in kernel.instructions:  # A flag that is made behind its test counts as elsewhere.
        elsewhere.add(i.guard or "")
        if i.op == ASKS and (number := _number(i.args[2])) is not None:
            told, at = asked, number
            asking.add(i.args[1])
        elif i.op == "selp.b32" and i.args[3] in asked and i.args[1:3] == ("1", "0"):
            told, at = flags, asked[i.args[3]]
        elif i.op in TESTS and i.args[1] in flags and i.args[2] == "0" and "|" not in i.args[0]:
            told, at = tests, flags[i.args[1]]
        else:
            rest.append(i)
            continue
        if told.setdefault(i.args[0], at) != at:  # Of two, nobody can say which.
            unclear |= {told[i.args[0]], at}
    every = frozenset(asked.values())
    if any(_reads(i) and i.args[0] not in asking for i in kernel.instructions):
        return Selections(every, {})
    elsewhere.update(*(_mentioned(i, tests) for i in rest))
    unclear |= {n for told in (asked, flags, tests) for x, n in told.items() if x in elsewhere}
    return Selections(every, {name: n for name, n in tests.items() if n not in unclear})


def _number(text: str) -> int | None:
    """The number of an edit that a constant stands for."""
    number = int(text) - FIRST if text.isdigit() else -1
    return number if 0 <= number < MOST else None


def _reads(i: Instruction) -> bool:
    """Whether an instruction takes what says who is chosen."""
    return any("%envreg0" in arg for arg in i.args)


def _mentioned(i: Instruction, tests: Container[str]) -> set[str]:
    """Registers of an instruction, but a test's by which it selects, and what asks."""
    if i.op == "mov.b32" and i.args[1] == "%envreg0":
        return set()
    selects = i.parts[0] == "selp" and i.args[3] in tests
    return set(_NAME.findall(" ".join(i.args[:3] if selects else i.args)))
