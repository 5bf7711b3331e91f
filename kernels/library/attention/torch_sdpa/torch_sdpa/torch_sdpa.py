"""torch's scaled_dot_product_attention: torch chooses the back end (cuDNN, flash, efficient)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(AttentionProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, k, v = inputs
        o = self.empty_output(q.device)
        return LibraryKernel(
            lambda: torch_sdpa(q, k, v, o, self.causal),
            "scaled_dot_product_attention",
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": o},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=True,
            _name="attention",
        )


def torch_sdpa(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, causal: bool
) -> None:
    """Q [b,h,s,d], k and v [b,h,t,d], o [b,h,s,d]."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    # torch aligns its own causal flag at the top left; the last query sees all keys here.
    mask = causal_lower_right(q.shape[2], k.shape[2]) if causal else None
    o.copy_(torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask))
