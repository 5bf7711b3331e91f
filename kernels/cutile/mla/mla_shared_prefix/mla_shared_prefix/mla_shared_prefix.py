"""Shared prefix, base: prefix, own tokens and combine, three kernels launched one after another."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

import cuda.tile as ct

from mla_var3.kernel.cutile.mla.mla_shared_prefix.common import (
    CombineTiling,
    Partials,
    PrefixTiling,
    SharedPrefixPlan,
    fewest_steps,
)
from mla_var3.runtime import KernelPipeline, RuntimeObject, Tiling
from mla_var3.runtime.ct_kernel import INV_LOG_2, CtKernel, TileMN

from .decompressed import decompressed
from .latent import latent

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(SharedPrefixPlan):
    """Problem and launches of this version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "decompressed": PrefixTiling,
        "latent": TileMN,
        "combine": CombineTiling,
    }

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "combine":
            return self.combine_tiling()
        if stage == "decompressed":
            return self.prefix_tiling()
        return TileMN(tile_m=64, tile_n=64, num_worker_warps=8)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        own = itertools.product((64, 128), (32, 64))
        return {
            "decompressed": self.prefix_configs(),
            "latent": [TileMN(tile_m=m, tile_n=n, num_worker_warps=8) for m, n in own],
            "combine": self.combine_configs(),
        }

    def splits(self) -> tuple[int, int]:
        """Pieces of the own tokens and of the prefix; 0 for a part without tokens."""
        own = cast(TileMN, self.tiling("latent"))
        prefix = cast(PrefixTiling, self.tiling("decompressed"))
        sms, rows = self.target.sm_count, -(-self.h * self.s // own.tile_m)
        heads = self.h * self.row_tiles(prefix)
        by_default = (
            fewest_steps(lambda n: self.b * rows * n, -(-self.own_tokens // own.tile_n), sms),
            fewest_steps(lambda n: heads * n, -(-self.prefix_tokens // prefix.tile_n), sms),
        )
        return (
            (self.own_splits or by_default[0]) if self.own_tokens else 0,
            (self.prefix_splits or by_default[1]) if self.prefix_tokens else 0,
        )

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        wv, splits = inputs[-1], self.splits()
        parts = self.partials(wv.device, *splits)
        stages: list[RuntimeObject] = []
        if splits[1]:
            stages.append(self._decompressed(parts, *inputs))
        if splits[0]:
            stages.append(self._latent(parts, *inputs))
        stages.append(self.combine(parts, wv, splits))
        return KernelPipeline(_name="mla_shared_prefix", stages=stages)

    def _decompressed(self, parts: Partials, *inputs: torch.Tensor) -> CtKernel:
        q, _, qpe, _, _, key, value, prefix_pe, _ = inputs
        splits = parts.o_new.shape[0]
        o, lse = (self.by_group(x.flatten(0, 1), splits) for x in (parts.o_new, parts.lse_new))
        operands = (
            *(self.by_group(q), self.by_group(qpe), key, value, prefix_pe, o, lse),
            *(self.scale * INV_LOG_2, self.d, self.p),
        )
        return CtKernel(
            decompressed,
            grid_fn=lambda x: (self.row_tiles(x) // self.groups, self.h, self.groups * splits),
            args_fn=lambda x: (*operands, x.tile_b, x.tile_s, x.tile_n),
            input_tensors={"q": q, "qpe": qpe, "key": key, "value": value, "kpe": prefix_pe},
            output_tensors={"o_new": parts.o_new, "lse_new": parts.lse_new},
            tiling=self.tiling("decompressed"),
            autotune_configs=self.prefix_configs(),
            algorithmic_flops_bytes_fn=lambda _: self.prefix_part(),
            _name="decompressed",
        )

    def _latent(self, parts: Partials, *inputs: torch.Tensor) -> CtKernel:
        _, q, qpe, z, kpe, *_ = inputs
        splits, rows = parts.o_old.shape[0], self.h * self.s
        operands = (
            *(q.flatten(1, 2), qpe.flatten(1, 2), z, kpe),
            *(parts.o_old.flatten(2, 3), parts.lse_old.flatten(2, 3)),
            *(self.scale * INV_LOG_2, self.s, self.k, self.p),
        )
        return CtKernel(
            latent,
            grid_fn=lambda x: (ct.cdiv(rows, x.tile_m), splits, self.b),
            args_fn=lambda x: (*operands, x.tile_m, x.tile_n, self.causal),
            input_tensors={"q_latent": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o_old": parts.o_old, "lse_old": parts.lse_old},
            tiling=self.tiling("latent"),
            autotune_configs=self._autotune_configs()["latent"],
            algorithmic_flops_bytes_fn=lambda _: self.own_part(),
            _name="latent",
        )
