"""Plans of latent attention over a paged KV cache: balanced attention, then a split-KV merge."""

from __future__ import annotations

import dataclasses
import itertools
import random
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

from mla_var3.errors import PlanError
from mla_var3.kernel.cute_python.kit.even import COLUMNS, Cut, Even
from mla_var3.kernel.cute_python.kit.fitted import Fitted
from mla_var3.kernel.cute_python.kit.fitted_cuts import MOST
from mla_var3.kernel.cute_python.kit.latent_tiling import LazyTiling
from mla_var3.kernel.cute_python.kit.paged import PagedKernel
from mla_var3.kernel.cute_python.kit.scattered import scattered_cuts, scattered_lengths
from mla_var3.kernel.cute_python.kit.slabs import KEYS, LATENT, ROPE, ROWS
from mla_var3.kernel.cute_python.kit.slots import MergeSlots
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.sound_cuts import lengths_by_chance, unsound
from mla_var3.languages.cute.signature import parameter_names
from mla_var3.runtime import KernelPipeline, KernelPlan, Metadata, RuntimeObject, Tiling, cases
from mla_var3.runtime.cute_kernel import CuteKernel, CuteTiling, Dynamic, require_one_of
from mla_var3.workloads import Cost, option
from mla_var3.workloads.mla import MlaProblem, PagedLatentProblem

if TYPE_CHECKING:
    import torch

#: Elements of 16 bits that rows and pages begin at multiples of: 16 bytes, which TMA asks for.
UNIT = 8
#: Axes of each tensor that are given at launch, and what its strides are multiples of; 0 where the
#: strides follow from the extents.
GIVEN = {
    "q": ((0, 1, 2), UNIT),
    "qpe": ((0, 1, 2), UNIT),
    "z": ((0, 1), UNIT),
    "kpe": ((0, 1), UNIT),
    "o": ((0, 1, 2), UNIT),
    "lse": ((0, 1, 2), 1),
    "table": ((0, 1), 0),
    "cache": ((0, 1), 16),
    "indices": ((0, 1), 0),
    "lengths": ((0,), 0),
    "cuts": ((0,), 0),
    "partial": ((0,), 0),
    "partial_lse": ((0,), 0),
    "places": ((0,), 0),
    "signals": ((0,), 0),
}


#: Sequences and workers of schedules that are run beside a problem's own: many workers share a
#: sequence; there are so many that threads count several each, for few workers; as many as are put
#: in order, one less, and more.
OTHERS = ((2, 132), (300, 7), (MOST - 1, 3), (MOST, 2), (MOST + 1, 3), (1100, 132))
#: Lists by chance that are cut on the host, and, of these, on the device too: as many as take
#: seconds, where one thread makes the cuts, and where all do.
ON_HOST, ON_DEVICE, ON_DEVICE_FITTED = 300, 48, 4
#: Sequences and workers of a list by chance.
LIST, WORKERS = 24, 40
#: Sequences that chance cuts, of many rows and of few, and their keys where all have as many.
SCATTERED, MORE_SCATTERED, SCATTERED_KEYS = 4, 12, 150
#: Their rows where these are to be few, else rows past a whole tile.
FEW_ROWS = 3


