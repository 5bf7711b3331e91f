"""``Execution``: diagnostics, counts and coverage facts of one kernel run on the CPU.

``recording`` collects those of all kernels in a block; interpreter and emulator add them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]
#: Orders in which the blocks of a launch may start; a kernel that is right takes any.
Order = Literal["forward", "reverse", "random"]


#: A kind and a place of a kernel, and which ways it went there.
Facts = dict[tuple[str, str], set[str]]


@dataclass(frozen=True)
class Diagnostic:
    """Something found while a kernel ran.

    Attributes:
        kind: What it is, such as ``out-of-bounds load``.
        severity: ``error`` when the kernel is wrong.
        file: Source file.
        line: 1-based line.
        message: One sentence.
        slow: Whether it costs time and changes no value.
    """

    kind: str
    severity: Severity
    file: str
    line: int
    message: str
    slow: bool = False

    def __str__(self) -> str:
        return f"{self.kind} at {self.file}:{self.line}: {self.message}"


@dataclass(frozen=True)
class Argued:
    """A true finding that a design lives with, as in a source that is not ours.

    Attributes:
        kind: What it is.
        file: Name of the source file.
        line: 1-based line; None for any line of the file.
        reason: Why the results are right all the same, or when they are not.
    """

    kind: str
    file: str
    line: int | None
    reason: str

    def is_about(self, found: Diagnostic) -> bool:
        """Whether something found is this."""
        same = found.kind == self.kind and self.line in (None, found.line)
        return same and found.file.rpartition("/")[2] == self.file


def argued(found: Diagnostic, known: Sequence[Argued]) -> Diagnostic:
    """A finding, no error where the design argues it."""
    one = next((each for each in known if each.is_about(found)), None)
    if one is None:
        return found
    return replace(found, severity="info", message=f"{found.message}; argued: {one.reason}")


@dataclass(frozen=True)
class Execution:
    """One launch on the CPU.

    Attributes:
        kernel: Name of the kernel function.
        mma_flops: Matrix FLOPs that ran; None where they were not counted.
        bytes_loaded: Bytes that loads asked for, likewise.
        bytes_stored: Bytes that stores wrote, likewise.
        bank_conflicts: Wavefronts of shared memory beyond the least, likewise.
        sectors: Sectors of global memory that warps asked for, likewise.
        least_sectors: Sectors that the same bytes would fill, likewise.
        diagnostics: What was found.
        order: The order in which its blocks started; None where nobody can choose it.
        facts: Which ways its branches, loops, tile indices and tile edges went.
    """

    kernel: str
    mma_flops: int | None = None
    bytes_loaded: int | None = None
    bytes_stored: int | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    order: str | None = None
    facts: Facts = field(default_factory=dict)
    bank_conflicts: int | None = None
    sectors: int | None = None
    least_sectors: int | None = None


class Stream:
    """Where kernels run one after another.

    Attributes:
        last: What a language keeps of the last one, for one that may begin before that has ended.
    """

    last: Any = None


_RECORDING: ContextVar[list[Execution] | None] = ContextVar("executions", default=None)
_STREAM: ContextVar[Stream | None] = ContextVar("stream", default=None)
_CONFLICTS: ContextVar[bool] = ContextVar("conflicts", default=True)


@contextlib.contextmanager
def recording(conflicts: bool = True) -> Iterator[list[Execution]]:
    """Collect the executions of all kernels that run on the CPU inside the block, on one stream.

    Args:
        conflicts: Whether bank conflicts and sectors are counted, where a language can.
    """
    found: list[Execution] = []
    tokens = _RECORDING.set(found), _CONFLICTS.set(conflicts), _STREAM.set(Stream())
    try:
        yield found
    finally:
        _RECORDING.reset(tokens[0])
        _CONFLICTS.reset(tokens[1])
        _STREAM.reset(tokens[2])


def stream() -> Stream:
    """The stream of the recording that is on; one of its own where none is."""
    return _STREAM.get() or Stream()


def counts_conflicts() -> bool:
    """Whether bank conflicts and sectors are asked for."""
    return _CONFLICTS.get()


_ORDER: ContextVar[Order | None] = ContextVar("block order", default=None)


@contextlib.contextmanager
def starting(order: Order | None) -> Iterator[None]:
    """Start the blocks of every kernel that runs on the CPU inside the block in this order."""
    token = _ORDER.set(order)
    try:
        yield
    finally:
        _ORDER.reset(token)


def block_order() -> Order | None:
    """The order that is asked for; None when nobody asks."""
    return _ORDER.get()


def note(execution: Execution) -> None:
    """Add an execution to the recording that is on, if one is."""
    if (found := _RECORDING.get()) is not None:
        found.append(execution)
