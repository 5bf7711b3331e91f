"""Counters of an emulated launch: sum instructions, bytes, FLOPs, bank conflicts by Python line."""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.options import Counting
from mla_var3.emulator.program import Program

#: Floating point operations per element of an instruction.
FLOPS = {
    "add": 1,
    "sub": 1,
    "mul": 1,
    "fma": 2,
    "mad": 2,
    "div": 1,
    "sqrt": 1,
    "rcp": 1,
    "ex2": 1,
    "rsqrt": 1,
    "lg2": 1,
    "sin": 1,
    "cos": 1,
    "tanh": 1,
}
FLOAT = {"f16": 1, "bf16": 1, "f32": 1, "f64": 1, "f16x2": 2, "bf16x2": 2, "f32x2": 2}
SECTOR = 32


@dataclass
class Line:
    """Counts of one Python line; instructions are per warp, bytes as threads asked for them.

    Attributes:
        instructions: Warp instructions by first word of the opcode.
        bytes: Bytes by space and direction, such as ``global read``.
        flops: Floating point operations: of threads one per element (fma two), of matrix
            instructions 2 m n k.
        bank_conflicts: Wavefronts of shared memory beyond the least possible.
        sectors: 32-byte sectors of global memory that warps asked for.
        ideal_sectors: Sectors that the same bytes would fill.
        tma_boxes: Boxes moved by TMA.
        waits: Times a warp found a barrier not ready.
    """

    instructions: dict[str, int] = field(default_factory=dict)
    bytes: dict[str, int] = field(default_factory=dict)
    flops: int = 0
    bank_conflicts: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    tma_boxes: int = 0
    waits: int = 0


class Counts:
    """Counters of one launch, by instruction; ``lines`` sums them by Python line."""

    def __init__(self, program: Program, mode: Counting) -> None:
        self.program, self.mode = program, mode
        n = len(program.kernel.instructions)
        self.runs: dict[int, list[int]] = {}
        self.warps = np.zeros(n, np.int64)
        self.threads = np.zeros(n, np.int64)
        self.bytes: dict[str, NDArray[np.int64]] = defaultdict(lambda: np.zeros(n, np.int64))
        self.matrix_flops = np.zeros(n, np.int64)
        self.conflicts = np.zeros(n, np.int64)
        self.sectors = np.zeros(n, np.int64)
        self.ideal = np.zeros(n, np.int64)
        self.boxes = np.zeros(n, np.int64)
        self.waits = np.zeros(n, np.int64)
        self.taken = np.zeros(n, np.int64)
        self.passed = np.zeros(n, np.int64)
        #: By the branch behind a wait that is asked once: how often it was there to wait.
        self.waited = np.zeros(n, np.int64)

    def segment(self, start: int, end: int, warps: int, threads: int) -> None:
        """Instructions ``start`` up to ``end`` ran for so many warps and threads."""
        run = self.runs.get(start)
        if run is None:
            run = self.runs[start] = [end, 0, 0]
        run[1] += warps
        run[2] += threads

    def settle(self) -> None:
        """Bring the runs of segments to their instructions."""
        if self.runs:
            starts = np.fromiter(self.runs, np.int64)
            ends, warps, threads = np.array(list(self.runs.values())).T
            for total, ran in ((self.warps, warps), (self.threads, threads)):
                steps = np.zeros(len(total) + 1, np.int64)
                np.add.at(steps, starts, ran)
                np.subtract.at(steps, ends, ran)
                total += steps.cumsum()[:-1]
            self.runs.clear()

    def masked(self, pc: int, threads: int) -> None:
        """A guard kept so many threads from an instruction."""
        self.threads[pc] -= threads

    def jump(self, pc: int, taken: int, passed: int) -> None:
        """Threads that take a branch, and that pass it by."""
        self.taken[pc] += taken
        self.passed[pc] += passed

    def flops(self, pc: int, count: int) -> None:
        """A matrix instruction."""
        self.matrix_flops[pc] += count

    def tma(self, pc: int, shared: int, outside: int, what: str) -> None:
        """A box of ``outside`` global and ``shared`` shared bytes."""
        self.bytes[f"global {what}"][pc] += outside
        self.bytes["shared " + ("write" if what == "read" else "read")][pc] += shared
        self.boxes[pc] += 1

    def local(self, pc: int, size: int, threads: int, what: str) -> None:
        """Accesses to local memory."""
        self.bytes[f"local {what}"][pc] += size * threads

    def shared(self, pc: int, threads: int, size: int, what: str) -> None:
        """So many threads' accesses to shared memory."""
        self.bytes[f"shared {what}"][pc] += size * threads

    def banks(
        self, pc: int, at: NDArray[np.int64], size: int, warp: NDArray[Any], lane: NDArray[Any]
    ) -> None:
        """The conflicts of such accesses, at physical addresses."""
        self.conflicts[pc] += bank_conflicts(at, size, warp, lane)

    def memory(self, pc: int, threads: int, size: int, what: str) -> None:
        """So many threads' accesses to global memory."""
        self.bytes[f"global {what}"][pc] += size * threads

    def touched(self, pc: int, address: NDArray[np.uint64], size: int, warp: NDArray[Any]) -> None:
        """The sectors of such accesses."""
        got, ideal = sectors(address, size, warp)
        self.sectors[pc] += got
        self.ideal[pc] += ideal

    def merge(self, other: Counts) -> None:
        """Add what another process counted."""
        for name in (
            "warps",
            "threads",
            "matrix_flops",
            "conflicts",
            "sectors",
            "ideal",
            "boxes",
            "waits",
            "taken",
            "passed",
            "waited",
        ):
            getattr(self, name)[:] += getattr(other, name)
        for key, value in other.bytes.items():
            self.bytes[key] += value

    def plain(self) -> dict[str, Any]:
        """For another process."""
        self.settle()
        return {
            k: (dict(v) if k == "bytes" else v)
            for k, v in vars(self).items()
            if k not in ("program", "mode")
        }

    def take(self, plain: dict[str, Any]) -> None:
        """Add what ``plain`` of another process says."""
        other = Counts(self.program, self.mode)
        vars(other).update(plain)
        self.merge(other)

    # Sums -------------------------------------------------------------------------------------
    def scalar_flops(self) -> NDArray[np.int64]:
        """Floating point operations of threads, by instruction."""
        out = np.zeros(len(self.threads), np.int64)
        for i in self.program.kernel.instructions:
            if (per := FLOPS.get(i.parts[0])) and (wide := FLOAT.get(i.parts[-1])):
                out[i.pc] = per * wide * self.threads[i.pc]
        return out

    @property
    def total_flops(self) -> int:
        """All floating point operations."""
        return int(self.matrix_flops.sum() + self.scalar_flops().sum())

    @property
    def tensor_flops(self) -> int:
        """Those of matrix instructions."""
        return int(self.matrix_flops.sum())

    def total_bytes(self, space: str) -> int:
        """Bytes of a space, such as ``global read``; atomics count as both."""
        return int(self.bytes[space].sum()) if space in self.bytes else 0

    @property
    def instructions(self) -> Counter[str]:
        """Warp instructions by first word."""
        out: Counter[str] = Counter()
        for i in self.program.kernel.instructions:
            if self.warps[i.pc]:
                out[i.parts[0]] += int(self.warps[i.pc])
        return out

    def lines(self) -> dict[tuple[str, int], Line]:
        """Counts by (file, line) of Python; line 0 for instructions without one."""
        scalar = self.scalar_flops()
        out: dict[tuple[str, int], Line] = {}
        kernel = self.program.kernel
        for i in kernel.instructions:
            if not self.warps[i.pc]:
                continue
            number, line = i.line or (0, 0)
            entry = out.setdefault((kernel.files.get(number, ""), line), Line())
            family = i.parts[0]
            entry.instructions[family] = entry.instructions.get(family, 0) + int(self.warps[i.pc])
            for space, values in self.bytes.items():
                if values[i.pc]:
                    entry.bytes[space] = entry.bytes.get(space, 0) + int(values[i.pc])
            entry.flops += int(scalar[i.pc] + self.matrix_flops[i.pc])
            entry.bank_conflicts += int(self.conflicts[i.pc])
            entry.sectors += int(self.sectors[i.pc])
            entry.ideal_sectors += int(self.ideal[i.pc])
            entry.tma_boxes += int(self.boxes[i.pc])
            entry.waits += int(self.waits[i.pc])
        return out

    def as_json(self) -> dict[str, Any]:
        """Sums and lines as plain values."""
        return {
            "flops": self.total_flops,
            "tensor_flops": self.tensor_flops,
            "bytes": {k: int(v.sum()) for k, v in sorted(self.bytes.items())},
            "instructions": dict(self.instructions),
            "bank_conflicts": int(self.conflicts.sum()),
            "sectors": int(self.sectors.sum()),
            "lines": [
                {"file": f, "line": n, **asdict(line)}
                for (f, n), line in sorted(self.lines().items())
            ],
        }


