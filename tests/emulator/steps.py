"""Random instructions of one thread, and what each does to its registers and words."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

REGISTERS, PREDICATES = 8, 4
WORD = (1 << 32) - 1


@dataclass
class Thread:
    """Registers, predicates, and four words of shared memory of its own."""

    r: list[int]
    p: list[bool]
    words: list[int]


Effect = Callable[[Thread], None]
VALUES: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b,
    "sub.u32": lambda a, b: a - b,
    "mul.lo.u32": lambda a, b: a * b,
    "xor.b32": lambda a, b: a ^ b,
    "and.b32": lambda a, b: a & b,
    "min.u32": min,
    "max.s32": lambda a, b: max(a, b, key=lambda x: x ^ 1 << 31),
    "shl.b32": lambda a, b: a << b if b < 32 else 0,
    "shr.u32": lambda a, b: a >> b if b < 32 else 0,
}
TESTS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "lt": lambda a, b: a < b,
    "ge": lambda a, b: a >= b,
}
LOGIC: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a != b,
}


def operand(draw: random.Random) -> tuple[str, Callable[[Thread], int]]:
    if draw.random() < 0.7:
        k = draw.randrange(REGISTERS)
        return f"%r{k}", lambda t: t.r[k]
    number = draw.choice([0, 1, 2, 3, 31, 32, 255, 0x7FFFFFFF, draw.getrandbits(31)])
    return str(number), lambda t: number


def step(draw: random.Random) -> tuple[str, Effect]:
    """One instruction, and what it does."""
    (a, x), (b, y) = operand(draw), operand(draw)
    d, p, q, s = (draw.randrange(n) for n in (REGISTERS, PREDICATES, PREDICATES - 1, PREDICATES))
    q += q >= p

    def value(t: Thread) -> None:
        t.r[d] = VALUES[op](x(t), y(t)) & WORD

    def compare(t: Thread) -> None:
        holds, other = TESTS[test](x(t), y(t)), t.p[s]
        t.p[p], t.p[q] = LOGIC[logic](holds, other), LOGIC[logic](not holds, other)

    def choose(t: Thread) -> None:
        t.r[d] = x(t) if t.p[p] else y(t)

    def store(t: Thread) -> None:
        t.words[t.r[s] & 3] = x(t)

    def load(t: Thread) -> None:
        t.r[d] = t.words[t.r[s] & 3]

    def guarded(t: Thread) -> None:
        if not t.p[p]:
            t.r[d] = x(t)

    op, test, logic = (draw.choice(list(names)) for names in (VALUES, TESTS, LOGIC))
    at = f"and.b32 %u, %r{s}, 3; shl.b32 %u, %u, 2; add.u32 %u, %u, %m;"
    return draw.choice(
        [
            *[(f"{op} %r{d}, {a}, {b};", value)] * 4,
            (f"setp.{test}.{logic}.u32 %p{p}|%p{q}, {a}, {b}, %p{s};", compare),
            (f"selp.b32 %r{d}, {a}, {b}, %p{p};", choose),
            (f"{at} st.shared.u32 [%u], {a};", store),
            (f"{at} ld.shared.u32 %r{d}, [%u];", load),
            (f"@!%p{p} mov.b32 %r{d}, {a};", guarded),
        ]
    )
