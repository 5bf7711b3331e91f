"""Table of instruction durations in cycles, by which ``replay`` puts an emulated launch on a clock.

Rates are those of one multiprocessor of compute capability 9.0. Latencies are round numbers, and
no figure here was measured by this project: a replay shows the order of things and what waits for
what, and is no prediction of a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mla_var3.gpuless.ptx import Instruction, bits

#: Results per cycle and multiprocessor (CUDA C++ Programming Guide, arithmetic instructions,
#: compute capability 9.0), by the first part of an opcode; 64 where none is given.
THROUGHPUT = {
    "add.f32": 128, "sub.f32": 128, "mul.f32": 128, "fma.f32": 128,
    "ex2": 16, "lg2": 16, "rcp": 16, "rsqrt": 16, "sqrt": 16, "sin": 16, "cos": 16, "tanh": 16,
    "shfl": 32, "redux": 16,
}  # fmt: skip
#: What the assembler removes, or has no unit for.
FREE = {"mov", "cvta", "bra", "ret", "ld.param", "pragma", "setmaxnreg"}
#: Threads of a multiprocessor's four schedulers that one cycle of a warp stands for.
WARP_LANES = 128


def registers(i: Instruction) -> int:
    """Registers that a load or store of tensor memory moves, in each thread."""
    return next(len(text.split(",")) for text in i.args if text.startswith("{"))


@dataclass(frozen=True)
class Durations:
    """Rates of a multiprocessor, per cycle, and latencies in cycles.

    Attributes:
        terms: Products and sums of the tensor cores, of 16-bit operands.
        load: Bytes that reach a multiprocessor from the L2.
        shared: Bytes of shared memory.
        peer: Bytes from the shared memory of another CTA of the cluster.
        global_latency: From asking for a load until it begins to arrive.
        peer_latency: The same between CTAs of a cluster.
        word_latency: From writing a word of global memory until another multiprocessor reads it.
    """

    terms: float = 2048
    load: float = 64
    shared: float = 128
    peer: float = 32
    global_latency: float = 600
    peer_latency: float = 200
    word_latency: float = 600

    @classmethod
    def of(cls, instructions: Sequence[Instruction]) -> Durations:
        """Those of compute capability 10.0 where a kernel uses tensor memory, else of 9.0."""
        in_tensor_memory = any(i.op.startswith("tcgen05.mma") for i in instructions)
        return cls(terms=4096) if in_tensor_memory else cls()

    def product(self, terms: int) -> float:
        """Cycles of products of 64 rows with so many terms (columns times depth)."""
        return 64 * terms / self.terms

    def issue(self, i: Instruction) -> float:
        """Cycles of its scheduler that an instruction of a warp takes."""
        first = i.parts[0]
        if first in FREE or i.op.startswith("ld.param"):
            return 0.0
        if i.op.startswith(("tcgen05.ld", "tcgen05.st")):
            return float(registers(i))  # A word of each lane per cycle, a round number as well.
        by_type = f"{first}.{i.parts[-1]}"
        return WARP_LANES / THROUGHPUT.get(by_type, THROUGHPUT.get(first, 64))

    def memory(self, i: Instruction) -> float:
        """Cycles for which an access of a warp keeps the multiprocessor's memory path busy."""
        if i.parts[0] in ("ldmatrix", "stmatrix"):
            tiles = next((int(p[1:]) for p in i.parts if p in ("x1", "x2", "x4")), 1)
            return 128 * tiles / self.shared
        if i.parts[0] not in ("ld", "st", "red", "atom") or i.parts[1] in ("param", "local"):
            return 0.0
        wide = next((int(p[1:]) for p in i.parts if p in ("v2", "v4", "v8")), 1)
        width = wide * (bits(i.parts[-1]) or 32) // 8
        if "global" in i.parts:
            # Rows of a fragment: eight threads in four lie side by side, a sector of 32 bytes each.
            return max(32 * width, 8 * 32) / self.load
        remote = "shared::cluster" in i.parts and "async" not in i.parts
        rate = self.peer if remote else self.shared
        return max(32 * width, 128) / rate

    def waits(self, i: Instruction) -> float:
        """Cycles until the result of an access is there."""
        return self.global_latency if i.op.startswith("ld") and "global" in i.parts else 0.0

    def table(self, instructions: Sequence[Instruction]) -> list[tuple[float, float, float]]:
        """Issue, memory path and latency of each instruction."""
        return [(self.issue(i), self.memory(i), self.waits(i)) for i in instructions]
