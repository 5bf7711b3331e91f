"""FlashMLA of DeepSeek, a peer: dense decode over a paged KV cache, as its users call it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_mla",
    "pip install --no-build-isolation 'flash_mla @ git+https://github.com/deepseek-ai/FlashMLA'",
)
#: Tokens of a page, the only size its dense decode takes.
PAGE = 64
#: Latent and rotary dimension, the only ones it has with this softmax scale.
SIZES = {"k": 512, "p": 64}


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def validate(self) -> None:
        super().validate()
        for name, size in SIZES.items():
            if getattr(self, name) != size:
                raise PlanError(f"{name}={getattr(self, name)}: FlashMLA takes {size} alone")
        if self._has_empty_rows:
            raise PlanError(
                f"s={self.s} exceeds t={self.t}: FlashMLA leaves rows without keys open"
            )

    @property
    def _has_empty_rows(self) -> bool:
        return self.causal and self.s > self.t

    def check_plans(self) -> list[Self]:
        """The shared problems but those with rows that see no key, which it does not define."""
        return [p for p in super().check_plans() if not p._has_empty_rows]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, z, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        # What a server keeps and computes in this layout anyway is not timed.
        queries = torch.cat([q, qpe], -1).transpose(1, 2).contiguous()
        cache, table = paged(z, kpe)
        lengths = torch.full((self.b,), self.t, dtype=torch.int32, device=q.device)

        @functools.cache
        def schedule() -> tuple[Any, Any]:
            # One per decoding step, for all layers: made in the first call, which is not timed.
            return NEEDS.load().get_mla_metadata(lengths, self.s * self.h, 1)

        def call() -> dict[str, torch.Tensor]:
            decode = NEEDS.load().flash_mla_with_kvcache
            out, sums = decode(
                queries, cache, table, lengths, self.k, *schedule(),
                softmax_scale=self.scale, causal=self.causal,
            )  # fmt: skip
            return {"o": out.transpose(1, 2), "lse": sums}

        return LibraryKernel(
            call,
            "flash_mla_with_kvcache",
            input_tensors={"q": queries, "cache": cache, "table": table, "lengths": lengths},
            output_tensors={"o": o, "lse": lse},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )


def paged(z: torch.Tensor, kpe: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [b,t,k] and rotary parts [b,t,p] as pages.

    Returns:
        Pages [b*n, 64, 1, k+p], the last of each sequence filled with zeros, and the pages of
        each sequence in order, [b, n] in int32.
    """
    import torch

    b, t, k = z.shape
    count = -(-t // PAGE)
    rows = z.new_zeros(b, count * PAGE, k + kpe.shape[-1])
    rows[:, :t, :k], rows[:, :t, k:] = z, kpe
    table = torch.arange(b * count, dtype=torch.int32, device=z.device).view(b, count)
    return rows.view(b * count, PAGE, 1, -1), table
