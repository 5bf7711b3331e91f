"""Plan of a shared prefix whose kernel adds the own tokens itself, without a combine kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.dependent_plan import DependentPlan
from mla_var3.kernel.cute_python.kit.head_items import GROUPS
from mla_var3.kernel.cute_python.kit.head_plan import LN_2
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS, SLAB
from mla_var3.kernel.cute_python.kit.latent_tiling import PairTiling
from mla_var3.kernel.cute_python.kit.merging import Merging
from mla_var3.kernel.cute_python.kit.prefix_plan import PrefixTiling
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, require_multiple
from mla_var3.workloads import Cost

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class WholeStepTiling(PrefixTiling):
    """Steps of whole slabs of latent rows."""

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_multiple(SLAB, keys=self.keys)
        least = 2 * GROUPS if self.apart else 2
        if self.stages < least:
            raise TilingError(f"stages={self.stages}: a warpgroup needs two places, so {least}")


@dataclass(frozen=True, kw_only=True)
class MergingPlan(DependentPlan):
    """Two launches where the prefix is in one piece, else dependent ones of all three parts."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "latent": PairTiling,
        "decompressed": WholeStepTiling,
        "combine": CuteTiling,
    }

    def check_plans(self) -> list[Self]:
        """The shared problems, most in one piece, and groups of more rows than a tile holds."""
        pieces = (1, 1, 1, None, None, 1, 1)
        plans = [
            dataclasses.replace(plan, prefix_splits=count)
            for plan, count in zip(super().check_plans(), pieces, strict=True)
        ]
        tall = dataclasses.replace(plans[5], h=3, s=30, causal=True)
        return [*plans, tall]

    # ---- tilings ---------------------------------------------------------------------------
    def default_tiling(self, stage: str) -> Tiling:
        tiling = super().default_tiling(stage)
        if not isinstance(tiling, PrefixTiling):
            return tiling
        if self.tile_s == ROWS // 2:  # steps of 128 keys serialize wgmma: registers run out
            return WholeStepTiling(keys=64, stages=4, apart=tiling.apart)
        return WholeStepTiling(keys=tiling.keys, stages=tiling.stages, apart=tiling.apart)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        default = self.default_tiling("decompressed")
        rings: list[Tiling] = [default]
        if self.row_tiles > 1:
            rings += [WholeStepTiling(keys=64, stages=4)]
        return {**super()._autotune_configs(), "decompressed": rings}

    def latent_tiling(self) -> PairTiling:
        """As the plan below has it, but in one part where the prefix stays whole."""
        tiling = super().latent_tiling()
        return dataclasses.replace(tiling, splits=1) if self.whole else tiling

    @property
    def whole(self) -> bool:
        """Whether the prefix stays in one piece per tile of rows, beside own tokens."""
        if not self.together or (self.row_tiles == 1 and self.h % GROUPS):
            return False
        if self.prefix_splits is not None:
            return self.prefix_splits == 1
        blocks, sms = self.h * self.groups * -(-self.row_tiles // GROUPS), self.target.sm_count
        if self.row_tiles > 1:
            return 2 * blocks > sms
        # Blocks that wait for the own tokens keep their SM, so all of them have to have one.
        return sms // 4 < blocks // GROUPS <= sms - super().latent_tiling().blocks

    # ---- kernels ---------------------------------------------------------------------------
    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        if not self.whole:
            parts, combine = self.stages(*inputs)
            stages = [*parts, combine]
        else:
            own = self.latent(*inputs)
            stages = [own, self.merging(own.output_tensors, *inputs)]
        return KernelPipeline(_name="mla_shared_prefix", stages=stages)

    def merging(self, own: Mapping[str, torch.Tensor], *inputs: torch.Tensor) -> CuteKernel:
        """Attention over the prefix, to which each block adds the own tokens.

        Args:
            own: Latent output and LSE of the own tokens.
            inputs: Those of the problem.
        """
        q, _, qpe, _, _, key, value, prefix_pe, wv = inputs
        rows = (self.b, self.h, self.s)
        outputs = {
            "o": self.empty(*rows, self.d, device=q.device),
            "lse": self.empty(*rows, device=q.device, fp32=True),
        }
        named = {"q": q, "qpe": qpe, "key": key, "value": value, "kpe": prefix_pe}
        return self.bind(
            Merging.merging,
            lambda x: Merging(self.shape(x), x.blocks),
            # Wv comes last but for the outputs: of its rows all but the head are fixed.
            {**named, "o_old": own["o_old"], "lse_old": own["lse_old"], "wv": wv},
            outputs,
            (self.scale / LN_2,),
            self.prefix_part() + self.merge_cost(),
            "decompressed",
        )

    def merge_cost(self) -> Cost:
        """The own tokens' part in it: latent rows and Wv are read once."""
        rows, d, k = self.b * self.h * self.s, self.d, self.k
        return Cost(2 * rows * k * d, self.element_bytes * (rows + self.h * d) * k + 4 * rows)
