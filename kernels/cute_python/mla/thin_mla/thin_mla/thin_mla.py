"""Thin MLA v0: operands swapped: keys are rows of the tensor core, the few queries its columns.

With few heads the 64 rows of a matrix instruction are mostly padding if they are queries. Here they
are keys, of which there are always enough, and the queries are its columns, of which 8 suffice:
S^T = K Q^T, then O^T = V^T P^T with the same bytes of the cache read transposed. Each of two
warpgroups owns whole tiles of keys and a whole output, so they hand nothing over until the end,
when all warpgroups of a cluster merge through each other's shared memory.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr

from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.masks import seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import KEYS, SLAB
from mla_var3.kernel.cute_python.kit.softmax import LN_2
from mla_var3.kernel.cute_python.kit.thin_cluster import ThinClusterKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import COLUMNS, GROUPS
from mla_var3.kernel.cute_python.mla.thin_mla.merge import Merge, MergeTiling
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteTiling, require_one_of
from mla_var3.workloads import Cost, option

if TYPE_CHECKING:
    import torch

#: CTAs of a cluster; each finishes an equal share of the blocks.
SPLITS = (1, 2, 4, 8)
#: Most CTAs of a cluster by default: 32 clusters of four do not fit an H200 at once.
LARGEST = 2
#: Key tiles below which a CTA is not worth its merge: one per warpgroup.
MIN_TILES = GROUPS


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """How many rows a CTA holds, and how many CTAs share their keys."""

    columns: int = option(16, "rows (head, query) of a CTA: 8, 16 or 32", minimum=8)
    splits: int = option(2, "CTAs of a cluster that split the keys (1, 2, 4 or 8)", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of(COLUMNS, columns=self.columns)
        require_one_of(SPLITS, splits=self.splits)


class Kernel(ThinClusterKernel):
    """Host and device half; parts of the keys are outputs of their own, which ``Merge`` merges."""

    def __init__(self, causal: bool, tiling: Tiling):
        super().__init__(causal, tiling.columns, tiling.splits)

    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64]."""
        self.start_on((q, qpe, z, kpe), (), o, lse, scale_log2, stream)

    def begin(self):
        cute.arch.griddepcontrol_launch_dependents()

    def work(self, o, lse, z):
        """Rows, queries, keys, sequences, and the parts of each, which are outputs of their own."""
        return o.shape[0], lse.shape[2], z.shape[0], z.shape[2], o.shape[2] // z.shape[2]

    @cute.jit
    def place(self, work):
        """Row tile, sequence and output of this CTA, its first key tile, and how many."""
        rows, queries, keys, sequences, parts = work
        groups, item = cute.ceil_div(rows, self.columns), cute.arch.cluster_idx()[0]
        block, out = item % groups, item // groups
        first_row = block * self.columns
        tiles = cute.ceil_div(
            seen_by_any(first_row, queries, keys, self.causal, self.columns), KEYS
        )
        each = cute.ceil_div(tiles, self.splits * parts)
        first = (out // sequences * self.splits + self.rank()) * each
        count = cutlass.max(cutlass.min(each, tiles - first), 0)
        return block, out % sequences, out, first, count

    # ---- end: the cluster merges -----------------------------------------------------------
    @cute.jit
    def epilogue(self, wg, storage, scratch, o, lse, place, group: cutlass.Constexpr):
        self.meet_in_cluster(wg, storage, scratch, lse, place, group)
        self.store_output(wg, storage, o, place[0], place[2], group)

    @cute.jit
    def put_lse(self, wg, scratch, lse, place, column, top, total, group: cutlass.Constexpr):
        """The cluster's LSE of a column, by one warp."""
        row = place[0] * self.columns + column
        if const_expr(group == 0):
            first = (self.rank() == 0) & (wg.warp == 0) & (wg.lane < 4)
            if first & (row < lse.shape[0]):
                value = top + cute.math.log2(total, fastmath=True)
                lse[row, place[2]] = value * LN_2

    @cute.jit
    def store_output(self, wg, storage, o, block, out, group: cutlass.Constexpr):
        """Add what the cluster has sent, and store; the warpgroups take turns."""
        place = self.quads_of(wg, storage, 0)
        one, total = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        for unit in range_constexpr(group, self.share * self.quads, GROUPS):
            mine, j = unit // self.quads, unit % self.quads
            total.fill(0.0)
            for source in range_constexpr(self.splits):
                cute.autovec_copy(place[None, j, source * self.share + mine], one)
                total.store(total.load() + one.load())
            first = (self.rank() * self.share + mine) * SLAB + 16 * wg.warp + wg.lane // 4
            for i in range_constexpr(4):
                row = block * self.columns + self.column(wg, 2 * j + i % 2)
                if row < o.shape[0]:
                    o[row, first + 8 * (i // 2), out] = total[i].to(o.element_type)


@dataclass(frozen=True, kw_only=True)
class Plan(SlabPlan):
    """Problem and launches."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": Tiling,
        "merge": MergeTiling,
    }

    parts: int | None = option(
        None,
        "clusters that share the keys of a row tile; by default enough to fill the SMs",
        minimum=1,
    )

    @property
    def columns(self) -> int:
        """Columns that hold the rows of a sequence, or of a row tile where they are more."""
        return next((n for n in COLUMNS if n >= self.h * self.s), COLUMNS[-1])

    @property
    def row_tiles(self) -> int:
        """Row tiles of all sequences under the default tiling."""
        return -(-self.h * self.s // self.columns) * self.b

    @property
    def room(self) -> int:
        """CTAs per row tile that fit the SMs and have keys to work on."""
        tiles = -(-self.t // KEYS)
        return max(min(self.target.sm_count // self.row_tiles, tiles // MIN_TILES), 1)

    @property
    def split_count(self) -> int:
        """CTAs of a cluster: as many as leave no more than an eighth of that room idle."""
        fitting = [n for n in SPLITS if n <= min(self.room, LARGEST)]
        return max(n for n in fitting if 8 * (self.room // n * n) >= 7 * self.room)

    @property
    def part_count(self) -> int:
        """Parts as asked for, or as many clusters as there is room for."""
        return self.parts or self.room // self.split_count

    def check_plans(self) -> list[Self]:
        """The shared problems: one part, several, and more than key tiles."""
        parts = itertools.cycle((None, 2, 1, 3))
        return [
            dataclasses.replace(plan, parts=n)
            for plan, n in zip(super().check_plans(), parts, strict=False)
        ]

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "merge":
            return MergeTiling()
        return Tiling(columns=self.columns, splits=self.split_count)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        columns = {self.columns, min(2 * self.columns, COLUMNS[-1])}
        return {
            "attention": [
                Tiling(columns=n, splits=splits)
                for n, splits in itertools.product(sorted(columns), SPLITS)
            ],
            "merge": [MergeTiling(early=early) for early in (False, True)],
        }

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
            lambda x: Merge(x.early),
            dict(zip(("partial", "partial_lse"), partial, strict=True)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (),
            Cost(0, 4 * partial[0].numel() + self.element_bytes * outputs[0].numel()),
        )
        return KernelPipeline(_name="thin_mla", stages=[self.attend(inputs, partial), merge])

    def attend(
        self, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
    ) -> RuntimeObject:
        """Attention over each part, into ``outputs``."""
        return self.launch(Kernel.attention, lambda x: Kernel(self.causal, x), inputs, outputs)
