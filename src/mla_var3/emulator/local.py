"""Emulated memory without races: local memory of each thread, and kernel parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator.formats import U64

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine

#: What an address is within its window.
LOW_BITS = U64((1 << 48) - 1)


class Parameters:
    """The block of kernel parameters, constant for a launch."""

    def __init__(self, block: bytes) -> None:
        padded = np.zeros(-(-len(block) // 16) * 16 + 16, np.uint8)
        padded[: len(block)] = np.frombuffer(block, np.uint8)
        self.bytes = padded
        self.views = {w: padded.view(f"u{w}") for w in (1, 2, 4, 8)}

    def read(self, at: int, width: int, count: int) -> list[Any]:
        """``count`` scalars of ``width`` bytes from byte ``at`` on."""
        if at % width == 0:
            return list(self.views[width][at // width : at // width + count])
        raw = self.bytes[at : at + width * count].copy()
        return list(raw.view(f"u{width}"))


class Local:
    """The frames of all threads of a cluster, and which of their bytes are written."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.bytes = np.full((machine.threads, machine.program.local_bytes), 0xA5, np.uint8)
        self.known = np.zeros(self.bytes.shape, bool)

    def start(self) -> None:
        """A new cluster: nothing is written."""
        self.known[:] = False

    def _at(self, address: Any, size: int, s: Any, pc: int, what: str) -> Any:
        m = self.machine
        at = (address.astype(U64) & LOW_BITS).astype(np.int64)
        outside = at + size > self.bytes.shape[1]
        if outside.any():
            i = int(np.argmax(outside))
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"local {what} of {size} bytes at byte {int(at[i])} of a frame of "
                f"{self.bytes.shape[1]}",
                who=m.thread(s, i),
                missing="an index inside of the array",
            )
            at = np.where(outside, 0, at)
        m.counts.local(pc, size, len(at), what)
        return at, m.ids[s]

    def load(self, address: Any, width: int, count: int, s: Any, pc: int) -> list[Any]:
        """Values of each thread from its frame."""
        if not self.bytes.shape[1]:
            raise self.machine.reporter.stop(pc, "local memory is read and there is none")
        at, thread = self._at(address, width * count, s, pc, "read")
        if self.machine.checks:
            index = (thread[:, None], at[:, None] + np.arange(width * count))
            fresh = ~self.known[index].all(1)
            if fresh.any():
                i = int(np.argmax(fresh))
                self.machine.reporter.add(
                    "uninitialized-read",
                    pc,
                    f"local byte {int(at[i])} is read and nothing has written it",
                    who=self.machine.thread(s, i),
                    missing="a write before",
                )
        raw = self.bytes[thread[:, None], at[:, None] + np.arange(width * count)]
        codes = np.ascontiguousarray(raw).view(f"u{width}")
        return [codes[:, i] for i in range(count)]

    def store(self, address: Any, width: int, values: list[Any], s: Any, pc: int) -> None:
        """Write to each thread's frame."""
        size = width * len(values)
        at, thread = self._at(address, size, s, pc, "write")
        index = (thread[:, None], at[:, None] + np.arange(size))
        codes = np.stack([np.broadcast_to(v, len(at)).astype(f"u{width}") for v in values], 1)
        self.bytes[index] = np.ascontiguousarray(codes).view(np.uint8)
        self.known[index] = True

    def parameter(self, address: Any, width: int, count: int, s: Any, pc: int) -> list[Any]:
        """Values from the block of kernel parameters, which generic addresses reach too."""
        m = self.machine
        at = (address.astype(U64) & LOW_BITS).astype(np.int64)
        if (at + width * count > len(m.parameters.bytes)).any():
            raise m.reporter.stop(pc, "kernel parameters are read past their end")
        codes = np.ascontiguousarray(m.parameters.bytes[at[:, None] + np.arange(width * count)])
        return [codes.view(f"u{width}")[:, i] for i in range(count)]
