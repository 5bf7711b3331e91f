"""FlashMLA of DeepSeek, a peer: sparse decode, each query token over its own list of fp8 rows."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import SparseLatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_mla",
    "pip install --no-build-isolation 'flash_mla @ git+https://github.com/deepseek-ai/FlashMLA'",
)
#: Latent and rotary dimension, the only ones that it has with rows of 656 bytes.
SIZES = {"k": 512, "p": 64}
#: Heads that it takes, and what the places of a list have to be a multiple of.
HEADS, PLACES = (64, 128), 64


@dataclass(frozen=True, kw_only=True)
class Plan(SparseLatentProblem, LibraryPlan):
    """Problem and call."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def validate(self) -> None:
        super().validate()
        for name, size in SIZES.items():
            if getattr(self, name) != size:
                raise PlanError(f"{name}={getattr(self, name)}: FlashMLA takes {size} alone")
        if self.h not in HEADS or self.topk % PLACES:
            raise PlanError(
                f"h={self.h} and topk={self.topk}: FlashMLA takes 64 or 128 heads and multiples of "
                f"{PLACES} places"
            )
        if self.dtype != "bf16":
            raise PlanError(f"dtype={self.dtype}: FlashMLA takes bf16 alone")
        if self.ending and self.s > 1:
            raise PlanError(f"s={self.s}: FlashMLA takes one length for all lists of a sequence")

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, cache, chosen, lengths = inputs
        o, lse = self.empty_outputs(q.device)
        # What a server keeps in this layout anyway is not timed.
        queries = torch.cat([q, qpe], -1).view(self.b, self.s, self.h, -1)
        rows, lists = cache.unsqueeze(2), chosen.view(self.b, self.s, -1)
        counts = lengths if self.ending else None

        @functools.cache
        def schedule() -> Any:
            # One per decoding step, for all layers: made in the first call, which is not timed.
            return NEEDS.load().get_mla_metadata()[0]

        def call() -> dict[str, torch.Tensor]:
            out, sums = NEEDS.load().flash_mla_with_kvcache(
                queries, rows, None, None, self.k, schedule(), softmax_scale=self.scale,
                is_fp8_kvcache=True, indices=lists, topk_length=counts,
            )  # fmt: skip
            return {"o": out.view(o.shape), "lse": sums.transpose(1, 2).reshape(lse.shape)}

        return LibraryKernel(
            call,
            "flash_mla_with_kvcache",
            input_tensors={"q": queries, "cache": rows, "lists": lists, "lengths": lengths},
            output_tensors={"o": o, "lse": lse},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )

    def check_plans(self) -> list[Plan]:
        """The shared problems that it takes."""
        return [p for p in super().check_plans() if p.is_valid()]
