"""Bulk groups: the stores of a thread, which it commits and waits for."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mla_var3.emulator.clocks import STORE, STORED, Event
from mla_var3.emulator.lagging import waiting

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine


@dataclass
class Groups:
    """Bulk groups of one thread.

    Attributes:
        warp: The thread's warp.
        read: Chain that tells that its stores have read their source.
        stored: Chain that tells that they are complete: what they wrote is visible to the thread.
        number: Number of its last store in both.
        pc: Where that is.
        reading: Last numbers of the committed groups not known to have read, oldest first.
        storing: The same of those not known to be complete.
    """

    warp: int
    read: int
    stored: int
    number: int = 0
    pc: int = 0
    reading: deque[int] = field(default_factory=deque)
    storing: deque[int] = field(default_factory=deque)


class Stores:
    """The bulk groups of a cluster's threads."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        #: Of threads that have stored something.
        self.of_thread: dict[int, Groups] = {}

    def start(self) -> None:
        """A new cluster."""
        self.of_thread = {}

    def event(self, thread: int, pc: int) -> tuple[Event, Event]:
        """A thread starts a store: that it has read its source, and that it is complete."""
        clocks, mine = self.machine.clocks, self.of_thread.get(thread)
        if mine is None:
            read, stored = (clocks.chain(("bulk", u, thread), u) for u in (STORE, STORED))
            mine = self.of_thread[thread] = Groups(int(self.machine.warp[thread]), read, stored)
            mine.number = int(clocks.issued[mine.read])
        mine.number, mine.pc = mine.number + 1, pc
        clocks.issued[[mine.read, mine.stored]] = mine.number
        return (
            Event(mine.read, mine.number, mine.warp, STORE),
            Event(mine.stored, mine.number, mine.warp, STORED),
        )

    def _mine(self, s: Any) -> Iterator[Groups]:
        """The groups of those threads of ``s`` that have stored something."""
        if self.of_thread:
            chosen = set(self.machine.ids[s].tolist())
            yield from (g for thread, g in self.of_thread.items() if thread in chosen)

    def commit(self, s: Any, pc: int) -> None:
        """``cp.async.bulk.commit_group``."""
        for mine in self._mine(s):
            self.traced("store commit", mine.warp, pc)
            mine.reading.append(mine.number)
            mine.storing.append(mine.number)

    def wait(self, most: int, read: bool, s: Any, pc: int) -> None:
        """``cp.async.bulk.wait_group``; ``read`` waits until the sources have been read only."""
        clocks = self.machine.clocks
        with waiting(self.machine, s):
            for mine in self._mine(s):
                self.traced("store wait", mine.warp, pc, most)
                while len(mine.reading) > most:
                    clocks.finish(mine.warp, mine.read, mine.reading.popleft())
                while len(mine.storing) > most and not read:
                    clocks.finish(mine.warp, mine.stored, mine.storing.popleft())

    def traced(self, kind: str, warp: int, pc: int, amount: int = 0) -> None:
        """Note a step of a store, where steps are kept."""
        m = self.machine
        if m.trace is not None:
            m.trace.add(m.number, [warp], kind, pc, amount=amount)

    def finish(self) -> None:
        """Report stores that still read the shared memory of a CTA that has ended."""
        m = self.machine
        if not m.checks or m.model.exit_drains:
            return
        for mine in self.of_thread.values():
            if mine.number > m.clocks.seen[mine.warp, mine.read]:
                name = m.warp_name(mine.warp)
                m.reporter.add(
                    "left-pending",
                    mine.pc,
                    f"{name} ends while this bulk store may still read shared memory",
                    len(m.program.kernel.instructions) - 1,
                    who=name,
                    missing="cp.async.bulk.wait_group.read before the end",
                )
