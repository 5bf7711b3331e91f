"""Diagnostics of the emulator: data types of a finding, and ``Reporter``, which collects them.

A finding says what went wrong, at which Python lines, and which synchronization is missing.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from typing import Any

from mla_var3.errors import EmulatorError
from mla_var3.gpuless.ptx import Kernel

#: Every kind of diagnostic and what it means.
KINDS = {
    "race": "two accesses to the same bytes, at least one a write, that nothing orders",
    "warp-race": "the same by two lanes of one warp, which nothing makes meet in between",
    "global-race": "two accesses to the same global bytes, one or both writes, that nothing orders",
    "missing-proxy-fence": "bytes written by threads are read by an asynchronous unit, unfenced",
    "uninitialized-read": "bytes are read that nothing has written",
    "out-of-bounds": "an access outside of every allocation of its space",
    "misaligned": "an address that is not a multiple of the size of the access",
    "pending-accumulator": "registers of a wgmma are touched before its wait_group",
    "missing-wgmma-fence": "registers are given to wgmma without wgmma.fence since their write",
    "barrier-uninitialized": "an mbarrier is used that was never initialized",
    "barrier-reinitialized": "an mbarrier is initialized again without mbarrier.inval",
    "barrier-unordered": "an mbarrier is used by a warp that its initialization is not ordered to",
    "barrier-overflow": "more arrivals in a phase of an mbarrier than it counts",
    "barrier-mismatch": "warps disagree about a named barrier, or may be counted in another phase",
    "barrier-bytes": "an mbarrier's expected bytes are not those that arrived",
    "mask-mismatch": "the mask of a shuffle or vote names lanes that have ended",
    "deadlock": "no thread can go on",
    "descriptor": "a matrix or tensor descriptor that cannot mean what it says",
    "cluster-exit": "shared memory of a CTA is accessed that may not have begun, or have ended",
    "left-pending": "a thread ended with copies that nobody waited for",
    "tensor-memory-allocation": "tcgen05.alloc without the right to it, or a dealloc unlike it",
    "tensor-memory-left": "a CTA ended and has not given back its columns of tensor memory",
    "tensor-memory-lanes": "a warp reaches for lanes of tensor memory outside of its quarter",
    "register-budget": "setmaxnreg with a count that is not allowed, or by part of a warpgroup",
}


@dataclass(frozen=True)
class Site:
    """A place in a kernel: Python file and line where the PTX has them, and the instruction."""

    file: str | None
    line: int | None
    pc: int
    instruction: str

    def __str__(self) -> str:
        at = f"{self.file}:{self.line}" if self.file else f"ptx#{self.pc}"
        return f"{at} ({self.instruction})"


@dataclass(frozen=True)
class Diagnostic:
    """One finding; the same finding at the same two lines is counted, not repeated.

    Attributes:
        kind: One of ``KINDS``.
        message: What happened, in one sentence.
        at: Where it was noticed.
        other: The earlier access that it conflicts with, where there is one.
        who: Threads or unit at ``at``.
        other_who: Threads or unit at ``other``.
        missing: What would have ordered the two.
        kernel: Name of the kernel.
        cta: Index of the first CTA of the cluster.
        schedule: Schedule under which it was seen; the same replays it.
        model: Memory model under which it is one.
        times: How often it was seen.
    """

    kind: str
    message: str
    at: Site
    other: Site | None = None
    who: str = ""
    other_who: str = ""
    missing: str = ""
    kernel: str = ""
    cta: tuple[int, int, int] = (0, 0, 0)
    schedule: str = ""
    model: str = ""
    times: int = 1

    def __str__(self) -> str:
        lines = [
            f"{self.kind}: {self.message}",
            f"  at {self.at}" + (f" by {self.who}" if self.who else ""),
        ]
        if self.other:
            lines.append(
                f"  and {self.other}" + (f" by {self.other_who}" if self.other_who else "")
            )
        if self.missing:
            lines.append(f"  missing: {self.missing}")
        more = f", seen {self.times} times" if self.times > 1 else ""
        lines.append(f"  CTA {self.cta}, {self.schedule}, {self.model} memory model{more}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


class Reporter:
    """Collects the diagnostics of one launch."""

    MOST = 200

    def __init__(self, kernel: Kernel, schedule: str, model: str) -> None:
        self.kernel, self.schedule, self.model = kernel, schedule, model
        self.cta = (0, 0, 0)
        self.found: dict[tuple[object, ...], Diagnostic] = {}

    def site(self, pc: int) -> Site:
        """Where an instruction stands."""
        instruction = self.kernel.instructions[pc]
        file, line = self.kernel.place(instruction)
        text = instruction.text
        return Site(file, line, pc, text if len(text) < 80 else text[:77] + "...")

    def add(
        self,
        kind: str,
        pc: int,
        message: str,
        other: int = -1,
        who: str = "",
        other_who: str = "",
        missing: str = "",
    ) -> None:
        """Note a finding at instruction ``pc``, in conflict with that at ``other``."""
        at = self.site(pc)
        conflict = self.site(other) if other >= 0 else None
        place = (at.file, at.line) if at.line else pc
        place2 = (conflict.file, conflict.line) if conflict and conflict.line else other
        key = (kind, place, place2, _apart(kind, who))
        if (old := self.found.get(key)) is not None:
            self.found[key] = replace(old, times=old.times + 1)
        elif len(self.found) < self.MOST:
            self.found[key] = Diagnostic(
                kind,
                message,
                at,
                conflict,
                who,
                other_who,
                missing,
                self.kernel.name,
                self.cta,
                self.schedule,
                self.model,
            )

    def merge(self, others: list[Diagnostic]) -> None:
        """Take over what another process found."""
        for d in others:
            place = (d.at.file, d.at.line) if d.at.line else d.at.pc
            other: object = -1
            if d.other:
                other = (d.other.file, d.other.line) if d.other.line else d.other.pc
            key = (d.kind, place, other, _apart(d.kind, d.who))
            old = self.found.get(key)
            self.found[key] = replace(old, times=old.times + d.times) if old else d

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return list(self.found.values())

    def stop(self, pc: int, what: str) -> EmulatorError:
        """An error that ends the launch, naming instruction and line."""
        return EmulatorError(f"{what} at {self.site(pc)}")


def _apart(kind: str, who: str) -> str:
    """What tells findings of a kind at one place apart: of a deadlock, everyone that waits."""
    return who if kind == "deadlock" else ""


def as_json(diagnostics: list[Diagnostic]) -> str:
    """A list of diagnostics as a JSON text."""
    return json.dumps([d.as_json() for d in diagnostics], indent=2)
