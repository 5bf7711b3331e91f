"""FlashMLA of DeepSeek, a peer: sparse prefill, each query token over its own list of rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import SparseRowsProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_mla",
    "pip install --no-build-isolation 'flash_mla @ git+https://github.com/deepseek-ai/FlashMLA'",
)
#: Latent and rotary dimension, the only ones that it has with rows as wide as queries.
SIZES = {"k": 512, "p": 64}
#: What the places of a list and the heads have to be multiples of.
PLACES, HEADS = 64, 64


@dataclass(frozen=True, kw_only=True)
class Plan(SparseRowsProblem, LibraryPlan):
    """Problem and call."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def validate(self) -> None:
        super().validate()
        for name, size in SIZES.items():
            if getattr(self, name) != size:
                raise PlanError(f"{name}={getattr(self, name)}: FlashMLA takes {size} alone")
        if self.h % HEADS or self.topk % PLACES:
            raise PlanError(
                f"h={self.h} and topk={self.topk}: FlashMLA takes multiples of {HEADS} and {PLACES}"
            )

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, cache, chosen, lengths = inputs
        o, lse, top = self.empty_outputs(q.device)
        # What a server keeps in this layout anyway is not timed.
        queries, rows = torch.cat([q, qpe], -1).squeeze(1), cache.view(-1, 1, cache.shape[-1])
        lists, counts = chosen.unsqueeze(1), lengths if self.ending else None
        sinks = self.sinks(q.device) if self.sunk else None

        def call() -> dict[str, torch.Tensor]:
            out, tops, sums = NEEDS.load().flash_mla_sparse_fwd(
                queries, rows, lists, self.scale, attn_sink=sinks, topk_length=counts
            )
            return {"o": out.unsqueeze(1), "lse": sums.unsqueeze(-1), "top": tops.unsqueeze(-1)}

        return LibraryKernel(
            call,
            "flash_mla_sparse_fwd",
            input_tensors={"q": queries, "cache": rows, "lists": lists, "lengths": lengths},
            output_tensors={"o": o, "lse": lse, "top": top},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )

    def check_plans(self) -> list[Plan]:
        """The shared problems that it takes."""
        return [p for p in super().check_plans() if p.is_valid()]
