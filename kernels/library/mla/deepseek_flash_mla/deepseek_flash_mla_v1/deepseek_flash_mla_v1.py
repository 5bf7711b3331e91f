"""FlashMLA of DeepSeek v1: pages in random order, and sequences of unequal lengths."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads import option
from mla_var3.workloads.mla import PagedLatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "flash_mla",
    "pip install --no-build-isolation 'flash_mla @ git+https://github.com/deepseek-ai/FlashMLA'",
)
#: Tokens of a page, the only size its dense decode takes.
PAGE = 64
#: Latent and rotary dimension, the only ones it has.
SIZES = {"k": 512, "p": 64}


@dataclass(frozen=True, kw_only=True)
class Plan(PagedLatentProblem, LibraryPlan):
    """Problem and call."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    page: int | None = option(PAGE, "keys of a page, pages in random order: 64", minimum=1)

    def validate(self) -> None:
        super().validate()
        for name, size in {**SIZES, "page": PAGE}.items():
            if getattr(self, name) != size:
                raise PlanError(f"{name}={getattr(self, name)}: FlashMLA takes {size} alone")
        if self._has_empty_rows:
            raise PlanError(
                f"s={self.s} exceeds the shortest sequence's {min(self.drawn())} keys: FlashMLA "
                "says otherwise what rows without keys are"
            )

    @property
    def _has_empty_rows(self) -> bool:
        return min(self.drawn()) < (self.s if self.causal else 1)

    def check_plans(self) -> list[Self]:
        """The shared problems but those with rows that see no key."""
        return [p for p in super().check_plans() if not p._has_empty_rows]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:

        q, qpe, z, kpe, table, lengths = inputs
        o, lse = self.empty_outputs(q.device)
        # The parts are views of rows that hold both, as servers keep them.
        queries, cache = joined(q, qpe), joined(z, kpe).unsqueeze(2)

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
            return {"o": out, "lse": sums}

        return LibraryKernel(
            call,
            "flash_mla_with_kvcache",
            input_tensors={"q": queries, "cache": cache, "table": table, "lengths": lengths},
            output_tensors={"o": o, "lse": lse},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )


def joined(latent: torch.Tensor, rope: torch.Tensor) -> torch.Tensor:
    """The rows of which these are the first and the last part."""
    import torch

    if latent.is_meta or latent.untyped_storage().data_ptr() != rope.untyped_storage().data_ptr():
        return torch.cat([latent, rope], -1)
    width = latent.shape[-1] + rope.shape[-1]
    return latent.as_strided((*latent.shape[:-1], width), latent.stride())
