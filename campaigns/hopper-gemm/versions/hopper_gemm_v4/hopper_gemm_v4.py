"""Hopper GEMM v4: pairs of CTAs share each tile of B by TMA multicast, in clusters of two.

Two CTAs of a cluster take tiles of C below each other. Each loads its own A and half of the B that
both need, and TMA writes that half into the shared memory of both: B crosses L2 once per pair.
A stage is free when the consumers of both CTAs have read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.kernel.cute_python.kit.gemm_persistent import PersistentGemm
from mla_var3.kernel.cute_python.kit.gemm_plan import GemmPlan, StagesTiling
from mla_var3.kernel.cute_python.kit.gemm_tiles import TILE_N, tma_atom, tma_parts
from mla_var3.runtime import KernelPlan
from mla_var3.runtime import Tiling as AnyTiling
from mla_var3.runtime.cute_kernel import require_multiple
from mla_var3.workloads import option

CLUSTER = 2


@dataclass(frozen=True, kw_only=True)
class Tiling(StagesTiling):
    """How far loads run ahead, how many blocks stay, and the order of tiles."""

    blocks: int | None = option(None, "persistent CTAs; by default one per SM", minimum=1)
    group_m: int = option(
        8, "row tiles of a cluster whose columns are walked through together", minimum=1
    )

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.blocks is not None:
            require_multiple(CLUSTER, blocks=self.blocks)


class Kernel(PersistentGemm):
    """Persistent CTAs, in clusters of two."""

    cluster = CLUSTER

    def loads(self, a, b):
        load, share = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileG2SMulticastOp()
        load_a = tma_atom(load, a, self.tile_m())
        load_b = tma_atom(share, b, TILE_N, num_multicast=CLUSTER)
        return load_a, load_b

    def launch_options(self, c) -> dict[str, Any]:
        return PersistentGemm.launch_options(self, c) | {"cluster": (CLUSTER, 1, 1)}

    @cute.jit
    def meet(self):
        cute.arch.cluster_arrive_relaxed()
        cute.arch.cluster_wait()

    @cute.jit
    def leave(self):
        # Neither may leave while the other still writes to its memory or barriers.
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

    def walk(self):
        """First tile of a cluster, and how many clusters take turns."""
        return cute.arch.cluster_idx()[0], cute.arch.cluster_dim()[0]

    def b_parts(self, load_b, s_b, b):
        """Boxes of B: each CTA loads its half."""
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        return tma_parts(load_b, s_b, b, rank, CLUSTER)

    @cute.jit
    def place(self, tile, tiles):
        """Row and column of a tile; the CTAs of a cluster have rows below each other."""
        row, column = PersistentGemm.place(self, tile, tiles)
        return row * CLUSTER + cute.arch.block_idx_in_cluster(), column

    @cute.jit
    def load(self, from_a, from_b, row, column, step, stage, full):
        """One warp asks for the tiles of a step; ``full`` counts their bytes."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, self.step_bytes())
        load_a, s_a, g_a = from_a
        load_b, s_b, g_b = from_b
        cute.copy(load_a, g_a[None, row, step], s_a[None, stage], tma_bar_ptr=full)
        both = cutlass.Int16((1 << CLUSTER) - 1)
        cute.copy(
            load_b, g_b[None, column, step], s_b[None, stage], tma_bar_ptr=full, mcast_mask=both
        )

    @cute.jit
    def release(self, free, step):
        """A warp has read the tiles of a step; both producers wait to hear it."""
        with cute.arch.elect_one():
            for rank in range_constexpr(CLUSTER):
                cute.arch.mbarrier_arrive(free + step % self.stages, rank)


@dataclass(frozen=True, kw_only=True)
class Plan(GemmPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[AnyTiling]]] = {"gemm": Tiling}

    def _autotune_configs(self) -> dict[str, list[AnyTiling]]:
        return {"gemm": [Tiling(group_m=rows) for rows in (2, 4, 8, 16)]}

    def host(self, tiling: Tiling) -> Kernel:
        blocks = tiling.blocks or self.target.sm_count // CLUSTER * CLUSTER
        return Kernel(tiling.stages, blocks, tiling.group_m)
