"""Block scheduler of the interpreter: runs a grid's blocks as coroutines, several under way.

A block runs until it ends, or until it waits: an iteration of a loop that reads memory changed
nothing. The next block starts then. Once every block has started, those that wait go on whenever
memory has changed, the latest one first; when none can, they wait for each other.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING

from mla_var3.errors import InterpreterError
from mla_var3.interpreter.hazards import Actor
from mla_var3.interpreter.program import Env, Program, Runtime, Wait

if TYPE_CHECKING:
    from mla_var3.interpreter.options import Options

Index = tuple[int, int, int]


def block_order(grid: Index, options: Options) -> Iterator[Index]:
    """Yields the index of each block, in the order in which they start."""
    indices = ((x, y, z) for z, y, x in itertools.product(*(range(n) for n in reversed(grid))))
    if options.order == "forward":
        return indices
    blocks = list(indices)
    if options.order == "reverse":
        return reversed(blocks)
    seed = options.seed if options.order == "random" else options.order
    random.Random(seed).shuffle(blocks)
    return iter(blocks)


class Task:
    """One block under way.

    Args:
        index: Its index in the grid.
        program: What it runs.
        env: Its variables.
        rt: The launch.
    """

    def __init__(self, index: Index, program: Program, env: Env, rt: Runtime) -> None:
        self.index = index
        self.taints = dict(rt.invariant_taints)
        self.actor = Actor(str(index))
        self.run = program.body.run(env, rt)
        self.wait: Wait | None = None
        self.version = 0

    def advance(self, rt: Runtime) -> bool:
        """Runs the block until it ends or waits, and tells whether it waits."""
        rt.block, rt.taints = self.index, self.taints
        rt.memory.hazards.enter(self.actor)
        self.wait = next(self.run, None)
        self.version = rt.memory.version
        return self.wait is not None

    def can_go_on(self, rt: Runtime) -> bool:
        """Tells whether another look at memory may show something new."""
        assert self.wait is not None
        return not self.wait.idle or self.version != rt.memory.version


def run_blocks(program: Program, env: Env, rt: Runtime, options: Options) -> None:
    """Runs every block of the grid to its end.

    Raises:
        InterpreterError: If blocks wait for each other, or one of them fails.
    """
    waiting: list[Task] = []
    for index in block_order(rt.grid, options):
        rt.spend(program.body.size, program.where)
        task = Task(index, program, list(env), rt)
        if task.advance(rt):
            waiting.append(task)
    while waiting:
        waiting = _pass(waiting, rt)


def _pass(waiting: list[Task], rt: Runtime) -> list[Task]:
    """Lets each waiting block go on once, the latest first, and returns those that still wait."""
    left, moved = [], False
    for task in reversed(waiting):
        if not task.can_go_on(rt):
            left.append(task)
            continue
        version = rt.memory.version
        if task.advance(rt):
            left.append(task)
            assert task.wait is not None
            moved = moved or version != rt.memory.version or not task.wait.idle
        else:
            moved = True
    if not moved:
        raise _deadlock(waiting)
    return left[::-1]


def _deadlock(waiting: list[Task]) -> InterpreterError:
    """Returns the error for blocks of which none can go on: each line, and who waits there."""
    lines: dict[tuple[str, int], list[Index]] = {}
    for task in waiting:
        assert task.wait is not None
        lines.setdefault(task.wait.where, []).append(task.index)
    (where, blocks), *others = lines.items()
    text = (
        f"{where[0]}:{where[1]}: {_blocks(blocks)} in this loop for memory that no block that is "
        "left changes"
    )
    for (file, line), blocks in others:
        text += f"; {_blocks(blocks)} at {file}:{line}"
    return InterpreterError(f"{text}: a deadlock")


def _blocks(blocks: list[Index]) -> str:
    if len(blocks) == 1:
        return f"block {blocks[0]} waits"
    rest = len(blocks) - 1
    return f"block {blocks[0]} and {rest} other{'s' if rest > 1 else ''} wait"
