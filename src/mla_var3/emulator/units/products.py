"""Finds a kernel's wgmma registers, and chains of wgmma that the emulator runs as one product."""

from __future__ import annotations

from typing import ClassVar

from mla_var3.emulator.units.base import WARPGROUP, UnitText
from mla_var3.gpuless.ptx import Instruction, Kernel


def is_product(i: Instruction) -> bool:
    """Whether it is a ``wgmma.mma_async``."""
    return i.op.startswith("wgmma.mma_async")


def vector(operand: str) -> list[str]:
    """``{%r1, %r2}`` to its registers."""
    return [x.strip() for x in operand[1:-1].split(",")] if operand.startswith("{") else [operand]


class ProductText(UnitText):
    """Chains of wgmma in a kernel.

    ``queued`` are products that a later one of their chain does with its own: all but the last of
    each chain. ``followers`` are all but the first.
    """

    together: ClassVar[frozenset[str]] = frozenset({"wgmma"})

    def __init__(self, kernel: Kernel, stops: frozenset[int]) -> None:
        super().__init__(kernel, stops)
        self.queued, self.followers = _chains(kernel, stops)

    @classmethod
    def lanes(cls, i: Instruction) -> int:
        return WARPGROUP if is_product(i) else super().lanes(i)

    def opens(self, i: Instruction) -> bool:
        return super().opens(i) and i.pc not in self.followers

    def closes(self, i: Instruction) -> bool:
        return i.op.startswith("wgmma.wait_group") or (is_product(i) and i.pc not in self.queued)

    def registers(self) -> list[str]:
        products = [i for i in self.kernel.instructions if is_product(i)]
        names = [x for i in products for x in vector(i.args[0])]
        return names + [x for i in products if i.args[1].startswith("{") for x in vector(i.args[1])]

    def touches(self, i: Instruction) -> bool:
        return i.parts[0] != "wgmma"


def _chains(kernel: Kernel, stops: frozenset[int]) -> tuple[set[int], set[int]]:
    """Products but the last, and but the first, of each chain.

    Those of a chain go into one accumulator one after the other at one Python line, and nothing
    between them stops, touches memory or touches their registers: they are one product along k.
    """
    queued: set[int] = set()
    followers: set[int] = set()
    targets, last, names = set(kernel.labels.values()), None, set[str]()
    kept = set[str]()  # What says where operands lie is read when the last product runs.
    for i in kernel.instructions:
        if is_product(i) and i.guard is None:
            if last is not None and i.pc not in targets and _alike(last, i):
                queued.add(last.pc)
                followers.add(i.pc)
            else:
                names, kept = set(), set()
            last, names = i, names | {*vector(i.args[0]), *vector(i.args[1])}
            kept.update(i.args[2:4])
            kept.update(vector(i.args[1]))
        elif last is not None and (
            i.pc in targets or i.pc in stops or _touches(i, names) or _writes(i, kept)
        ):
            last = None
    return queued, followers


def _alike(a: Instruction, b: Instruction) -> bool:
    """Whether two products differ in their operands' places alone."""
    kinds = {x.args[1].startswith("{") for x in (a, b)}
    same = (a.op, a.args[0], a.args[4:], a.line) == (b.op, b.args[0], b.args[4:], b.line)
    return same and len(kinds) == 1 and a.line is not None


def _touches(i: Instruction, names: set[str]) -> bool:
    """Whether an instruction touches memory, or these registers."""
    return any("[" in a or not names.isdisjoint(vector(a)) for a in i.args)


def _writes(i: Instruction, names: set[str]) -> bool:
    """Whether an instruction writes one of these registers."""
    targets = [x for part in i.args[:1] for v in vector(part) for x in v.split("|")]
    return not names.isdisjoint(targets)