def bank_conflicts(at: NDArray[np.int64], size: int, warp: NDArray[Any], lane: NDArray[Any]) -> int:
    """Extra wavefronts of one access by warps: 32 banks of 4 bytes, one word each per wavefront.

    Accesses of 8 and 16 bytes are served by half and quarter warps. Threads that a guard keeps out
    are not among those given.

    Args:
        at: Physical address of each thread.
        size: Bytes that each accesses.
        warp: Each one's warp.
        lane: Each one's lane there.
    """
    lanes = 32 if size <= 4 else 128 // size
    words = (at >> 2)[:, None] + np.arange(max(1, size // 4))
    served = warp.astype(np.int64) * 32 + lane // lanes
    group = np.repeat(np.unique(served, return_inverse=True)[1], words.shape[1])
    unique = np.unique(group.astype(np.int64) << 40 | words.ravel())
    row, word = unique >> 40, unique & ((1 << 40) - 1)
    hits = np.bincount(row * 32 + (word & 31))
    rows = int(row.max()) + 1
    padded = np.zeros(rows * 32, np.int64)
    padded[: len(hits)] = hits
    return int((padded.reshape(rows, 32).max(1) - 1).sum())


def sectors(address: NDArray[np.uint64], size: int, warp: NDArray[Any]) -> tuple[int, int]:
    """Sectors that warps touch, and how many the same bytes would fill.

    Args:
        address: Of each thread.
        size: Bytes that each accesses.
        warp: Each one's warp.
    """
    first = address.astype(np.int64) // SECTOR
    last = (address.astype(np.int64) + size - 1) // SECTOR
    own = np.unique(warp, return_inverse=True)[1].astype(np.int64)
    both = np.concatenate([own << 50 | first, own << 50 | last])
    whole = -(-np.bincount(own) * size // SECTOR)
    return len(np.unique(both)), int(whole.sum())
