"""FlashAttention-3 as a peer on the latent cache: RoPE parts as keys, latents as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_attn_interface",
    "pip install --no-build-isolation "
    "'flash_attn_3 @ git+https://github.com/Dao-AILab/flash-attention#subdirectory=hopper'",
)
#: Widest rotary part and latent that it takes apart from each other.
MOST = {"k": 512, "p": 64}


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def validate(self) -> None:
        super().validate()
        for name, most in MOST.items():
            if getattr(self, name) > most:
                raise PlanError(
                    f"{name}={getattr(self, name)}: FlashAttention-3 takes up to {most}"
                )
        if self._has_empty_rows:
            raise PlanError(
                f"s={self.s} exceeds t={self.t}: FlashAttention-3 leaves the LSE of rows without "
                "keys open"
            )

    @property
    def _has_empty_rows(self) -> bool:
        return self.causal and self.s > self.t

    def check_plans(self) -> list[Self]:
        """The shared problems but those with rows that see no key, which it does not define."""
        return [p for p in super().check_plans() if not p._has_empty_rows]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o, lse = self.empty_outputs(q.device)
        # What a server keeps and computes in this layout anyway is not timed.
        latent, rotary = (x.transpose(1, 2).contiguous() for x in (q, qpe))

        def call() -> dict[str, torch.Tensor]:
            out, sums, *_ = NEEDS.load().flash_attn_with_kvcache(
                rotary, kpe[:, :, None], z[:, :, None], qv=latent, cache_seqlens=self.t,
                softmax_scale=self.scale, causal=self.causal, return_softmax_lse=True,
            )  # fmt: skip
            return {"o": out.transpose(1, 2), "lse": sums}

        return LibraryKernel(
            call,
            "flash_attn_with_kvcache",
            input_tensors={"q": latent, "qpe": rotary, "z": z, "kpe": kpe},
            output_tensors={"o": o, "lse": lse},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )
