"""TokenSpeed-MLA as a peer: decode over a paged KV cache, as its users call it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement("tokenspeed_mla", "pip install tokenspeed-mla")
#: Tokens of a page.
PAGE = 64
#: Latent and rotary dimension, the only ones it has, and its most query heads.
SIZES, HEADS = {"k": 512, "p": 64}, 128
#: Query rows of a tile, and the most splits of the keys that its workspace has to hold.
ROWS, MOST_SPLITS = 128, 32


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, LibraryPlan):
    """Problem and call of the base version."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        # Its LSE, in log2, is not asked for.
        return {"o": super().reference_fn(*inputs)["o"]}

    def validate(self) -> None:
        super().validate()
        for name, size in SIZES.items():
            if getattr(self, name) != size:
                raise PlanError(f"{name}={getattr(self, name)}: TokenSpeed-MLA takes {size} alone")
        if self.h > HEADS:
            raise PlanError(f"h={self.h}: TokenSpeed-MLA takes up to {HEADS} heads")
        if self._has_empty_rows:
            raise PlanError(
                f"s={self.s} exceeds t={self.t}: TokenSpeed-MLA leaves rows without keys open"
            )

    @property
    def _has_empty_rows(self) -> bool:
        return self.causal and self.s > self.t

    @property
    def workspace(self) -> int:
        """Bytes that hold any split of the keys that it may choose: fp32 rows and their LSE."""
        rows = -(-self.h * self.s // ROWS) * ROWS
        waves = max(self.target.sm_count // self.b, 1)
        return 4 * self.b * rows * min(waves, MOST_SPLITS) * (self.k + 1)

    def check_plans(self) -> list[Self]:
        """The shared problems but those with rows that see no key, which it does not define."""
        return [p for p in super().check_plans() if not p._has_empty_rows]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, z, kpe = inputs
        device = q.device
        # What a server keeps and computes in this layout anyway is not timed.
        queries = torch.cat([q, qpe], -1).transpose(1, 2).contiguous()
        cache, table = paged(z, kpe)
        lengths = torch.full((self.b,), self.t, dtype=torch.int32, device=device)
        out = self.empty(self.b, self.s, self.h, self.k, device=device)

        @functools.cache
        def workspace() -> torch.Tensor:
            return torch.empty(self.workspace, dtype=torch.int8, device=device)

        def call() -> None:
            NEEDS.load().tokenspeed_mla_decode(
                queries, cache, workspace(), self.k, self.p, table, lengths, self.t, self.scale,
                out=out, is_var_seq=False, causal_mask=self.causal,
            )  # fmt: skip

        return LibraryKernel(
            call,
            "tokenspeed_mla_decode",
            input_tensors={"q": queries, "cache": cache, "table": table, "lengths": lengths},
            output_tensors={"o": out.transpose(1, 2)},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )


def paged(z: torch.Tensor, kpe: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Latents [b,t,k] and rotary parts [b,t,p] as pages.

    Returns:
        Pages [b*n, 64, k+p], the last of each sequence filled with zeros, and the pages of each
        sequence in order, [b, n] in int32.
    """
    import torch

    b, t, k = z.shape
    count = -(-t // PAGE)
    rows = z.new_zeros(b, count * PAGE, k + kpe.shape[-1])
    rows[:, :t, :k], rows[:, :t, k:] = z, kpe
    table = torch.arange(b * count, dtype=torch.int32, device=z.device).view(b, count)
    return rows.view(b * count, PAGE, -1), table
