"""Tracks registers held by asynchronous operations and reports threads that touch them early."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine
    from mla_var3.emulator.program import Segment


@dataclass(frozen=True)
class Operation:
    """A kind of operation that holds registers.

    Attributes:
        name: In words, such as ``a wgmma``.
        kind: The kind of report where they are touched.
        missing: What has to come before.
        used: Where to touch them is no fault but waits: is told the warp and the number.
    """

    name: str
    kind: str
    missing: str
    used: Callable[[int, int], None] | None = None


@dataclass(frozen=True)
class Held:
    """Registers of one operation of a warp: what it writes, what it reads, and its number."""

    operation: Operation
    number: int
    outputs: frozenset[int]
    inputs: frozenset[int]
    pc: int


class PendingRegisters:
    """What the warps of a cluster may not touch, of the rows that ``UnitText.registers`` names."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.start()

    def start(self) -> None:
        """A new cluster: nothing is held."""
        warps = self.machine.clocks.warps
        self.held: list[list[Held]] = [[] for _ in range(warps)]
        #: Per warp the rows that it wrote, and where; a unit clears what its fence covers.
        self.written: list[dict[int, int]] = [{} for _ in range(warps)]
        self.count = 0

    def hold(
        self,
        warp: int,
        operation: Operation,
        number: int,
        outputs: Iterable[int],
        inputs: Iterable[int],
        pc: int,
    ) -> None:
        """An operation of a warp reads and writes rows from now on."""
        self.held[warp].append(Held(operation, number, frozenset(outputs), frozenset(inputs), pc))
        self.count += 1

    def release(self, warp: int, operation: Operation, number: int) -> None:
        """A warp has waited for operations up to a number."""
        before = self.held[warp]
        left = [h for h in before if h.operation is not operation or h.number > number]
        self.held[warp] = left
        self.count -= len(before) - len(left)

    def watch(self, warps: list[int], segment: Segment) -> None:
        """Before a segment runs: what does it touch?"""
        written = segment.writes.keys()
        touched = segment.reads.keys() | written
        for w in warps:
            for h in list(self.held[w]):
                if h.outputs.isdisjoint(touched) and h.inputs.isdisjoint(written):
                    continue
                if h.operation.used is not None:
                    h.operation.used(w, h.number)
                    continue
                late = (h.outputs & touched) | (h.inputs & written)
                self._report(w, next(iter(late)), segment, h)
                break
            self.written[w].update(segment.writes)

    def _report(self, warp: int, register: int, segment: Segment, held: Held) -> None:
        m = self.machine
        at = segment.reads.get(register, segment.writes.get(register, segment.start))
        m.reporter.add(
            held.operation.kind,
            at,
            f"{m.warp_name(warp)} touches a register of {held.operation.name} that may still run",
            held.pc,
            m.warp_name(warp),
            missing=held.operation.missing,
        )
