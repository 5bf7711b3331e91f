"""Threads of random programs run one by one, each as far as it can go without the others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.emulator.steps import WORD, Thread

#: Words of each thread in shared, global and local memory; registers alike in a warp; counters.
OWN, ALIKE, COUNTERS = 4, 2, 3
REDUCTIONS: dict[str, Callable[[int, int], int]] = {
    "add.u32": lambda a, b: a + b & WORD,
    "xor.b32": lambda a, b: a ^ b,
    "max.u32": max,
}
ATOMICS: dict[str, Callable[[int, int], int]] = REDUCTIONS | {"exch.b32": lambda a, b: b}


class Meeting(NamedTuple):
    """What a thread brings where others must come too.

    Attributes:
        site: Which instruction.
        who: Identifiers of all that must come.
        value: What it brings.
        given: What each takes away, by identifier, from what each brought.
    """

    site: int
    who: tuple[int, ...]
    value: Any
    given: Callable[[dict[int, Any]], dict[int, Any]]


@dataclass
class Lane(Thread):
    """A thread with its memory, masks of contexts, and counters that all share."""

    id: int
    threads: int
    x: list[int]
    cells: list[int]
    spots: list[int]
    counters: dict[str, list[int]]
    k: dict[int, int] = field(default_factory=dict)

    def members(self, mask: int) -> tuple[int, ...]:
        first = self.id & -32
        return tuple(first + i for i in range(32) if mask >> i & 1)


Run = Callable[[Lane], Generator[Meeting, Any, None]]
#: Text and what it does.
Part = tuple[list[str], Run]


def run_all(threads: list[Lane], run: Run) -> None:
    """Run threads one by one, each as far as it can go alone."""
    alive = {t.id: run(t) for t in threads}
    waiting: dict[int, Meeting] = {}

    def go(thread: int, value: Any) -> None:
        try:
            waiting[thread] = alive[thread].send(value)
        except StopIteration:
            del alive[thread]

    for t in threads:
        go(t.id, None)
    while waiting:
        groups: dict[tuple[int, tuple[int, ...]], set[int]] = defaultdict(set)
        for thread, meeting in waiting.items():
            groups[meeting[:2]].add(thread)
        ready = [who for (_, who), came in groups.items() if came == set(who)]
        assert ready, "threads of the program wait for each other"
        for who in ready:
            brought = {thread: waiting.pop(thread) for thread in who}
            given = brought[who[0]].given({thread: m.value for thread, m in brought.items()})
            for thread in who:
                go(thread, given[thread])


# What lanes do together -----------------------------------------------------------------------
def to_all(f: Callable[[dict[int, Any]], Any]) -> Callable[[dict[int, Any]], dict[int, Any]]:
    """All are given the same."""
    return lambda brought: dict.fromkeys(brought, f(brought))


BALLOT = to_all(lambda brought: sum(1 << (i & 31) for i, v in brought.items() if v))
FIRST = to_all(lambda brought: brought[min(brought)])


def alike(brought: dict[int, int]) -> dict[int, int]:
    """Masks of the lanes that bring the same."""
    masks: dict[int, int] = defaultdict(int)
    for i, v in brought.items():
        masks[v] |= 1 << (i & 31)
    return {i: masks[v] for i, v in brought.items()}


def reduced(name: str) -> Callable[[dict[int, int]], dict[int, int]]:
    def f(brought: dict[int, int]) -> int:
        values = list(brought.values())
        for v in values[1:]:
            values[0] = REDUCTIONS[name](values[0], v)
        return values[0]

    return to_all(f)


def shuffled(mode: str, by: int) -> Callable[[dict[int, int]], dict[int, int]]:
    def source(lane: int) -> int:
        other = {"bfly": lane ^ by, "up": lane - by, "down": lane + by, "idx": by}[mode]
        return other if 0 <= other < 32 else lane

    return lambda brought: {i: brought[i & -32 | source(i & 31)] for i in brought}