def tiles_of_all(sequences: Sequence[int]) -> list[int]:
    """Tiles of keys of sequences, on the host; as ``even.tiles_of`` counts them."""
    return [max(-(-keys // KEYS), 1) for keys in sequences]


def arguments(host: Any, values: Sequence[Any]) -> tuple[Any, ...]:
    """Values as the arguments that a host function is compiled for: any extents but widths."""
    names = parameter_names(host)
    return tuple(
        Dynamic(value, GIVEN[name][0], any_strides=GIVEN[name][1]) if name in GIVEN else value
        for name, value in zip(names, values, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class PagedTiling(LazyTiling):
    """How far the running maximum may lag, and what CTAs share and load at once."""

    lazy: float = option(8.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)
    share: int = option(1, "row tiles of a cluster that share their keys (1 or 2)", minimum=1)
    box: int = option(64, "keys that one load takes from a page", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of((1, 2), share=self.share)
        whole = KEYS // self.share
        require_one_of([whole >> i for i in range(7) if whole >> i], box=self.box)
        page = getattr(plan, "page", None)
        if page is not None:
            require_one_of([min(page, whole)], box=self.box)


@dataclass(frozen=True, kw_only=True)
class SlotsPlan(MlaProblem, KernelPlan):
    """Launches under the even schedule: attention, and a merge of what parts leave."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": PagedTiling,
        "merge": CuteTiling,
    }

    kernel: ClassVar[type[PagedKernel]]
    #: Cuts the work, on the device once per decoding step and on the host.
    schedule: ClassVar[Even | Fitted] = Even()
    #: Whether it puts sequences in an order of its own.
    ordered: ClassVar[bool] = False

    #: Whether chance cuts the work in the schedule's place, 0 or 1: kernels take any cuts.
    scattered: int = dataclasses.field(default=0, metadata={"hidden": True})

    @property
    def share(self) -> int:
        """CTAs that share keys."""
        return 1

    @property
    def tile_rows(self) -> int:
        """Rows of a sequence."""
        return self.h * self.s

    @property
    def row_tiles(self) -> int:
        """Tiles of 64 rows of a sequence."""
        return -(-self.tile_rows // ROWS)

    def groups(self, share: int) -> int:
        """Groups of row tiles of a sequence that share keys."""
        return -(-self.row_tiles // share)

    @abstractmethod
    def sequences(self) -> list[int]:
        """Keys of each sequence that is cut."""

    def cuts(self) -> list[tuple[int, ...]]:
        """Where the work of each worker begins and ends."""
        tiles = tiles_of_all(self.sequences())
        if self.scattered:
            return scattered_cuts(tiles, random.Random(self.slug()), ordered=self.ordered)
        return self.schedule.rows(tiles, self.workers(sum(tiles)))

    def workers(self, tiles: int) -> int:
        """Among how many workers so many tiles are cut: as the device has room for."""
        room = self.target.sm_count // (self.share * self.groups(self.share))
        return max(min(room, tiles), 1)

    def edges(self) -> list[Self]:
        """Short sequences cut by chance too, of several row tiles where the tiling takes these.

        A merge of its own has a block for each row and worker, and so few rows.
        """
        few = "merge" in self.tiling_types or getattr(self.tiling("attention"), "columns", 0)
        h = FEW_ROWS if few else ROWS + FEW_ROWS
        cut = dataclasses.replace(
            self, b=(SCATTERED if h > FEW_ROWS else MORE_SCATTERED), h=h, s=1, t=SCATTERED_KEYS,
            scattered=1,
        )  # fmt: skip
        return [one for one in (cut,) if one.is_valid()] + super().edges()

    def metadata(self, device: torch.device) -> list[Metadata]:
        """The schedule of this step, and of others."""
        chance = random.Random(cases.SEED)
        others = [
            ([max(chance.randint(-2000, 6000), 0) for _ in range(count)], workers)
            for count, workers in OTHERS
        ]
        those = ON_DEVICE_FITTED if self.ordered else ON_DEVICE
        others += [lengths_by_chance(chance, LIST, WORKERS) for _ in range(those)]
        own = [] if self.scattered else [self.scheduled(self.sequences(), self.cuts(), device)]
        return own + [
            self.scheduled(keys, self.schedule.rows(tiles_of_all(keys), workers), device)
            for keys, workers in others
        ]

    def unsound(self) -> str:
        chance = random.Random(cases.SEED)
        for _ in range(ON_HOST):
            keys, workers = lengths_by_chance(chance, LIST, WORKERS)
            tiles = tiles_of_all(keys)
            if wrong := unsound(self.schedule.rows(tiles, workers), tiles, ordered=self.ordered):
                return f"cuts of {len(keys)} sequences for {workers} workers: {wrong}"
        return ""

    def scheduled(
        self, sequences: Sequence[int], cuts: Sequence[tuple[int, ...]], device: torch.device
    ) -> Metadata:
        """The schedule's launch.

        Args:
            sequences: Keys of each.
            cuts: What the host makes of them.
            device: Where it runs.
        """
        import torch

        lengths = torch.tensor(sequences, dtype=torch.int32).to(device)
        made = torch.empty(len(cuts), COLUMNS, dtype=torch.int32, device=device)
        kernel = CuteKernel(
            self.schedule.schedule,
            lambda _: (self.schedule, arguments(self.schedule, (lengths, made))),
            input_tensors={"lengths": lengths},
            output_tensors={"cuts": made},
            tiling=CuteTiling(),
            autotune_configs=[CuteTiling()],
            algorithmic_flops_bytes_fn=lambda _: Cost(0, lengths.nbytes + made.nbytes),
            _name="schedule",
        )
        return Metadata(kernel, {"cuts": torch.tensor(cuts, dtype=torch.int32).to(device)})

    def pipeline(
        self,
        kernel_fn: Any,
        host_fn: Any,
        inputs: Mapping[str, torch.Tensor],
        numbers: tuple[float, ...],
    ) -> RuntimeObject:
        """Attention and merge.

        Args:
            kernel_fn: The device function of attention.
            host_fn: Its host function for a tiling.
            inputs: Tensors that it reads, in the order of its parameters.
            numbers: What it takes before the numbers that both stages take.
        """
        import torch

        device, rows, share = inputs["q"].device, self.cuts(), self.share
        # Made once per decoding step, for all layers: not a part of what is timed.
        cuts = torch.zeros(len(rows), COLUMNS, dtype=torch.int32)
        cuts[:, : len(rows[0])] = torch.tensor(rows, dtype=torch.int32)
        cuts = cuts.to(device)
        slots = 2 * len(rows) * self.groups(share) * share
        partial = (
            self.empty(slots, ROWS, LATENT, device=device, fp32=True),
            self.empty(slots, ROWS, device=device, fp32=True),
        )
        left = dict(zip(("partial", "partial_lse"), partial, strict=True))
        made = dict(zip(("o", "lse"), self.empty_outputs(device), strict=True))
        both = (LN_2, float("-inf"))
        attention = self.bind(
            "attention",
            kernel_fn,
            host_fn,
            {**inputs, "cuts": cuts},
            {**left, **made},
            (*numbers, *both),
            self._algorithmic_flops_bytes(),
        )
        merge = self.bind(
            "merge",
            MergeSlots.merge_slots,
            lambda _: MergeSlots(share),
            {"cuts": cuts, **left},
            made,
            both,
            Cost(0, 4 * self.parts_of(rows) * self.tile_rows * (LATENT + 1)),
        )
        name = type(self).__module__.rpartition(".")[2]
        return KernelPipeline(_name=name, stages=[attention, merge])

    @staticmethod
    def parts_of(cuts: Sequence[tuple[int, ...]]) -> int:
        """Parts that workers leave of sequences that are cut."""
        return sum(row[Cut.LAST] - i + 1 for i, row in enumerate(cuts) if row[Cut.LAST] > i)

    def bind(
        self,
        stage: str,
        kernel_fn: Any,
        host_fn: Any,
        inputs: Mapping[str, torch.Tensor],
        outputs: Mapping[str, torch.Tensor],
        numbers: tuple[float, ...],
        cost: Cost,
    ) -> RuntimeObject:
        """One launch, compiled for any extents but the widths of rows.

        Args:
            stage: Its name.
            kernel_fn: The device function.
            host_fn: The host function for a tiling.
            inputs: Tensors read, in the order of the host function's parameters.
            outputs: Tensors written, likewise.
            numbers: What else it takes before the stream.
            cost: Work of the launch.
        """
        shaped = {**outputs, "lse": outputs["lse"].unsqueeze(-1)}  # a last axis with stride 1
        values = (*inputs.values(), *shaped.values(), *numbers)

        def launch(tiling: Any) -> tuple[Any, tuple[Any, ...]]:
            host = host_fn(tiling)
            return host, arguments(host, values)

        return CuteKernel(
            kernel_fn,
            launch,
            input_tensors=inputs,
            output_tensors=outputs,
            tiling=self.tiling(stage),
            autotune_configs=self._autotune_configs()[stage],
            algorithmic_flops_bytes_fn=lambda _: cost,
            _name=stage,
        )


@dataclass(frozen=True, kw_only=True)
class PagedPlan(SlotsPlan, PagedLatentProblem):
    """Problem and launches; ``kernel`` is the version's."""

    def validate(self) -> None:
        super().validate()
        if (self.k, self.p) != (LATENT, ROPE):
            raise PlanError(
                f"k={self.k} and p={self.p}: this design is built for k={LATENT} and p={ROPE}, "
                "which fill the registers of its two consumer warpgroups"
            )
        small = (1, 2, 4, 8, 16, 32)
        if self.page is not None and self.page not in small and self.page % KEYS:
            sizes = ", ".join(map(str, small))
            raise PlanError(f"page={self.page} is neither one of {sizes} nor a multiple of {KEYS}")

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "merge":
            return CuteTiling()
        return self.sharing(min(self.row_tiles, 2))

    def sharing(self, share: int) -> PagedTiling:
        """The tiling with which so many row tiles share their keys."""
        whole = KEYS // share
        return PagedTiling(share=share, box=min(self.page or whole, whole))

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        shares = range(1, min(self.row_tiles, 2) + 1)
        return {"attention": [self.sharing(n) for n in shares], "merge": [CuteTiling()]}

    def check_plans(self) -> list[Self]:
        """The shared problems, in pages of several sizes and with lengths of each kind."""
        pages = itertools.cycle(
            ((64, "ragged"), (None, None), (32, "one"), (128, None), (16, "ragged"), (1, None))
        )
        return [
            dataclasses.replace(plan, page=page, lengths=lengths)
            for plan, (page, lengths) in zip(super().check_plans(), pages, strict=False)
        ]

    def drawn(self) -> list[int]:
        if self.scattered:
            return scattered_lengths(self.b, KEYS, random.Random(self.slug()))
        return super().drawn()

    def sequences(self) -> list[int]:
        return self.drawn()

    @property
    def share(self) -> int:
        share: int = self.tiling("attention").share
        return share

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        names = ("q", "qpe", "z", "kpe", "table", "lengths")
        return self.pipeline(
            self.kernel.paged_attention,
            lambda x: self.kernel(x.lazy, x.share, x.box),
            dict(zip(names, inputs, strict=True)),
            (self.s if self.causal else 0, self.scale / LN_2),
        )
