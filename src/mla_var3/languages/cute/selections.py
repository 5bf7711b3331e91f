"""What a kernel does with the edits that it can choose: which predicates only select by them.

Of such an edit one run tells all: as long as both values of each selection are the same, the kernel
does what it does without the edit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    """The edits that a kernel can choose."""
    asked: dict[str, int] = {}  # By register: a comparison's, a flag's and a test's predicate.
    flags: dict[str, int] = {}
    tests: dict[str, int] = {}
    more: set[int] = set()
    beyond: set[str] = set()
    for i in kernel.instructions:  # In one text a flag is made before it is tested.
        if i.op == ASKS and (number := _number(i.args[2])) is not None:
            told, at = asked, number
        elif i.op == "selp.b32" and i.args[3] in asked:
            told, at = flags, asked[i.args[3]]
        elif i.op in TESTS and i.args[1] in flags and i.args[2] == "0":
            told, at = tests, flags[i.args[1]]
        else:
            beyond |= _mentioned(i)
            continue
        if told.setdefault(i.args[0], at) != at:  # Of two, nobody can say which.
            more |= {told[i.args[0]], at}
    more |= {at for told in (asked, flags, tests) for x, at in told.items() if x in beyond}
    by = {name: number for name, number in tests.items() if number not in more}
    return Selections(frozenset(asked.values()), by)


def _number(text: str) -> int | None:
    """The number of an edit that a constant stands for."""
    number = int(text) - FIRST if text.isdigit() else -1
    return number if 0 <= number < MOST else None


def _mentioned(i: Instruction) -> set[str]:
    """Registers of an instruction, but the one by which it selects, and what asks who is chosen."""
    if i.op == "mov.b32" and i.args[1] == "%envreg0":
        return set()
    args = i.args[:3] if i.parts[0] == "selp" else i.args
    return set(_NAME.findall(" ".join((*args, i.guard or ""))))
