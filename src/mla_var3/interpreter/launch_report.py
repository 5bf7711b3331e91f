"""``LaunchReport`` of an interpreted launch: counted FLOPs and bytes, diagnostics; and collectors.

``DiagnosticLog`` collects the findings of one launch, ``recording`` the reports of a block.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]

SourceLine = tuple[str, int]
#: What a launch went through: a kind (``branch``, ``loop``, ``tile``, ``edge``, ``block``) and a
#: place, with the ways in which it went.
Facts = dict[tuple[str, str], set[str]]


@dataclass(frozen=True)
class Diagnostic:
    """One finding about a kernel, with the line that causes it.

    Attributes:
        kind: What was found: ``"out-of-bounds"``, ``"tile-outside"``,
            ``"undetermined-padding"``, ``"uninitialised-read"``, ``"assumption"``,
            ``"write-conflict"``, ``"read-write-hazard"``, ``"never-written"``,
            ``"division-by-zero"``, ``"shift-range"``, ``"index-overflow"``,
            ``"narrow-index"``, ``"nan"``, ``"infinity"``, ``"float16-overflow"`` or
            ``"overlapping-arguments"``.
        message: One sentence about the first occurrence.
        file: Source file of the kernel line.
        line: 1-based line number.
        severity: ``"error"`` for what is undefined on a GPU or makes the result wrong,
            ``"warning"`` for what usually is a mistake, ``"info"`` for what is worth knowing.
        count: How often it was seen in this launch (accesses or elements, as the message says).
    """

    kind: str
    message: str
    file: str
    line: int
    severity: Severity
    count: int = 1

    def __str__(self) -> str:
        times = f" (seen {self.count} times)" if self.count > 1 else ""
        return f"{self.file}:{self.line}: {self.severity}: {self.kind}: {self.message}{times}"


@dataclass(frozen=True)
class Watched:
    """A value of a watched line.

    Attributes:
        where: File and line.
        block: The block.
        name: The variable, or the operation where it has no name.
        value: The tile (a copy), or number.
    """

    where: SourceLine
    block: tuple[int, int, int]
    name: str
    value: Any

    def __str__(self) -> str:
        from mla_var3.interpreter.show import brief

        file, line = self.where
        return f"{file}:{line}: block {self.block}: {self.name} = {brief(self.value)}"


@dataclass
class LineTraffic:
    """Bytes and accesses of one source line, elements outside the array not counted.

    Attributes:
        bytes_loaded: Bytes that loads of this line read.
        bytes_stored: Bytes that stores and atomics of this line wrote.
        loads: Load operations executed.
        stores: Store and atomic operations executed.
    """

    bytes_loaded: int = 0
    bytes_stored: int = 0
    loads: int = 0
    stores: int = 0


@dataclass(frozen=True)
class ArrayTraffic:
    """What one array argument saw.

    Attributes:
        name: Parameter name; ``"xs[2]"`` for item 2 of a tuple or list.
        size_bytes: Bytes of the array's elements.
        unique_bytes_loaded: Bytes of the distinct elements that were read.
        unique_bytes_stored: Bytes of the distinct elements that were written.
    """

    name: str
    size_bytes: int
    unique_bytes_loaded: int
    unique_bytes_stored: int


@dataclass
class LaunchReport:
    """The result of one interpreted launch.

    Attributes:
        kernel: Name of the kernel function.
        grid: Blocks launched along x, y and z.
        flops: Floating-point operations by kind. ``"mma"`` counts 2·M·N·K, ``"fma"`` 2 for
            each element, other kinds (``"add"``, ``"mul"``, ``"exp2"``, ``"max"``, ...) 1.
            Integer arithmetic, comparisons, selections and conversions are not counted.
        bytes_by_line: Traffic by (file, line).
        arrays: Traffic by array argument; empty when tracking was off.
        diagnostics: Findings, errors first, each with its line.
        steps: Typed-IR operations executed.
        seconds: Wall time, without the front end.
        watched: Values of the lines in ``Options.watch``, in the order in which they came.
        facts: Which ways each branch, loop, tile index and tile edge went.
    """

    kernel: str
    grid: tuple[int, int, int]
    flops: dict[str, int] = field(default_factory=dict)
    bytes_by_line: dict[SourceLine, LineTraffic] = field(default_factory=dict)
    arrays: dict[str, ArrayTraffic] = field(default_factory=dict)
    diagnostics: list[Diagnostic] = field(default_factory=list)
    steps: int = 0
    seconds: float = 0.0
    watched: list[Watched] = field(default_factory=list)
    facts: Facts = field(default_factory=dict)

    @property
    def mma_flops(self) -> int:
        """FLOPs of matrix products (scaled ones included)."""
        return self.flops.get("mma", 0)

    @property
    def total_flops(self) -> int:
        """FLOPs of every kind."""
        return sum(self.flops.values())

    @property
    def bytes_loaded(self) -> int:
        """Bytes that loads read, counted once for each time they were loaded."""
        return sum(t.bytes_loaded for t in self.bytes_by_line.values())

    @property
    def bytes_stored(self) -> int:
        """Bytes that stores and atomics wrote, counted once for each time."""
        return sum(t.bytes_stored for t in self.bytes_by_line.values())

    @property
    def unique_bytes_loaded(self) -> int:
        """Bytes of distinct elements read; ``bytes_loaded`` divided by it is the reuse."""
        return sum(a.unique_bytes_loaded for a in self.arrays.values())

    @property
    def unique_bytes_stored(self) -> int:
        """Bytes of distinct elements written."""
        return sum(a.unique_bytes_stored for a in self.arrays.values())

    @property
    def errors(self) -> list[Diagnostic]:
        """The diagnostics of severity ``"error"``."""
        return [d for d in self.diagnostics if d.severity == "error"]

    def summary(self) -> str:
        """Returns a few lines for people: work, traffic and every diagnostic."""
        flops = ", ".join(f"{kind} {n}" for kind, n in sorted(self.flops.items())) or "none"
        lines = [
            f"{self.kernel}: grid {self.grid}, {self.steps} operations in {self.seconds:.3f} s",
            f"  FLOPs: {flops}",
            f"  bytes loaded {self.bytes_loaded} (distinct {self.unique_bytes_loaded}), "
            f"stored {self.bytes_stored} (distinct {self.unique_bytes_stored})",
        ]
        lines += [f"  {w}" for w in self.watched]
        lines += [f"  {d}" for d in self.diagnostics] or ["  no findings"]
        return "\n".join(lines)


class DiagnosticLog:
    """Collects findings; a kind seen again on the same line only raises its count."""

    _ORDER = ("error", "warning", "info")

    def __init__(self) -> None:
        self._found: dict[tuple[str, str, int, str], list[object]] = {}

    def seen(self, kind: str, where: SourceLine, about: str = "") -> bool:
        """Tells whether a finding of this kind, line and subject exists; if so counts it."""
        entry = self._found.get((kind, *where, about))
        if entry is None:
            return False
        entry[2] += 1  # type: ignore[operator]
        return True

    def add(
        self,
        kind: str,
        where: SourceLine,
        message: str,
        severity: Severity = "error",
        *,
        about: str = "",
        count: int = 1,
    ) -> None:
        """Records a finding.

        Args:
            kind: See ``Diagnostic.kind``.
            where: File and line.
            message: One sentence; kept for the first occurrence only.
            severity: See ``Diagnostic.severity``.
            about: What it is about (an array, say); findings about others stay apart.
            count: How many occurrences this stands for.
        """
        entry = self._found.setdefault((kind, *where, about), [message, severity, 0])
        entry[2] += count  # type: ignore[operator]

    def diagnostics(self) -> list[Diagnostic]:
        """Returns the findings: errors first, then by line."""
        found = [
            Diagnostic(kind, message, file, line, severity, count)  # type: ignore[arg-type]
            for (kind, file, line, _), (message, severity, count) in self._found.items()
        ]
        return sorted(found, key=lambda d: (self._ORDER.index(d.severity), d.file, d.line, d.kind))


def summary(reports: Sequence[LaunchReport]) -> str:
    """Returns the report of every launch, and how many there were."""
    errors = sum(len(r.errors) for r in reports)
    findings = sum(len(r.diagnostics) for r in reports)
    head = (
        f"interpreted {len(reports)} launch{'' if len(reports) == 1 else 'es'}: "
        f"{findings} finding{'' if findings == 1 else 's'}, {errors} of them errors"
    )
    return "\n".join([*(r.summary() for r in reports), head])


_recorders: contextvars.ContextVar[tuple[list[LaunchReport], ...]] = contextvars.ContextVar(
    "mla_var3_interpreter_recorders", default=()
)


@contextlib.contextmanager
def recording() -> Iterator[list[LaunchReport]]:
    """Collects the report of every launch inside the ``with`` block, in order.

    Recorders nest: an inner one does not hide launches from an outer one.

    Yields:
        A list that grows by one report per launch.
    """
    reports: list[LaunchReport] = []
    token = _recorders.set((*_recorders.get(), reports))
    try:
        yield reports
    finally:
        _recorders.reset(token)


def record(report: LaunchReport) -> None:
    """Hands a report to every recorder that is open."""
    for reports in _recorders.get():
        reports.append(report)
