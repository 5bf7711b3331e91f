"""Plan of a shared prefix: own tokens latent, the prefix decompressed, and the combine kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError, TilingError
from mla_var3.kernel.cute_python.kit.combine import LATENT, WIDTH, Combine
from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_plan import require_room
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_tiling import PairTiling
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, Dynamic, by_rows
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import SharedPrefixProblem

if TYPE_CHECKING:
    import torch

ROPE, LN_2 = 64, 0.6931471805599453
#: What a piece of the keys costs beside its steps: queries to load, rings to fill, a result to
#: store and to merge.
ITEM_STEPS = 3
#: The most pieces that the default considers; the plan accepts more.
MAX_SPLITS = 16


@dataclass(frozen=True, kw_only=True)
class PrefixTiling(CuteTiling):
    """Keys of a step, the depth of the rings, and who shares the keys."""

    keys: int = option(128, "keys per step", minimum=16)
    stages: int = option(2, "steps of keys and of values in shared memory", minimum=1)
    apart: bool = option(False, "the two warpgroups take alternate steps of the same 64 rows")
    blocks: int | None = option(None, "persistent CTAs; by default one per item", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_room(self.keys, self.stages, WIDTH + ROPE, WIDTH)
        if self.apart and self.stages % GROUPS:
            raise TilingError(
                f"stages={self.stages} is odd: with apart each place of a ring has one reader"
            )


@dataclass(frozen=True, kw_only=True)
class SharedPrefixPlan(SharedPrefixProblem, KernelPlan):
    """Tilings, partial results and kernels, for every version of the design."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "latent": PairTiling,
        "decompressed": PrefixTiling,
        "combine": CuteTiling,
    }

    #: The bits of a sequence may vary with its batch.
    invariant: ClassVar[None] = None

    prefix_splits: int | None = option(
        None, "pieces the prefix is cut into; by default whole waves of blocks", minimum=1
    )

    def validate(self) -> None:
        super().validate()
        if (self.d, self.k, self.p) != (WIDTH, LATENT, ROPE):
            raise PlanError(
                f"d={self.d}, k={self.k} and p={self.p}: this design is built for d={WIDTH}, "
                f"k={LATENT} and p={ROPE}"
            )

    def check_plans(self) -> list[Self]:
        """The shared problems, with split counts from one to more than there are tiles."""
        counts = (None, 2, 1, 3, None, 2, 1)
        return [
            dataclasses.replace(plan, prefix_splits=count)
            for plan, count in zip(super().check_plans(), counts, strict=True)
        ]

    # ---- tilings ---------------------------------------------------------------------------
    def default_tiling(self, stage: str) -> Tiling:
        if stage == "latent":
            return self.latent_tiling()
        if stage == "combine":
            return CuteTiling()
        few = self.row_tiles == 1
        return PrefixTiling(keys=64, stages=4, apart=True) if few else PrefixTiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        few, sms = self.row_tiles == 1, self.target.sm_count
        rings = ((64, 4), (128, 2)) if few else ((128, 2), (112, 2))
        return {
            "decompressed": [
                PrefixTiling(keys=keys, stages=stages, apart=few, blocks=blocks)
                for keys, stages in rings
                for blocks in (None, sms)
            ],
            "latent": [self.latent_tiling()],
            "combine": [CuteTiling()],
        }

    def latent_tiling(self) -> PairTiling:
        """As in flash_mla: what fills the SMs."""
        tiles = -(-self.h * self.s // ROWS)
        sms = self.target.sm_count // 2 * 2
        if 2 * tiles * self.b <= sms:
            return PairTiling(splits=2, blocks=sms)
        if tiles == 1:
            return PairTiling(blocks=sms)
        tiles += tiles % 2
        return PairTiling(share=2, blocks=sms // tiles * tiles or sms)

    # ---- sizes -----------------------------------------------------------------------------
    def blocks(self, splits: int, share: int) -> int:
        """CTAs of the own tokens that take one item each, as those that split keys must."""
        return splits * share * -(-self.h * self.s // (ROWS * share)) * self.b

    @property
    def tile_s(self) -> int:
        """Queries of a row tile."""
        return min(1 << (self.s - 1).bit_length(), ROWS)

    @property
    def row_tiles(self) -> int:
        """Tiles of 64 rows of a head and group."""
        return -(-self.s // self.tile_s) * -(-self.group_size * self.tile_s // ROWS)

    def splits(self, tiling: PrefixTiling) -> int:
        """Pieces of the prefix: as asked for, or what takes the fewest steps in whole waves."""
        if self.prefix_splits is not None:
            return self.prefix_splits
        parts = GROUPS if tiling.apart else 1
        steps = -(-self.prefix_tokens // (tiling.keys * parts))
        items = self.h * self.groups * -(-self.row_tiles * parts // GROUPS)

        def duration(splits: int) -> int:
            waves = -(-items * splits // self.target.sm_count)
            return waves * (-(-steps // splits) + ITEM_STEPS)

        return min(range(1, max(min(steps, MAX_SPLITS), 1) + 1), key=duration)

    # ---- kernels ---------------------------------------------------------------------------
    def decompressed(self, *inputs: torch.Tensor) -> CuteKernel:
        """Attention over the prefix, into partial results."""
        q, _, qpe, _, _, key, value, prefix_pe, _ = inputs
        return self.bind(
            RopeKernel.attention,
            lambda x: RopeKernel(self.shape(x), x.blocks),
            {"q": q, "qpe": qpe, "key": key, "value": value, "kpe": prefix_pe},
            self.prefix_outputs(q, self.tiling("decompressed")),
            (self.scale / LN_2,),
            self.prefix_part(),
            "decompressed",
        )

    def prefix_outputs(self, like: torch.Tensor, tiling: PrefixTiling) -> dict[str, torch.Tensor]:
        """Uninitialized partial results of the prefix and their LSE, one per piece."""
        pieces = self.splits(tiling) * (GROUPS if tiling.apart else 1)
        rows = (pieces * self.b, self.h, self.s)
        return {
            "o_new": self.empty(*rows, self.d, device=like.device),
            "lse_new": self.empty(*rows, device=like.device, fp32=True),
        }

    def own_outputs(self, like: torch.Tensor) -> dict[str, torch.Tensor]:
        """Uninitialized latent output and its LSE."""
        rows = (self.b, self.h, self.s)
        return {
            "o_old": self.empty(*rows, self.k, device=like.device),
            "lse_old": self.empty(*rows, device=like.device, fp32=True),
        }

    def shape(self, tiling: PrefixTiling) -> Shape:
        """What the prefix's kernel is compiled for."""
        return Shape(
            self.d + self.p,
            self.d,
            tiling.keys,
            tiling.stages,
            tile_s=self.tile_s,
            apart=tiling.apart,
        )

    def latent(self, *inputs: torch.Tensor) -> CuteKernel:
        """Attention over the own tokens, by flash_mla's kernel."""
        _, q, qpe, z, kpe, *_ = inputs
        return self.bind(
            LatentKernel.attention,
            lambda x: LatentKernel(self.causal, x),
            {"q_latent": q, "qpe": qpe, "z": z, "kpe": kpe},
            self.own_outputs(q),
            (self.scale / LN_2,),
            self.own_part(),
            "latent",
        )

    def combine(self, parts: Mapping[str, torch.Tensor], wv: torch.Tensor) -> CuteKernel:
        """The latent part times Wv, and the merge of ``parts``, the outputs of all that ran."""
        o = self.empty(self.b, self.h, self.s, self.d, device=wv.device)
        lse = self.empty(self.b, self.h, self.s, device=wv.device, fp32=True)
        own, partials = "o_old" in parts, 0
        if "o_new" in parts:
            partials = parts["o_new"].shape[0] // self.b
        absent = {
            "o_old": self.empty(1, 1, 1, self.k, device=wv.device),
            "o_new": self.empty(1, 1, 1, self.d, device=wv.device),
            "lse_old": lse,
            "lse_new": lse,
        }
        parts = absent | dict(parts)
        ordered = {name: parts[name] for name in ("o_old", "lse_old", "o_new", "lse_new")}
        return self.bind(
            Combine.combine,
            lambda _: Combine(self.tile_s, own, partials, self.target.sm_count),
            {**ordered, "wv": wv},
            {"o": o, "lse": lse},
            (),
            self.combine_cost(own, partials),
            "combine",
        )

    def combine_cost(self, own: bool, partials: int) -> Cost:
        """Merging: each partial result is read once, Wv once per head."""
        rows, d, k = self.b * self.h * self.s, self.d, self.k
        elements = rows * (own * k + partials * d + d) + own * self.h * k * d
        sums = 4 * rows * (own + partials + 1)
        return Cost(2 * rows * k * d * own, self.element_bytes * elements + sums)

    def bind(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        numbers: tuple[float, ...],
        cost: Cost,
        stage: str,
    ) -> CuteKernel:
        """One launch, compiled for any extents but the widths of rows.

        Args:
            kernel_fn: The device function.
            host_fn: The host function for a tiling.
            inputs: Tensors read, in the order of the host function's parameters.
            outputs: Tensors written, likewise.
            numbers: What else it takes before the stream.
            cost: Work of the launch.
            stage: Its name.
        """
        dynamic = by_rows({**inputs, **outputs})
        if stage == "combine":
            wv = list(inputs).index("wv")
            dynamic[wv] = Dynamic(inputs["wv"], (0,))
        return CuteKernel(
            kernel_fn,
            lambda x: (host_fn(x), (*dynamic, *numbers)),
            input_tensors=inputs,
            output_tensors=outputs,
            tiling=self.tiling(stage),
            autotune_configs=self._autotune_configs()[stage],
            algorithmic_flops_bytes_fn=lambda _: cost,
            _name=stage,
        )

    def stages(self, *inputs: torch.Tensor) -> tuple[list[RuntimeObject], CuteKernel]:
        """The parts that have tokens, own first, and what merges them."""
        parts = []
        if self.own_tokens:
            parts.append(self.latent(*inputs))
        if self.prefix_tokens:
            parts.append(self.decompressed(*inputs))
        outputs = {name: x for part in parts for name, x in part.output_tensors.items()}
        return parts, self.combine(outputs, inputs[-1])

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, combine = self.stages(*inputs)
        return KernelPipeline(_name="mla_shared_prefix", stages=[*parts, combine])
