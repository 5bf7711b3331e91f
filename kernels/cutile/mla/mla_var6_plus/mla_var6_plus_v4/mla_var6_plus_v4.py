"""MLA-var6+ v4: one kernel per path, which run concurrently on two streams."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cutile.mla.mla_var6_plus.common import (
    CombineTiling,
    Partials,
    TwoPathsPlan,
    best_splits,
    next_power_of_two,
)
from mla_var3.runtime import ConcurrentKernels, KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, CtKernel, TileMN
from mla_var3.workloads import option

from .decompressed import decompressed
from .latent import latent

if TYPE_CHECKING:
    import torch

#: Default tiles, which the heuristics reckon with: 64 rows and 8 worker warps keep the latent
#: accumulator in registers on sm_90.
ROW_TILE, OLD_KEY_TILE, NEW_KEY_TILE = 64, 64, 128


@dataclass(frozen=True, kw_only=True)
class Plan(TwoPathsPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "latent": TileMN,
        "decompressed": TileMN,
        "combine": CombineTiling,
    }

    latent_blocks: int | None = option(
        None, "persistent latent blocks; by default the latent share of the SMs", minimum=1
    )
    decompressed_blocks: int | None = option(
        None, "persistent decompressed blocks; by default the SMs that are left", minimum=1
    )
    latent_splits: int | None = option(
        None, "pieces the old tokens are cut into; by default whole waves", minimum=1
    )
    decompressed_splits: int | None = option(
        None, "pieces the new tokens are cut into; by default whole waves", minimum=1
    )

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "combine":
            return self.combine_tiling()
        if stage == "latent":
            return TileMN(tile_m=ROW_TILE, tile_n=OLD_KEY_TILE, num_worker_warps=8)
        return TileMN(tile_m=self.query_tile(), tile_n=NEW_KEY_TILE, num_worker_warps=8)

    def query_tile(self) -> int:
        """Queries of one head a decompressed block takes: all, from 16 to 64."""
        return min(max(next_power_of_two(self.s), 16), 64)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        latent = itertools.product((64, 128), (32, 64), (None, 8))
        decompressed = itertools.product((self.query_tile(),), (64, 128), (None, 8))
        return {
            "latent": [TileMN(tile_m=m, tile_n=n, num_worker_warps=w) for m, n, w in latent],
            "decompressed": [
                TileMN(tile_m=m, tile_n=n, num_worker_warps=w) for m, n, w in decompressed
            ],
            "combine": self.combine_configs(),
        }

    def blocks(self) -> tuple[int, int]:
        """Blocks of the latent and of the decompressed kernel; one an SM in all."""
        old_rows = -(-self.h * self.s // ROW_TILE) * ROW_TILE
        new_rows = -(-self.s // self.query_tile()) * self.query_tile() * self.h
        latent = self.latent_share(self.target.sm_count, old_rows, new_rows)
        return (
            self.latent_blocks or max(latent, 1),
            self.decompressed_blocks or max(self.target.sm_count - latent, 1),
        )

    def splits(self) -> tuple[int, int]:
        """Splits of the old and of the new tokens; 0 for a path without tokens."""
        latent_blocks, decompressed_blocks = self.blocks()
        row_tiles = -(-self.h * self.s // ROW_TILE)
        old = best_splits(self.b * row_tiles, latent_blocks, -(-self.old_tokens // OLD_KEY_TILE))
        query_tiles = -(-self.s // self.query_tile())
        new = best_splits(
            self.b * self.h * query_tiles, decompressed_blocks, -(-self.new_tokens // NEW_KEY_TILE)
        )
        return (
            (self.latent_splits or old) if self.old_tokens else 0,
            (self.decompressed_splits or new) if self.new_tokens else 0,
        )

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        wv = inputs[-1]
        old_splits, new_splits = self.splits()
        parts = self.partials(wv.device, old_splits, new_splits)
        paths: list[RuntimeObject] = []
        if old_splits:
            paths.append(self._latent(parts, *inputs))
        if new_splits:
            paths.append(self._decompressed(parts, *inputs))
        attention = (
            ConcurrentKernels(_name="attention", concurrent_kernels=paths)
            if len(paths) > 1
            else paths[0]
        )
        combine = self.combine(parts, wv, old_splits, new_splits)
        return KernelPipeline(_name="mla_var6_plus", stages=[attention, combine])

    def _latent(self, parts: Partials, *inputs: torch.Tensor) -> CtKernel:
        _, q, qpe, z, kpe, _, _, _ = inputs
        # Row r of a sequence is query r % s of head r // s.
        q_rows, qpe_rows = q.flatten(1, 2), qpe.flatten(1, 2)
        o, lse = parts.o_old.flatten(2, 3), parts.lse_old.flatten(2, 3)
        operands = (
            *(q_rows, qpe_rows, z, kpe[:, : self.old_tokens], o, lse),
            *(self.scale * INV_LOG_2, self.new_tokens, self.s, self.k, self.p),
        )
        return CtKernel(
            latent,
            grid_fn=lambda _: (self.blocks()[0],),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal),
            input_tensors={"q_latent": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o_old": parts.o_old, "lse_old": parts.lse_old},
            tiling=self.tiling("latent"),
            autotune_configs=self._autotune_configs()["latent"],
            algorithmic_flops_bytes_fn=lambda _: self.latent_cost(),
            _name="latent",
        )

    def _decompressed(self, parts: Partials, *inputs: torch.Tensor) -> CtKernel:
        q, _, qpe, _, kpe, key, value, _ = inputs
        operands = (
            *(q, qpe, key, value, kpe[:, self.old_tokens :], parts.o_new, parts.lse_new),
            *(self.scale * INV_LOG_2, self.d, self.p),
        )
        return CtKernel(
            decompressed,
            grid_fn=lambda _: (self.blocks()[1],),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal),
            input_tensors={"q": q, "qpe": qpe, "key": key, "value": value, "kpe": kpe},
            output_tensors={"o_new": parts.o_new, "lse_new": parts.lse_new},
            tiling=self.tiling("decompressed"),
            autotune_configs=self._autotune_configs()["decompressed"],
            algorithmic_flops_bytes_fn=lambda _: self.decompressed_cost(),
            _name="decompressed",
        )
