"""Plans of attention over lists of rows: lists whole, or in parts where they are few."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.l2 import PLACE, SIGNALS
from mla_var3.kernel.cute_python.kit.paged_plan import arguments
from mla_var3.kernel.cute_python.kit.prefill import PrefillKernel
from mla_var3.kernel.cute_python.kit.prefill_parts import PartsKernel
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROPE, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sparse_plan import SparseTiling
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, Dynamic
from mla_var3.workloads.mla import SparseRowsProblem

if TYPE_CHECKING:
    import torch

#: Tiles that a merge of few parts takes as long as, and CTAs with which it takes one more; as in
#: ``serving.kinds``.
MERGE, MERGE_CTAS = 5, 25
#: What ``paged_plan.arguments`` does not know: axes that are given at launch.
GIVEN = {"sink": (0,), "sums": (0, 1), "tops": (0, 1)}


@dataclass(frozen=True, kw_only=True)
class PrefillPlan(SparseRowsProblem, KernelPlan):
    """Problem and launch."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": SparseTiling}

    def validate(self) -> None:
        super().validate()
        if (self.k, self.p) != (LATENT, ROPE):
            raise PlanError(f"k={self.k} and p={self.p}: this design is built for {LATENT}, {ROPE}")

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_types[stage]()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {stage: [self.default_tiling(stage)] for stage in self.tiling_types}

    @property
    def parts(self) -> int:
        """Parts of each list, 1 where these are whole; as ``serving.kinds.parts_of``."""
        rows = self.b * self.s * -(-self.h // ROWS)
        tiles = -(-self.topk // KEYS)
        parts = min(self.target.sm_count // rows, tiles // 2)
        if parts < 2:
            return 1
        saved = tiles - -(-tiles // parts)
        return parts if saved > MERGE + parts * rows // MERGE_CTAS else 1

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        import torch

        q, qpe, cache, indices, lengths = inputs
        o, lse, top = self.empty_outputs(q.device)
        lists, parts, groups = len(q), self.parts, -(-self.h // ROWS)
        room = self.target.sm_count // groups
        # Where lists end early the GPU gives each CTA that ends one another.
        workers = lists if self.ending else max(room, 1)
        if not cache.is_contiguous():
            raise PlanError("the cache's rows lie apart: this design takes one row after the other")
        rows = cache.view(1, -1, cache.shape[-1]).view(torch.uint8)
        given = {
            "q": q, "qpe": qpe, "cache": rows, "indices": indices, "lengths": lengths,
            "sink": self.sinks(q.device),
        }  # fmt: skip
        left = {}
        if parts > 1:
            count = 4 * parts * lists * groups
            left = {
                "places": torch.zeros(count, PLACE, dtype=torch.float32, device=q.device),
                "signals": torch.zeros(count, SIGNALS, dtype=torch.int32, device=q.device),
            }
        written = {"o": o, "sums": lse.squeeze(-1), "tops": top.squeeze(-1)}
        numbers = (parts if left else workers, int(self.ending), int(self.sunk), self.scale / LN_2)
        values = (*given.values(), *left.values(), *written.values(), *numbers)
        made: type[PrefillKernel] = PartsKernel if left else PrefillKernel

        def launch(tiling: Any) -> tuple[Any, tuple[Any, ...]]:
            host = made(tiling.lazy, True)
            names = (*given, *left, *written)
            known = dict(zip(names, arguments(host, values), strict=False))
            known |= {n: Dynamic(known[n], axes) for n, axes in GIVEN.items()}
            return host, (*known.values(), *numbers)

        return CuteKernel(
            made.prefill,
            launch,
            input_tensors={**given, **left},
            output_tensors={"o": o, "lse": lse, "top": top},
            tiling=self.tiling("attention"),
            autotune_configs=self._autotune_configs()["attention"],
            algorithmic_flops_bytes_fn=lambda _: self._algorithmic_flops_bytes(),
            _name="attention",
        )
