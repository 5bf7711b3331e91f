"""Plan of per-head attention that takes the kernel of shared rows where a head has few queries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_plan import BARRIER_BYTES, ELEMENT_BYTES, SHARED_BYTES
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.rope_plan import RopePlan, RopeTiling
from mla_var3.kernel.cute_python.kit.shared_rows import WARP_ROWS, SharedRowsKernel, handed_values
from mla_var3.runtime import Tiling
from mla_var3.runtime.cute_kernel import require_multiple, require_shared_memory

#: Most keys of a step where queries have registers too: with 96 the assembler serializes wgmma.
MAX_SHARED_KEYS = 64


def require_room_together(keys: int, stages: int, d_qk: int, d_v: int) -> None:
    """Raise TilingError unless a ring and what is handed over fit beside one tile of queries."""
    require_multiple(16, keys=keys)
    if keys > MAX_SHARED_KEYS:
        raise TilingError(
            f"keys={keys} exceeds {MAX_SHARED_KEYS}: queries leave no registers for more"
        )
    if stages % GROUPS:
        raise TilingError(f"stages={stages} is odd: each place of a ring has one reader")
    require_shared_memory(
        SHARED_BYTES,
        queries=ROWS * d_qk * ELEMENT_BYTES,
        stages=stages * keys * (d_qk + d_v) * ELEMENT_BYTES,
        handed=4 * handed_values(d_v),
        barriers=BARRIER_BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class SharedRowsPlan(RopePlan):
    """As ``RopePlan``; where the queries are few, by ``few_kernel`` on shared rows."""

    few_kernel: ClassVar[type[SharedRowsKernel]] = SharedRowsKernel

    @property
    def few(self) -> bool:
        """Whether the queries of a head are one tile of rows."""
        return self.s <= ROWS

    def require_room(self, tiling: RopeTiling) -> None:
        if self.few:
            require_room_together(tiling.keys, tiling.stages, self.d + self.p, self.d)
        else:
            super().require_room(tiling)

    def default_tiling(self, stage: str) -> Tiling:
        if self.few:
            return self.tiling_types[stage](keys=64, stages=4, blocks=self.even_blocks())
        return super().default_tiling(stage)

    def even_blocks(self) -> int:
        """The fewest blocks that take no more turns than one per SM would."""
        items = self.b * self.h
        turns = -(-items // self.target.sm_count)
        return -(-items // turns)

    def rings(self) -> tuple[tuple[tuple[int, int], ...], tuple[int | None, ...]]:
        if self.few:
            return ((64, 4), (32, 8)), (self.even_blocks(), self.target.sm_count)
        return super().rings()

    def host(self, tiling: RopeTiling) -> RopeKernel:
        """The host function: by what the rows of a head fill."""
        if self.few:
            warps = -(-self.s // WARP_ROWS)
            return self.few_kernel(self.shape(tiling), tiling.blocks, warps=warps)
        return super().host(tiling)

    def shape(self, tiling: RopeTiling) -> Shape:
        widths = self.d + self.p, self.d
        return Shape(*widths, tiling.keys, tiling.stages, self.causal, apart=self.few)
