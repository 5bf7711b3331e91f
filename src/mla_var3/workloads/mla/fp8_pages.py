"""Latent decode over pages of which latents are in fp8, and so are the queries against them.

One scale holds for all latents and one for all queries. A caller folds both into the softmax scale,
into rotary queries and into Wv, so that a kernel knows of none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.workloads.base import Cost, option
from mla_var3.workloads.mla.costs import paged_fp8_cost, seen_pairs
from mla_var3.workloads.mla.latent import PagedLatentProblem
from mla_var3.workloads.mla.problems import held

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class PagedFp8Problem(PagedLatentProblem):
    """Absorbed attention over pages of latents in e4m3, with rotary parts in bf16.

    Inputs: q ``[b,s,h,k]`` in e4m3, qpe ``[b,s,h,p]`` in bf16, z ``[pages,page,k]`` in e4m3, kpe
    ``[pages,page,p]`` in bf16, which are views of rows of ``k+2p`` bytes, the pages of each
    sequence and its keys as those of ``PagedLatentProblem``. Outputs: o ``[b,s,h,k]`` in bf16, lse
    ``[b,h,s]`` in fp32. The reference takes what is in the cache for exact.
    """

    covers: ClassVar[str] = (
        "attention up to the latent output over pages of a cache in fp8, by products in fp8; the "
        "caller multiplies with Wv"
    )
    smaller: ClassVar[bool] = True
    dtypes: ClassVar[Mapping[str, str]] = {"fp8": "float8_e4m3fn"}
    #: Weights in e4m3 vanish after smaller falls.
    long_tail: ClassVar[int] = 32

    dtype: str = option("fp8", "element type of latents and their queries: fp8 (e4m3)")

    def check_plans(self) -> list[Self]:
        return [dataclasses.replace(plan, dtype="fp8") for plan in super().check_plans()]

    def wide(self) -> PagedLatentProblem:
        """The same problem in bf16."""
        given = {f.name: getattr(self, f.name) for f in dataclasses.fields(PagedLatentProblem)}
        level = self.level and held(self.level, self.dtype)
        return PagedLatentProblem(**given | {"dtype": "bf16", "level": level})

    def prepare_inputs(self, device: str | torch.device = "cpu") -> tuple[torch.Tensor, ...]:
        import torch

        q, qpe, z, kpe, table, lengths = self.wide().prepare_inputs(device)
        width = self.k + 2 * self.p
        rows = torch.empty(*z.shape[:2], width, dtype=torch.uint8, device=z.device)
        values = rows[..., : self.k].view(self.torch_dtype)
        rotary = rows[..., self.k :].view(kpe.dtype)
        if not z.is_meta:
            values.copy_(z)
            rotary.copy_(kpe)
        return q.to(self.torch_dtype), qpe, values, rotary, table, lengths

    def empty_outputs(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        return self.wide().empty_outputs(device)

    def _algorithmic_flops_bytes(self, tiling: Any = None) -> Cost:
        keys = self.drawn()
        pairs = sum(seen_pairs(self.s, n, self.causal) for n in keys)
        return paged_fp8_cost(self.h, self.s, keys, self.k, self.p, pairs)
