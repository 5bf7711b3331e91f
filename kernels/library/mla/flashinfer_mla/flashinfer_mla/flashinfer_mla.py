"""FlashInfer's MLA as a peer: attention over a paged KV cache, as its users plan and run it."""

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

NEEDS = Requirement("flashinfer.mla", "pip install flashinfer-python")
#: Tokens of a page.
PAGE = 64
#: Bytes of its workspace, as its documentation recommends.
WORKSPACE = 128 << 20


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
        if self._has_empty_rows:
            raise PlanError(
                f"s={self.s} exceeds t={self.t}: FlashInfer leaves rows without keys open"
            )

    @property
    def _has_empty_rows(self) -> bool:
        return self.causal and self.s > self.t

    def check_plans(self) -> list[Self]:
        """The shared problems but those with rows that see no key, which it does not define."""
        return [p for p in super().check_plans() if not p._has_empty_rows]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o = self.empty_outputs(q.device)[0]
        # What a server keeps and computes in this layout anyway is not timed.
        queries, rotary = (x.transpose(1, 2).flatten(0, 1).contiguous() for x in (q, qpe))
        latents, positions = in_pages(z), in_pages(kpe)

        @functools.cache
        def planned() -> Any:
            # Once per decoding step, for all layers: in the first call, which is not timed.
            return self._planned(queries, latents)

        def call() -> dict[str, torch.Tensor]:
            out = planned().run(queries, rotary, latents, positions)
            return {"o": out.unflatten(0, (self.b, self.s)).transpose(1, 2)}

        return LibraryKernel(
            call,
            "BatchMLAPagedAttentionWrapper",
            input_tensors={"q": queries, "qpe": rotary, "z": latents, "kpe": positions},
            output_tensors={"o": o},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=False,
            _name="attention",
        )

    def _planned(self, queries: torch.Tensor, latents: torch.Tensor) -> Any:
        """Its wrapper, planned for sequences of one length, their pages in order."""
        import torch

        def indices(count: int, step: int = 1) -> torch.Tensor:
            return torch.arange(count, dtype=torch.int32, device=queries.device) * step

        workspace = torch.empty(WORKSPACE, dtype=torch.int8, device=queries.device)
        wrapper = NEEDS.load().BatchMLAPagedAttentionWrapper(workspace, backend="auto")
        pages = latents.shape[0]
        wrapper.plan(
            indices(self.b + 1, self.s),
            indices(self.b + 1, pages // self.b),
            indices(pages),
            torch.full((self.b,), self.t, dtype=torch.int32, device=queries.device),
            self.h, self.k, self.p, PAGE, self.causal, self.scale, queries.dtype, latents.dtype,
        )  # fmt: skip
        return wrapper


def in_pages(x: torch.Tensor) -> torch.Tensor:
    """Cache [b,t,width] as pages [b*n, 64, width]; a view where they are whole."""
    import torch

    fill = -x.shape[1] % PAGE
    whole = torch.nn.functional.pad(x, (0, 0, 0, fill)) if fill else x
    return whole.reshape(-1, PAGE, x.shape[-1])
