"""Schema of a cuTile kernel's own compile facts: compiler hints, MMA work and remarks."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field

from mla_var3.evidence.facts import Remark, StaticFacts
from mla_var3.static.sass import mma_family

_WARPGROUP = "GMMA"


class CutileFacts(StaticFacts):
    """Facts of a cuTile kernel.

    Attributes:
        hints: Compiler hints that were set, opt_level included.
        mma_ops: Matrix multiplications in the tile IR, after inlining.
        mma_tile_flops: FLOPs per block if each of those runs once (multiply-add = 2).
        remarks: Compiler remarks in source order.
        wgmma_waits: Waits for warpgroup multiplications (``WARPGROUP.DEPBAR``); None in records
            of before it was read.
        ring: Steps that the deepest ring of TMA loads holds, by its pairs of barriers; 0 where
            there is none, None as above.
    """

    asked: ClassVar[tuple[str, ...]] = ("hints",)

    language: Literal["cutile-dsl"] = "cutile-dsl"
    hints: dict[str, int] = Field(default_factory=dict)
    mma_ops: int = Field(0, ge=0)
    mma_tile_flops: int = Field(0, ge=0)
    remarks: tuple[Remark, ...] = ()
    wgmma_waits: int | None = Field(None, ge=0)
    ring: int | None = Field(None, ge=0)

    @property
    def waits_per_wgmma(self) -> float | None:
        """Waits for warpgroup multiplications per multiplication; None without any."""
        counts = self.mma_instructions.items()
        products = sum(count for opcode, count in counts if mma_family(opcode) == _WARPGROUP)
        return None if self.wgmma_waits is None or not products else self.wgmma_waits / products

    @property
    def ring_depth(self) -> int | None:
        """Steps in flight; None where loads do not come through a ring of TMA's."""
        return (self.ring or None) if self.tma_loads else None

    @property
    def mma_work(self) -> int:
        """FLOPs of a block if each matrix multiplication runs once."""
        return self.mma_tile_flops

    @property
    def unmet(self) -> tuple[str, ...]:
        missed = (r.message for r in self.remarks if r.kind in ("missed", "failed"))
        return tuple(dict.fromkeys(missed))
