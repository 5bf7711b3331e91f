"""Plan of all versions: stages for old and newest tokens, a combine; n newest, 0 or t by model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.devices import Machine
from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.combine import LATENT, WIDTH
from mla_var3.kernel.cute_python.kit.latent_tiling import L2Tiling
from mla_var3.kernel.cute_python.kit.prefix_plan import ROPE, SharedPrefixPlan
from mla_var3.kernel.cute_python.kit.rope_plan import RopePlan, RopeTiling
from mla_var3.kernel.cute_python.mla.mla_var6_plus.parts import NewestPlan, OldPlan
from mla_var3.roofline.prediction import predict
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads.mla import MixedProblem

if TYPE_CHECKING:
    import torch


def part_of(plan: KernelPlan, stage: str) -> KernelPlan:
    """The plan that a stage belongs to, which its tilings are valid for."""
    return plan.part(stage) if isinstance(plan, MixPlan) else plan


@dataclass(frozen=True, kw_only=True)
class OldTiling(L2Tiling):
    """That of attention over the latent cache."""

    def validate(self, plan: KernelPlan) -> None:
        super().validate(part_of(plan, "old"))


@dataclass(frozen=True, kw_only=True)
class NewestTiling(RopeTiling):
    """That of attention by heads."""

    def validate(self, plan: KernelPlan) -> None:
        super().validate(part_of(plan, "newest"))


@dataclass(frozen=True, kw_only=True)
class MixPlan(MixedProblem, KernelPlan):
    """Old tokens latent, the newest decompressed, and their combine."""

    old_plan: ClassVar[type[OldPlan]] = OldPlan
    newest_plan: ClassVar[type[RopePlan]] = NewestPlan
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "old": OldTiling,
        "merge": CuteTiling,
        "newest": NewestTiling,
        "combine": CuteTiling,
    }

    def validate(self) -> None:
        super().validate()
        if (self.d, self.k, self.p) != (WIDTH, LATENT, ROPE):
            raise PlanError(
                f"d={self.d}, k={self.k} and p={self.p}: this design is built for d={WIDTH}, "
                f"k={LATENT} and p={ROPE}"
            )

    # ---- n ---------------------------------------------------------------------------------
    def resolve(self, machine: Machine) -> Self:
        """An n that is left open becomes 0 or t; of equals 0, which keeps less in memory."""
        if self.n is not None:
            return super().resolve(machine)
        ends = [dataclasses.replace(self, n=n) for n in (0, self.t)]
        return min(ends, key=lambda plan: plan.expected_us(machine)).resolve(machine)

    def expected_us(self, machine: Machine) -> float:
        """Time by the cost model: the longest by tensor rate, DRAM rate and power."""
        cost = self._algorithmic_flops_bytes()
        return predict(cost.flops, cost.bytes, machine.rates).time_us

    # ---- parts -----------------------------------------------------------------------------
    def part(self, stage: str) -> KernelPlan:
        """The plan that a stage belongs to; while n is open, as if it had all of the tokens."""
        if stage == "newest":
            return self.newest
        return self.combined if stage == "combine" else self.old

    @property
    def old(self) -> OldPlan:
        """Attention over the old tokens, all of which each row sees where n >= s - 1."""
        newer = self.n or 0
        return self.old_plan(
            t=max(self.t - newer, 1),
            newer=newer,
            k=self.k,
            causal=self.causal and newer < self.s - 1,
            **self.common("old", "merge"),
        )

    @property
    def newest(self) -> RopePlan:
        """Attention over the newest tokens."""
        t = self.t if self.n is None else max(self.n, 1)
        return self.newest_plan(t=t, d=self.d, causal=self.causal, **self.common("newest"))

    @property
    def combined(self) -> SharedPrefixPlan:
        """The product with Wv and the merge, for which the order of tokens does not matter."""
        return SharedPrefixPlan(
            t=self.t, groups=self.b, d=self.d, k=self.k, **self.common("combine")
        )

    def common(self, *stages: str) -> dict[str, Any]:
        """What a part has of the whole, and the tilings of its stages."""
        names = ("b", "h", "s", "p", "dtype", "machine")
        tilings = {x: self.tilings[x] for x in stages if x in self.tilings}
        return {name: getattr(self, name) for name in names} | {"tilings": tilings}

    # ---- tilings ---------------------------------------------------------------------------
    def default_tiling(self, stage: str) -> Tiling:
        return self.owned(stage, self.part(stage).default_tiling(stage))

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {
            stage: [self.owned(stage, x) for x in self.part(stage)._autotune_configs()[stage]]
            for stage in self.tiling_types
        }

    def owned(self, stage: str, tiling: Tiling) -> Tiling:
        """A part's tiling as one of this plan."""
        return self.tiling_types[stage](**dataclasses.asdict(tiling))

    # ---- launches --------------------------------------------------------------------------
    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        q, q_latent, qpe, z, kpe, key, value, wv = inputs
        stages: list[RuntimeObject] = []
        parts: dict[str, torch.Tensor] = {}
        if self.old_tokens:
            old = self.old.plan(q_latent, qpe, z, kpe)
            stages += old.children if isinstance(old, KernelPipeline) else [old]
            parts |= {f"{name}_old": x for name, x in old.output_tensors.items()}
        if self.new_tokens:
            newest = self.newest.plan(q, qpe, key, value, kpe[:, self.old_tokens :])
            if not self.old_tokens:
                return newest
            stages.append(newest)
            parts |= {f"{name}_new": x for name, x in newest.output_tensors.items()}
        return KernelPipeline(
            _name="mla_var6_plus", stages=[*stages, self.combined.combine(parts, wv)]
        )
