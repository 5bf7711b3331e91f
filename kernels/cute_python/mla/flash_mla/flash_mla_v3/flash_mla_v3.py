"""FlashMLA v3: two CTAs of a cluster split the keys and merge through distributed shared memory.

With few rows and sequences one CTA per 64 rows leaves SMs idle. Two CTAs of a cluster split the
keys; then each sends one half of its output, with its maxima and sums, to the other's shared
memory, and finishes the half that it keeps. No partial result goes to DRAM.

The exchange is ``ClusterEpilogue`` of kit/epilogue.py, over kit/dsmem.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.epilogue import ClusterEpilogue
from mla_var3.kernel.cute_python.kit.latent_plan import LatentPlan
from mla_var3.kernel.cute_python.kit.latent_tiling import LazyTiling
from mla_var3.kernel.cute_python.kit.rings import Free
from mla_var3.kernel.cute_python.kit.slabs import ROPE_SLAB, ROWS, SLABS, SlabLoads, shared_slabs
from mla_var3.kernel.cute_python.kit.tile_kernel import TileKernel, TileSchedule
from mla_var3.runtime import KernelPlan
from mla_var3.runtime import Tiling as AnyTiling
from mla_var3.runtime.cute_kernel import require_one_of
from mla_var3.workloads import option


class Schedule(TileSchedule):
    """Clusters of CTAs with the same row tile, of which each takes its share of the keys."""

    def launch(self, q, o):
        """Grid of a launch on q [b,h,s,512]: row tiles, sequences, splits."""
        b, h, s, _ = q.shape
        grid = (cute.ceil_div(h * s, ROWS), b, self.splits)
        return {"grid": grid, "cluster": (1, 1, self.splits)}

    def first_tile(self, pairs, split):
        """The first tile of keys of a CTA."""
        return 2 * pairs * split


class Kernel(TileKernel):
    """Two CTAs of a cluster split the keys of a row tile."""

    schedule_type = Schedule
    epilogue_type = ClusterEpilogue

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        block, _, _, batch, first_tile, pairs = work
        q_loads = SlabLoads(*q_tensors, shared_slabs(storage.q, self.dtype, SLABS))
        kv_loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, 2 * SLABS))
        tile, right = group // 2, group % 2
        full, free = storage.full.data_ptr() + tile * SLABS, storage.free.data_ptr()
        self.queries.load(storage, q_loads, block, batch, 0, group)
        for i in cutlass.range(pairs, unroll=1):
            parity, key_tile = (i & 1) ^ 1, first_tile + 2 * i + tile
            if const_expr(right):
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + tile, parity)
                self.load_slab(kv_loads, key_tile, batch, tile, ROPE_SLAB, full, None)
            cute.arch.mbarrier_wait(free + group, parity)
            for slab in range_constexpr(4 * right, 4 * right + 4):
                self.load_slab(kv_loads, key_tile, batch, tile, slab, full, None)


@dataclass(frozen=True, kw_only=True)
class Tiling(LazyTiling):
    """How far the running maximum may lag, and how many CTAs share the keys of a row."""

    splits: int = option(2, "CTAs of a cluster that split the keys of 64 rows (1 or 2)", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), splits=self.splits)


@dataclass(frozen=True, kw_only=True)
class Plan(LatentPlan):
    """Problem and launch; two splits where both CTAs of every row tile find an SM."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[AnyTiling]]] = {"attention": Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling(splits=2 if 2 * self.row_tiles <= self.target.sm_count else 1)

    def _autotune_configs(self) -> dict[str, list[AnyTiling]]:
        return {self.stage: [Tiling(splits=splits) for splits in (1, 2)]}
