"""TileGym's MLA as a peer: split-KV decode in cuTile, as its users call it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.library_kernel import LibraryKernel, LibraryPlan, Requirement
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

NEEDS = Requirement(
    "tilegym.ops.cutile.mla_decoding_split_kv",
    "pip install 'tilegym[torch] @ git+https://github.com/NVIDIA/TileGym'",
    checkout="TILEGYM_DIR",
)


def interpreted() -> AbstractContextManager[Any]:
    """Its launches run in the interpreter."""
    from mla_var3.interpreter.redirect import redirected

    return redirected()


@dataclass(frozen=True, kw_only=True)
class Plan(LatentProblem, LibraryPlan):
    """Problem and call of the base version; query tokens are further heads to it."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    needs = NEEDS

    def reference_fn(self, *inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"o": super().reference_fn(*inputs)["o"]}  # The library gives no LSE.

    def validate(self) -> None:
        super().validate()
        if self.causal:
            raise PlanError("causal: TileGym's MLA decode takes no mask")

    def check_plans(self) -> list[Self]:
        """The shared problems without the mask, which the library does not take."""
        return [dataclasses.replace(p, causal=False) for p in super().check_plans() if p.t > 100]

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, qpe, z, kpe = inputs
        o = self.empty_outputs(q.device)[0]
        rows, positions = q.flatten(1, 2), qpe.flatten(1, 2)

        def call() -> dict[str, torch.Tensor]:
            decode = NEEDS.load().mla_decoding_split_kv
            return {"o": decode(rows, positions, z, kpe, self.scale).view_as(o)}

        return LibraryKernel(
            call,
            "mla_decoding_split_kv",
            input_tensors={"q": q, "qpe": qpe, "z": z, "kpe": kpe},
            output_tensors={"o": o},
            cost=self._algorithmic_flops_bytes(),
            on_cpu=interpreted,
            _name="attention",
        )
