"""A lowered cuTile kernel and the state of its launch: executes its closures block by block.

Every operation becomes one closure ``step(env, rt)``: ``env`` is a list with a slot for each
variable of the kernel, ``rt`` the state of the launch. Closures are built once per signature. Loops
and branches are generators, so that a block of the grid can wait for another. A block of the IR is
cut into *segments* at control flow: how often a segment ran says how many steps and
FLOPs it took, since both are known when it is built.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cuda.tile

from mla_var3.errors import InterpreterError
from mla_var3.interpreter import taint
from mla_var3.interpreter.launch_report import Facts, SourceLine, Watched

if TYPE_CHECKING:
    from mla_var3.interpreter.launch_report import DiagnosticLog, Facts
    from mla_var3.interpreter.memory import Memory

Env = list[Any]
Step = Callable[[Env, "Runtime"], Any]


_CUTILE = str(Path(cuda.tile.__file__).parent)


def loc_of(op: Any) -> Any:
    """Returns where a program causes an operation; of a method of cuTile, where it is called."""
    loc = op.loc
    while loc.call_site is not None and (loc.filename or "").startswith(_CUTILE):
        loc = loc.call_site
    return loc


def line_of(op: Any) -> SourceLine:
    """Returns the file and line of an operation."""
    loc = loc_of(op)
    return (loc.filename or "<unknown>", loc.line)


END, CONTINUE, BREAK, RETURN = "end_branch", "continue", "break", "return"


@dataclass(frozen=True)
class Signal:
    """How a block ended, and the slots of the values it hands on."""

    kind: str
    slots: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wait:
    """A block lets others run.

    Attributes:
        where: The line of the loop in which it waits.
        idle: Whether the same would happen again until another block changes memory.
    """

    where: SourceLine
    idle: bool


#: Executes a part of a block; it yields where the block waits.
Run = Generator[Wait, None, "Signal | None"]


@dataclass
class Runtime:
    """State of one launch."""

    memory: Memory
    log: DiagnosticLog
    grid: tuple[int, int, int]
    float_poison: float
    int_poison: int
    max_steps: int
    counts: list[int]
    block: tuple[int, int, int] = (0, 0, 0)
    hardware_padding: bool = False
    taints: dict[int, taint.Taint] = field(default_factory=dict)
    invariant_taints: dict[int, taint.Taint] = field(default_factory=dict)
    origins: taint.Origins = field(default_factory=taint.Origins)
    spent: int = 0
    print_limit: int = 1024
    print_blocks: tuple[tuple[int, int, int], ...] | None = None
    watched: list[Watched] = field(default_factory=list)
    judged: set[str] = field(default_factory=set)
    facts: Facts = field(default_factory=dict)

    def went(self, kind: str, place: str, way: str) -> None:
        """Notes which way something in the kernel went."""
        self.facts.setdefault((kind, place), set()).add(way)

    def spend(self, steps: int, where: SourceLine) -> None:
        """Counts steps against the limit.

        Raises:
            InterpreterError: If the launch has taken more than ``max_steps``.
        """
        self.spent += steps
        if self.spent > self.max_steps:
            raise InterpreterError(
                f"{where[0]}:{where[1]}: block {self.block} passed the limit of {self.max_steps} "
                "operations; raise Options.max_steps if the kernel is that long"
            )


@dataclass
class Segment:
    """Operations that always run together.

    Attributes:
        number: Index of its counter.
        pairs: A step and its taint rule for each operation.
        names: Opcode and source line of each.
        tail: The control-flow operation that ends it, if any; a loop or branch is a generator.
        nested: Whether ``tail`` is one.
        flops: FLOPs of one run, by kind.
    """

    number: int
    pairs: list[tuple[Step, taint.Rule]] = field(default_factory=list)
    names: list[tuple[str, SourceLine]] = field(default_factory=list)
    tail: Step | None = None
    nested: bool = False
    flops: Counter[str] = field(default_factory=Counter)

    @property
    def size(self) -> int:
        """Operations of one run."""
        return len(self.pairs) + (self.tail is not None)

    def failure(self, step: Step, rt: Runtime, error: Exception) -> InterpreterError:
        """Returns the error for an operation that the interpreter itself failed at."""
        opcode, (file, line) = next(
            name for (s, _), name in zip(self.pairs, self.names, strict=True) if s is step
        )
        return InterpreterError(
            f"{file}:{line}: the interpreter failed at operation {opcode!r} in block {rt.block}: "
            f"{type(error).__name__}: {error}"
        )


@dataclass
class Code:
    """An executable block."""

    segments: list[Segment] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Operations of one run, nested blocks not counted."""
        return sum(segment.size for segment in self.segments)

    def run(self, env: Env, rt: Runtime) -> Run:
        """Executes the block, yields where it waits, and returns the signal of its terminator."""
        taints = rt.taints
        for segment in self.segments:
            rt.counts[segment.number] += 1
            try:
                for step, rule in segment.pairs:
                    step(env, rt)
                    if taints:
                        rule(env, rt)
            except InterpreterError:
                raise
            except Exception as error:
                raise segment.failure(step, rt, error) from error
            if segment.tail is not None:
                signal: Signal | None = (
                    (yield from segment.tail(env, rt)) if segment.nested else segment.tail(env, rt)
                )
                if signal is not None:
                    return signal
        return None

    def complete(self, env: Env, rt: Runtime) -> Signal | None:
        """Executes a block that cannot wait."""
        running = self.run(env, rt)
        try:
            next(running)
        except StopIteration as stop:
            signal: Signal | None = stop.value
            return signal
        raise AssertionError("only the loop of a kernel waits")


@dataclass
class Program:
    """A lowered kernel.

    Attributes:
        name: Name of the kernel function.
        where: Its first line.
        params: Slots of the flattened parameters, in order.
        prologue: Operations whose results are the same for every block; run once per launch.
        body: Operations of one block.
        slots: Number of slots.
        segments: Every segment, in the order of their counters.
        stored: Indices into ``params`` of the base pointers that may be written through, with a
            line that does; None if that cannot be told, so that each may be.
        widest: Most multiply-adds of one matrix product.
    """

    name: str
    where: SourceLine
    params: list[int]
    prologue: Code
    body: Code
    slots: int
    segments: list[Segment]
    stored: dict[int, SourceLine] | None
    widest: int
