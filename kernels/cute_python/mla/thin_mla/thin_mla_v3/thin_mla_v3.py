"""Thin MLA v3: early launch (PDL) and key loads, and a flag-free merge through L2.

The start: a producer warp sets up the barriers of its own slot and loads keys at once; the queries
come behind the first tile. With ``early``, programmatic dependent launch starts a kernel while the
one before it ends; with ``ahead`` it brings its first tiles to L2 meanwhile. It reads nothing
before the other has ended, so keys may be what that one writes.

The end: no clusters and no counters. Each place in L2 holds a sentinel until a part has written it
(``kit/l2_sentinels.py``). A place has one reader, which polls until the sentinel is gone and writes
it back (``kit/thin_sentinels.py``).

So all places are empty between launches, and each launch relies on it. ``plan`` fills them, and
nothing else has to: a launch that is killed ends its context, and with it the places. Launches that
share places follow each other in one stream.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.l2_sentinels import EMPTY
from mla_var3.kernel.cute_python.kit.masks import seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    SLABS,
    SlabLoads,
    as_vector,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.thin_plan import ThinPlan, ThinTiling
from mla_var3.kernel.cute_python.kit.thin_sentinels import MOST_SLOTS, ThinSentinelKernel
from mla_var3.kernel.cute_python.kit.thin_slabs import BOTH, COLUMNS, CONSUMERS, GROUPS, ORDER
from mla_var3.runtime import KernelPlan
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: Named barrier that producers only pass by.
READY = BOTH + 1


@dataclass(frozen=True, kw_only=True)
class Tiling(ThinTiling):
    """How many rows a CTA holds, how many CTAs share their keys, and when they are launched."""

    early: bool = option(True, "launch while the kernel before ends, by dependent launch")
    ahead: bool = option(True, "launched early, bring the first tiles to L2 meanwhile")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.ahead and not self.early:
            raise TilingError("ahead=True needs early=True: only an early launch has time for it")


class Kernel(ThinSentinelKernel):
    """Loads begin before all barriers are set up, and where asked before the launch before ends."""

    def __init__(self, causal: bool, tiling: Tiling):
        super().__init__(causal, tiling.columns, tiling.parts)
        self.early = tiling.early
        self.ahead = tiling.ahead

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch; all places of the scratch are empty before it and after it."""
        scratch = (partial, partial_lse)
        self.start_on((q, qpe, z, kpe), scratch, o, lse, scale_log2, stream)

    def launch_options(self) -> dict[str, Any]:
        return {"use_pdl": self.early}

    # ---- device half -----------------------------------------------------------------------
    @cute.jit
    def set_up(self, storage, warp_index):
        """Nothing for all warps; those that wait for each other run before what comes next."""
        if const_expr(self.early):
            cute.arch.griddepcontrol_launch_dependents()

    @cute.jit
    def launched(self):
        """What the launch before has left is there from here on."""
        if const_expr(self.early):
            cute.arch.griddepcontrol_wait()

    @cute.jit
    def place(self, work):
        """Row tile, sequence and part of this CTA, its first key tile, and how many."""
        rows, queries, keys = work
        groups, item = cute.ceil_div(rows, self.columns), cute.arch.block_idx()[0]
        part, item = item % self.parts, item // self.parts
        block, batch = item % groups, item // groups
        first_row = block * self.columns
        tiles = cute.ceil_div(
            seen_by_any(first_row, queries, keys, self.causal, self.columns), KEYS
        )
        each = cute.ceil_div(tiles, self.parts)
        first = part * each
        count = cutlass.max(cutlass.min(each, tiles - first), 0)
        return block, batch, part, first, count

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def load(self, storage, q_tensors, kv_tensors, work, warp_index):
        """A warp per warpgroup."""
        for group in range_constexpr(GROUPS):
            if warp_index == CONSUMERS // 32 + group:
                self.produce(storage, q_tensors, kv_tensors, work, group)

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: the tiles of one warpgroup, slab by slab; the first also loads the queries."""
        self.prepare(storage, q_tensors, kv_tensors, group)
        block, batch, _, first, count = self.place(work)
        loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, GROUPS * SLABS))
        if const_expr(self.ahead) and group < count:
            self.fetch(loads, first + group, batch)
        self.launched()
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
            tile = first + GROUPS * i + group
            for j in range_constexpr(SLABS):
                place = group * SLABS + ORDER[j]
                cute.arch.mbarrier_wait(free + place, (i & 1) ^ 1)
                self.load_slab(loads, tile, batch, ORDER[j], place, full + place)
            if const_expr(group == 0) and i == 0:  # a tile takes longer to arrive than they do
                self.load_queries(storage, q_tensors, block, batch)

    @cute.jit
    def prepare(self, storage, q_tensors, kv_tensors, group: cutlass.Constexpr):
        """Barriers that this warp uses, so that it waits for no other before it loads."""
        load_z, _, load_kpe, _ = kv_tensors
        load_q, _, load_qpe, _ = q_tensors
        for load in (load_kpe, load_z) if group == 0 else (load_qpe, load_q):
            cpasync.prefetch_descriptor(load)
        with cute.arch.elect_one():
            for i in range_constexpr(group * SLABS, (group + 1) * SLABS):
                cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # warps
            if const_expr(group == 0):
                cute.arch.mbarrier_init(storage.q_full.data_ptr(), 1)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_warp()
        cute.arch.barrier_arrive(barrier_id=READY, number_of_threads=CONSUMERS + 32 * GROUPS)

    @cute.jit
    def fetch(self, loads, tile, batch):
        """Bring a tile to L2, where whatever is written to it meanwhile is seen."""
        with cute.arch.elect_one():
            for slab in range_constexpr(SLABS):
                rope = const_expr(ORDER[slab] == ROPE_SLAB)
                source = loads.sources[rope][None, tile, 0 if rope else ORDER[slab], batch]
                cute.prefetch(loads.atoms[rope], source)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scratch, scale_log2, o, lse, group: cutlass.Constexpr):
        """One warpgroup, from the queries to its share of the output."""
        wg = self.warpgroup(storage, scale_log2, group)
        block, batch, part, first, count = self.place(work)
        self.start(wg, work, block * self.columns)
        self.meet(READY, CONSUMERS + 32 * GROUPS)
        self.launched()
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
            cute.arch.mbarrier_wait(storage.q_full.data_ptr(), 0)
            self.scores(wg, i & 1)
            self.softmax(wg, first + GROUPS * i + group, group)
            self.accumulate(wg)
        place = (block, batch, part)
        self.epilogue(wg, storage, scratch, o, as_vector(lse), place, group)


@dataclass(frozen=True, kw_only=True)
class Plan(ThinPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
    checked = (2, None, 1, 5)

    def tiling_of(self, columns: int) -> Tiling:
        """As many parts as fit the SMs and have keys to work on."""
        return Tiling(columns=columns, parts=self.room(columns))

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_of(self.columns)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        configs = [self.tiling_of(columns) for columns in self.widths()]
        bare = [dataclasses.replace(x, ahead=False) for x in configs]
        late = [dataclasses.replace(x, early=False) for x in bare]
        alone = [dataclasses.replace(x, parts=1) for x in configs]
        return {"attention": list(dict.fromkeys([*configs, *bare, *late, *alone]))}

    def scratch(self, device: torch.device) -> dict[str, torch.Tensor]:
        """What parts write for each other, under any tiling: sentinels, fp32 values later."""
        import torch

        ctas = self.target.sm_count
        rows = {
            "partial": (ctas * GROUPS * MOST_SLOTS, 128 * 4),
            "partial_lse": (ctas * MOST_SLOTS, COLUMNS[-1]),
        }
        return {
            name: torch.full(shape, EMPTY, dtype=torch.int32, device=device)
            for name, shape in rows.items()
        }
