"""FlashAttention-3 as a peer: dense attention, called as its users call it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_attn_interface",
    "pip install --no-build-isolation "
    "'flash_attn_3 @ git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper'",
)


@dataclass(frozen=True, kw_only=True)
class Plan(AttentionProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        # Query tokens before heads, as a model's projections leave them: not timed.
        q, k, v = (x.transpose(1, 2).contiguous() for x in inputs)

        def call() -> dict[str, torch.Tensor]:
            out = NEEDS.load().flash_attn_func(q, k, v, causal=self.causal)
            return {"o": out.transpose(1, 2)}

        return LibraryKernel(
            call,
            "flash_attn_func",
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": self.empty_output(q.device)},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )
