"""MLA-var6+, base version: one block-specialized launch, half of its blocks for each path."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cutile.mla.mla_var6_plus.both_paths import attention
from mla_var3.kernel.cutile.mla.mla_var6_plus.common import (
    INPUT_NAMES,
    CombineTiling,
    TwoPathsPlan,
    share_blocks,
)
from mla_var3.runtime import KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, CtKernel, TileMN
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(TwoPathsPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": TileMN,
        "combine": CombineTiling,
    }

    blocks: int | None = option(
        None, "blocks of the attention launch; by default one per SM", minimum=2
    )

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "combine":
            return self.combine_tiling()
        # 64 rows and 8 worker warps keep the latent accumulator in registers on sm_90.
        return TileMN(num_worker_warps=8)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        grid = itertools.product((16, 32, 64), (32, 64), (None, 8))
        attention: list[Tiling] = [
            TileMN(tile_m=m, tile_n=n, num_worker_warps=w) for m, n, w in grid
        ]
        return {"attention": attention, "combine": self.combine_configs()}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, q_latent, qpe, z, kpe, key, value, wv = inputs
        old, new = self.old_tokens, self.new_tokens
        parts = self.partials(q.device, int(old > 0), int(new > 0))
        blocks = self.blocks or self.target.sm_count
        # Equal shares, whatever each path costs: what the next version mends.
        latent_blocks = share_blocks(blocks, float(old > 0), float(new > 0))
        # Views that begin and end with their path; a path without tokens keeps one unseen token.
        kpe_old, kpe_new = kpe[:, : max(old, 1)], kpe[:, min(old, self.t - 1) :]
        operands = (
            *(q, q_latent, qpe, z, kpe_old, kpe_new, key, value),
            *(parts.o_old[0], parts.lse_old[0], parts.o_new[0], parts.lse_new[0]),
            *(self.scale * INV_LOG_2, latent_blocks, self.d, self.k, self.p),
        )
        both = CtKernel(
            attention,
            grid_fn=lambda _: (blocks,),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal, old > 0, new > 0),
            input_tensors=dict(zip(INPUT_NAMES, inputs[:-1], strict=True)),
            output_tensors={
                **({"o_old": parts.o_old, "lse_old": parts.lse_old} if old else {}),
                **({"o_new": parts.o_new, "lse_new": parts.lse_new} if new else {}),
            },
            tiling=self.tiling("attention"),
            autotune_configs=self._autotune_configs()["attention"],
            algorithmic_flops_bytes_fn=lambda _: self.paths_cost(),
            _name="attention",
        )
        combine = self.combine(parts, wv, int(old > 0), int(new > 0))
        return KernelPipeline(_name="mla_var6_plus", stages=[both, combine])
