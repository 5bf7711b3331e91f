"""torch's scaled_dot_product_attention over the decompressed keys and values of MLA."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan
from mla_var3.workloads.mla import DecompressedProblem

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan(DecompressedProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"o": super().reference_fn(*inputs)["o"]}  # The library gives no LSE.

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, key, value, kpe = inputs
        o = self.empty_outputs(q.device)[0]
        # A cache for torch keeps each head's rotary part beside its keys, so this is not timed.
        positions = kpe[:, :, None].expand(-1, -1, self.h, -1)
        keys = torch.cat([key, positions], -1).transpose(1, 2)
        queries, values = torch.cat([q, qpe], -1), value.transpose(1, 2)
        return LibraryKernel(
            lambda: {"o": torch_sdpa_mla(queries, keys, values, self.causal, self.scale)},
            "scaled_dot_product_attention",
            input_tensors={"q": queries, "key": keys, "value": values},
            output_tensors={"o": o},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=True,
            _name="attention",
        )


def torch_sdpa_mla(
    q: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    causal: bool,
    scale: float,
) -> torch.Tensor:
    """Q [b,h,s,d+p], key [b,h,t,d+p], value [b,h,t,d] to o [b,h,s,d]."""
    import torch
    from torch.nn.attention.bias import causal_lower_right

    # torch aligns its own causal flag at the top left; the last query sees all keys here.
    mask = causal_lower_right(q.shape[2], key.shape[2]) if causal else None
    attention = torch.nn.functional.scaled_dot_product_attention
    o = attention(q, key, value, attn_mask=mask, scale=scale)
    # A row that sees no key comes back as NaN in some back ends; where all see one, none is made.
    return o.nan_to_num(nan=0.0) if causal and q.shape[2] > key.shape[2] else o
