"""Plans of latent attention: one launch, persistent CTAs, or split-KV with a merge kernel."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_tiling import LazyTiling, PairTiling
from mla_var3.kernel.cute_python.kit.merge import Merge
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROPE, ROWS
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, by_rows
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import LatentProblem

if TYPE_CHECKING:
    import torch

#: Pairs of key tiles below which a part is not worth its merge.
MIN_PAIRS = 2


@dataclass(frozen=True, kw_only=True)
class SlabPlan(LatentProblem, KernelPlan):
    """Problem, and how a launch is bound to its tensors."""

    def validate(self) -> None:
        super().validate()
        if (self.k, self.p) != (LATENT, ROPE):
            raise PlanError(
                f"k={self.k} and p={self.p}: this design is built for k={LATENT} and p={ROPE}, "
                "which fill the registers of its two consumer warpgroups"
            )

    @property
    def row_tiles(self) -> int:
        """Tiles of 64 rows of all sequences."""
        return -(-self.h * self.s // ROWS) * self.b

    @property
    def tiles(self) -> int:
        """Tiles of 64 rows of a sequence."""
        return self.row_tiles // self.b

    def launch(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: tuple[torch.Tensor, ...],
        outputs: tuple[torch.Tensor, ...] | None = None,
    ) -> RuntimeObject:
        """Attention over ``inputs``.

        Args:
            kernel_fn: The device function; its name is the stage's.
            host_fn: The host function for a tiling.
            inputs: q, qpe, z, kpe.
            outputs: o and lse; fresh ones unless given.
        """
        outputs = outputs or self.empty_outputs(inputs[0].device)
        return self.bind(
            kernel_fn,
            host_fn,
            dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )

    def bind(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        numbers: tuple[float, ...],
        cost: Cost,
        stage: str | None = None,
    ) -> RuntimeObject:
        """One launch, compiled for any extents but the widths of rows.

        Args:
            kernel_fn: The device function.
            host_fn: The host function for a tiling.
            inputs: Tensors read, in the order of the host function's parameters.
            outputs: Tensors written, likewise.
            numbers: What else it takes before the stream.
            cost: Work of the launch.
            stage: Its name; the device function's unless given.
        """
        dynamic = by_rows({**inputs, **outputs})
        stage = stage or kernel_fn.__name__
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


@dataclass(frozen=True, kw_only=True)
class LatentPlan(SlabPlan):
    """Problem and launch of one ``kernel``."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": LazyTiling}

    kernel: ClassVar[type[LatentKernel]]
    #: The stage's name.
    stage: ClassVar[str] = "attention"

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_types[stage]()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {stage: [self.default_tiling(stage)] for stage in self.tiling_types}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        return self.attend(inputs, self.empty_outputs(inputs[0].device))

    def attend(
        self, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
    ) -> RuntimeObject:
        """Attention over q, qpe, z and kpe, into o and lse."""
        named = zip(("q", "qpe", "z", "kpe"), inputs, strict=True)
        return self.bind(
            self.kernel.attention,
            self.host,
            {**dict(named), **self.exchanged(inputs[0].device)},
            dict(zip(("o", "lse"), outputs, strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
            self.stage,
        )

    def host(self, tiling: Any) -> LatentKernel:
        """The host function for a tiling."""
        return self.kernel(self.causal, tiling)

    def exchanged(self, device: torch.device) -> dict[str, torch.Tensor]:
        """Tensors by which CTAs exchange parts of the same rows: none."""
        return {}


@dataclass(frozen=True, kw_only=True)
class PersistentPlan(LatentPlan):
    """Launch of persistent CTAs, of which two may split the keys of row tiles."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": PairTiling}
    #: Row tiles of a cluster that may share keys, and that may do so while these are split.
    shares: ClassVar[tuple[int, ...]] = (1, 2)
    split_shares: ClassVar[tuple[int, ...]] = (1,)

    #: Keys of a part in any batch; none here, where no sequence has parts.
    invariant: ClassVar[int | None] = None

    @property
    def part_count(self) -> int:
        """Outputs of a sequence."""
        return 1

    def room(self, cluster: int = 2) -> int:
        """CTAs that run at once, in clusters of that size."""
        return self.target.sm_count // 2 * 2

    def blocks(self, splits: int, share: int) -> int:
        """CTAs that take one item each: a part of the keys of neighboring row tiles."""
        return splits * share * -(-self.tiles // share) * self.b * self.part_count

    def may_split(self, share: int) -> bool:
        """Whether CTAs may split the keys of row tiles: there is room, and the bits may vary."""
        return not self.invariant and self.blocks(2, share) <= self.room(2 * share)

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "merge":
            return CuteTiling()
        if split := self.split_tilings():
            return split[0]
        tiling, sms, tiles = self.tiling_types[stage], self.room(), self.tiles
        if tiles == 1:
            return tiling(blocks=sms)
        # A multiple of the row tiles of a sequence keeps all readers of its keys in step.
        tiles += tiles % 2
        return tiling(share=2, blocks=sms // tiles * tiles or sms)

    def split_tilings(self) -> list[Tiling]:
        """Those with which CTAs split keys, the preferred one first."""
        return [
            self.tiling_types[self.stage](splits=2, share=share, blocks=self.room(2 * share))
            for share in self.split_shares
            if share <= self.tiles and self.may_split(share)
        ]

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        largest = max(self.shares)
        sms, tiling = self.target.sm_count // largest * largest, self.tiling_types[self.stage]
        whole = itertools.product(self.shares, (sms, sms // 8 * 8))
        found = self.split_tilings() + [tiling(share=share, blocks=n) for share, n in whole]
        configs = {self.stage: found, "merge": [CuteTiling()]}
        return {stage: configs[stage] for stage in self.tiling_types}


@dataclass(frozen=True, kw_only=True)
class PartsPlan(PersistentPlan):
    """Parts of the keys of a sequence, each an output of its own, and a second kernel's merge."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": PairTiling,
        "merge": CuteTiling,
    }

    parts: int | None = option(
        None,
        "clusters that share the keys of 64 rows; by default enough to fill the SMs",
        minimum=1,
    )
    invariant: int | None = option(
        None,
        "keys of a part in any batch, so that a sequence has the same bits in each; e.g. 2048",
        minimum=2 * KEYS,
    )

    def validate(self) -> None:
        super().validate()
        if self.parts and self.invariant:
            raise PlanError(f"parts={self.parts} and invariant={self.invariant}: give one of them")

    @property
    def part_count(self) -> int:
        """Parts as asked for, or as many as SMs and key tiles allow."""
        if self.invariant:
            return -(-self.t // self.invariant)
        pairs = -(-self.t // (2 * KEYS))
        room = self.target.sm_count // (2 * self.row_tiles)
        return self.parts or max(min(room, pairs // (2 * MIN_PAIRS)), 1)

    def check_plans(self) -> list[Self]:
        """The shared problems, with one part, several, more than key tiles, and of fixed length."""
        return [
            dataclasses.replace(plan, **more)
            for plan, more in zip(super().check_plans(), self.check_fields(), strict=False)
        ]

    def check_fields(self) -> Iterable[dict[str, int]]:
        """Fields of the problems that check runs, without end."""
        return itertools.cycle(({}, {"parts": 2}, {"parts": 1}, {"parts": 3}, {"invariant": 128}))

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        parts, device = self.part_count, inputs[0].device
        outputs = self.empty_outputs(device)
        if parts == 1:
            return self.attend(inputs, outputs)
        rows = (parts * self.b, self.h, self.s)
        partial = (
            self.empty(*rows, self.k, device=device, fp32=True),
            self.empty(*rows, device=device, fp32=True),
        )
        merge = self.bind(
            Merge.merge,
            lambda _: Merge(self.kernel.early_merge),
            dict(zip(("partial", "partial_lse"), partial, strict=True)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (),
            Cost(0, 4 * partial[0].numel() + self.element_bytes * outputs[0].numel()),
        )
        return KernelPipeline(_name=self.name, stages=[self.attend(inputs, partial), merge])

    @property
    def name(self) -> str:
        """The version's, as its module is called."""
        return type(self).__module__.rpartition(".")[2]

    def host(self, tiling: Any) -> LatentKernel:
        return self.kernel(self.causal, tiling, self.part_count > 1)
