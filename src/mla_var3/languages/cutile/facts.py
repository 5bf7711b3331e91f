"""Schema of a cuTile kernel's own compile facts: compiler hints, MMA work and remarks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mla_var3.evidence.facts import Remark, StaticFacts


class CutileFacts(StaticFacts):
    """Facts of a cuTile kernel.

    Attributes:
        hints: Compiler hints that were set, opt_level included.
        mma_ops: Matrix multiplications in the tile IR, after inlining.
        mma_tile_flops: FLOPs per block if each of those runs once (multiply-add = 2).
        remarks: Compiler remarks in source order.
    """

    asked: ClassVar[tuple[str, ...]] = ("hints",)

    language: Literal["cutile-dsl"] = "cutile-dsl"
    hints: dict[str, int] = Field(default_factory=dict)
    mma_ops: int = Field(0, ge=0)
    mma_tile_flops: int = Field(0, ge=0)
    remarks: tuple[Remark, ...] = ()

    @property
    def mma_work(self) -> int:
        """FLOPs of a block if each matrix multiplication runs once."""
        return self.mma_tile_flops

    @property
    def unmet(self) -> tuple[str, ...]:
        missed = (r.message for r in self.remarks if r.kind in ("missed", "failed"))
        return tuple(dict.fromkeys(missed))
