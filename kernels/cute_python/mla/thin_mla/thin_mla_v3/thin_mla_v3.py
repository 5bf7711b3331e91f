"""Thin MLA v3: the start and the end wait for less.

The start: a producer warp sets up the barriers of its own slot and loads keys at once; the queries
come behind the first tile. With ``early``, programmatic dependent launch starts a kernel while the
one before it ends; with ``ahead`` it brings its first tiles to L2 meanwhile. It reads nothing
before the other has ended, so keys may be what that one writes.

The end: no clusters and no counters. What a part writes for the others says by itself that it is
there (words.py): of each word there is one reader, which asks until the word is not empty and
leaves it empty again.

So all places are empty between launches, and each launch relies on it. ``plan`` fills them, and
nothing else has to: a launch that is killed ends its context, and with it the places. Launches that
share places follow each other in one stream.
"""

from __future__ import annotations

import dataclasses
import itertools
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Self

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all, seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    SLAB,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    as_keys,
    as_rows,
    as_vector,
    shared_slabs,
    slab_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST, reduced
from mla_var3.kernel.cute_python.mla.thin_mla.common import thin_layout, thin_parts, thin_slabs
from mla_var3.kernel.cute_python.mla.thin_mla.words import EMPTY, any_empty, clear, get, put
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import CuteTiling, require_one_of
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

#: Consumer warpgroups, each with a slot for a tile of keys and a warp that refills it.
GROUPS = 2
CONSUMERS = 128 * GROUPS
#: An output of 32 columns needs more registers than a launch gives; they move by warpgroups.
WIDE, CONSUMER_REGISTERS, PRODUCER_REGISTERS = 32, 240, 24
#: Named barriers: one per warpgroup, one of both, and one that producers only pass by (0 is the
#: CTA's own).
OWN, BOTH, READY = 1, 1 + GROUPS, 2 + GROUPS
#: Blocks of 64 latent dimensions, which are the rows of the output's products.
BLOCKS = ROPE_SLAB
#: The order in which slabs of a tile land: rope first, since the scores alone need it.
ORDER = (ROPE_SLAB, *range(ROPE_SLAB))
#: Columns of a product: rows (head, query) of a CTA, padded.
COLUMNS = (8, 16, 32)
#: Columns of a unit: what a warpgroup finishes of a block of the output, four values per thread.
UNIT = 8
#: Blocks that a warpgroup keeps of what both have, and the most units of them.
HALF_BLOCKS = BLOCKS // GROUPS
MOST_SLOTS = HALF_BLOCKS * COLUMNS[-1] // UNIT
#: Parts whose units a thread asks for at once.
AT_ONCE = 8
#: Key tiles below which a CTA is not worth its merge: one per warpgroup.
MIN_TILES = GROUPS


class Unit(NamedTuple):
    """What a thread has of a unit that it finishes: two dimensions of two columns."""

    slot: Int32  # number of the unit among those of the warpgroup
    values: cute.Tensor  # [4] under the maximum of its column
    top: cute.Tensor  # [2] maxima of the LSEs, in units of log2
    total: cute.Tensor  # [2] sums of their exponentials under it


class Given(NamedTuple):
    """What another part writes of a unit: where, and words in registers."""

    unit: Unit
    at: cute.Pointer
    lse_at: cute.Pointer
    values: cute.Tensor  # [4] fp32 as bits
    lse: cute.Tensor  # [2]


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors hold its thread's columns."""

    full: cute.Pointer  # barriers of the slot's slabs
    free: cute.Pointer
    k: cute.Tensor  # operand A: [64 keys, 64] x 9 slabs of the slot
    q: cute.Tensor  # operand B: [columns, 64] x 9 slabs
    v: cute.Tensor  # operand A: [64, 64 keys] x 9 slabs, the same bytes as k
    p: cute.Tensor  # operand B: [columns, 64 keys]
    weights: cute.Tensor  # where the weights go, as [64 keys, columns]
    store: cute.TiledCopy  # registers to shared memory by stmatrix
    store_thread: cute.ThrCopy
    by_warp: cute.Tensor  # shared [4 warps, columns]: maxima, then sums
    score: cute.Tensor  # [64 keys, columns] fp32 accumulator
    out: tuple[cute.Tensor, ...]  # 8 x [64, columns] fp32 accumulators
    top: cute.Tensor
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the thread's own keys
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all rows do
    scale_log2: Float32
    thread: Int32
    warp: Int32
    lane: Int32


@dataclass(frozen=True, kw_only=True)
class Tiling(CuteTiling):
    """How many rows a CTA holds, how many CTAs share their keys, and when they are launched."""

    columns: int = option(16, "rows (head, query) of a CTA: 8, 16 or 32", minimum=8)
    parts: int = option(1, "CTAs that share the keys of a row tile", minimum=1)
    early: bool = option(True, "launch while the kernel before ends, by dependent launch")
    ahead: bool = option(True, "launched early, bring the first tiles to L2 meanwhile")

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of(COLUMNS, columns=self.columns)
        if self.ahead and not self.early:
            raise TilingError("ahead=True needs early=True: only an early launch has time for it")
        if self.parts > 1 and isinstance(plan, Plan):
            tiles, sms = plan.tiles_of(self.columns), plan.target.sm_count
            if (ctas := tiles * self.parts) > sms:
                raise TilingError(
                    f"parts={self.parts} lets {tiles} row tiles * {self.parts} parts = {ctas} "
                    f"CTAs wait for each other, and {sms} run at once"
                )


@dataclass(frozen=True, kw_only=True)
class Plan(SlabPlan):
    """Problem and launch of v3."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    @property
    def columns(self) -> int:
        """Columns that hold the rows of a sequence, or of a row tile where they are more."""
        return next((n for n in COLUMNS if n >= self.h * self.s), COLUMNS[-1])

    def tiles_of(self, columns: int) -> int:
        """Row tiles of all sequences."""
        return -(-self.h * self.s // columns) * self.b

    def tiling_of(self, columns: int) -> Tiling:
        """As many parts as fit the SMs and have keys to work on."""
        tiles = -(-self.t // KEYS)
        parts = min(self.target.sm_count // self.tiles_of(columns), tiles // MIN_TILES)
        return Tiling(columns=columns, parts=max(parts, 1))

    def check_plans(self) -> list[Self]:
        """The shared problems: several parts, one, and more than key tiles."""
        parts = itertools.cycle((2, None, 1, 5))
        return [
            plan if n is None else plan.with_parts(n)
            for plan, n in zip(super().check_plans(), parts, strict=False)
        ]

    def with_parts(self, parts: int) -> Self:
        """The same problem, with so many parts of its default tiling, or what the SMs take."""
        (stage,) = self.tiling_types
        tiling = self.default_tiling(stage)
        most = self.target.sm_count // self.tiles_of(tiling.columns)
        tiling = dataclasses.replace(tiling, parts=max(min(parts, most), 1))
        return dataclasses.replace(self, tilings={stage: tiling})

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_of(self.columns)

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        columns = sorted({self.columns, min(2 * self.columns, COLUMNS[-1])})
        configs = [self.tiling_of(n) for n in columns]
        bare = [dataclasses.replace(x, ahead=False) for x in configs]
        late = [dataclasses.replace(x, early=False) for x in bare]
        alone = [dataclasses.replace(x, parts=1) for x in configs]
        return {"attention": list(dict.fromkeys([*configs, *bare, *late, *alone]))}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        device = inputs[0].device
        tensors = dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True))
        return self.bind(
            Kernel.attention,
            lambda x: Kernel(self.causal, x.columns, x.parts, x.early, x.ahead),
            tensors | self.scratch(device),
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )

    def scratch(self, device: torch.device) -> dict[str, torch.Tensor]:
        """What parts write for each other, under any tiling: empty words, fp32 values later."""
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


class Kernel:
    """Host and device half for one mask; the element type is that of q."""

    def __init__(self, causal: bool, columns: int, parts: int, early: bool, ahead: bool):
        self.causal = causal
        self.columns = columns
        self.parts = parts
        self.early = early
        self.ahead = ahead
        #: Of a thread: columns, and groups of four values of one block of the output.
        self.mine = columns // 4
        self.quads = columns // UNIT
        #: Units that a warpgroup keeps; the parts take turns to finish one.
        self.slots = HALF_BLOCKS * self.quads
        self.readers = min(parts, self.slots)
        self.wide = columns >= WIDE

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
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64] and the scratch.

        All words of the scratch are empty before the launch and after it.
        """
        dtype = self.dtype = q.element_type
        n = self.columns

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, 1]
            full: cute.struct.MemRange[cutlass.Int64, GROUPS * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, GROUPS * SLABS]
            by_warp: cute.struct.MemRange[Float32, GROUPS * 4 * n]
            results: cute.struct.MemRange[Float32, GROUPS * 2 * n]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * n * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * SLABS * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * n * SLAB], 1024]

        self.storage = Storage
        load = cpasync.CopyBulkTensorTileG2SOp()
        thin = cute.slice_(thin_layout(dtype, n, 1), (None, None, 0))
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_rows(x), thin, (n, SLAB)) for x in (q, qpe)
        ]
        slab = cute.slice_(slab_layout(dtype, 1), (None, None, 0))
        load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(load, as_keys(x), slab, (KEYS, SLAB)) for x in (z, kpe)
        ]
        _, h, s, _ = q.shape
        loads = (*load_q, *load_qpe, *load_z, *load_kpe)
        self.attention(*loads, partial, partial_lse, as_rows(o), lse, scale_log2).launch(
            grid=(cute.ceil_div(h * s, n) * o.shape[0] * self.parts, 1, 1),
            block=(CONSUMERS + (128 if self.wide else 32 * GROUPS), 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
            use_pdl=self.early,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def attention(
        self,
        load_q: cute.CopyAtom,
        q: cute.Tensor,
        load_qpe: cute.CopyAtom,
        qpe: cute.Tensor,
        load_z: cute.CopyAtom,
        z: cute.Tensor,
        load_kpe: cute.CopyAtom,
        kpe: cute.Tensor,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (parts * row tiles * sequences)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        if const_expr(self.early):  # all that wait for each other run before what comes next
            cute.arch.griddepcontrol_launch_dependents()

        work = (o.shape[0], lse.shape[2], z.shape[0])  # rows, queries, keys
        if warp_index >= CONSUMERS // 32:
            if const_expr(self.wide):
                cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(GROUPS):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, work, group)
        else:
            if const_expr(self.wide):
                cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            scratch = (partial, partial_lse)
            for group in range_constexpr(GROUPS):
                if warp_index // 4 == group:
                    self.consume(storage, work, scratch, scale_log2, o, lse, group)

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

    @cute.jit
    def load_slab(self, loads, tile, batch, slab: cutlass.Constexpr, place, full):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, SLAB_BYTES)
        loads.issue(slab, tile, batch, place, full, cache_policy=cutlass.Int64(EVICT_FIRST))

    @cute.jit
    def load_queries(self, storage, q_tensors, block, batch):
        load_q, q, load_qpe, qpe = q_tensors
        n, full = self.columns, storage.q_full.data_ptr()
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        target, latent = thin_parts(load_q, s_q, q, n)
        _, rope = thin_parts(load_qpe, s_q, qpe, n)
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full, SLABS * n * SLAB * 2)
        place = target[None, ROPE_SLAB]
        cute.copy(load_qpe, rope[None, block, 0, batch], place, tma_bar_ptr=full)
        for slab in range_constexpr(ROPE_SLAB):
            source, place = latent[None, block, slab, batch], target[None, slab]
            cute.copy(load_q, source, place, tma_bar_ptr=full)

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

    @cute.jit
    def scores(self, wg, phase):
        """S = K Q^T, slab by slab as each one lands."""
        mma = self.score_mma()
        for j in range_constexpr(SLABS):
            slab = ORDER[j]
            cute.arch.mbarrier_wait(wg.full + slab, phase)
            warpgroup.fence()
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, j != 0 or step != 0)
                k, q = wg.k[None, None, step, slab], wg.q[None, None, step, slab]
                cute.gemm(mma, wg.score, k, q, wg.score)
            warpgroup.commit_group()
        warpgroup.wait_group(0)
        self.release(wg, ROPE_SLAB)

    @cute.jit
    def accumulate(self, wg):
        """O += V^T P^T, a block of 64 dimensions per slab, each given back when it is done."""
        mma = self.output_mma()
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for slab in range_constexpr(BLOCKS):
            for step in range_constexpr(4):
                v, p = wg.v[None, None, step, slab], wg.p[None, None, step]
                cute.gemm(mma, wg.out[slab], v, p, wg.out[slab])
            warpgroup.commit_group()
        for slab in range_constexpr(BLOCKS):
            warpgroup.wait_group(BLOCKS - 1 - slab)
            self.release(wg, slab)

    @cute.jit
    def softmax(self, wg, tile, group: cutlass.Constexpr):
        """Scores to weights under a running maximum, and what older sums are worth under it."""
        if (tile + 1) * KEYS > wg.limit[self.mine]:
            self.mask(wg, tile)
        for c in range_constexpr(self.mine):
            upper, lower = self.places(c)
            wg.top[c] = cute.arch.fmax(wg.score[upper], wg.score[lower])
        self.over_keys(wg, wg.top, cute.arch.fmax, group)
        for c in range_constexpr(self.mine):
            old = wg.row_max[c]
            new = cute.arch.fmax(old, wg.top[c] * wg.scale_log2)
            wg.shrink[c] = cute.math.exp2(old - new, fastmath=True)
            wg.row_max[c] = new
            wg.row_sum[c] = wg.row_sum[c] * wg.shrink[c]
            for i in self.places(c):
                weight = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
                wg.score[i] = weight
                wg.row_sum[c] = wg.row_sum[c] + weight
        rounded = cute.make_rmem_tensor(wg.score.layout, self.dtype)
        rounded.store(wg.score.load().to(self.dtype))
        cute.copy(wg.store, wg.store_thread.retile(rounded), wg.weights)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.rescale(wg)
        self.meet(OWN + group, 128)

    def places(self, c):
        """Where a thread's two scores of its column ``c`` are, eight keys apart."""
        return 4 * (c // 2) + c % 2, 4 * (c // 2) + c % 2 + 2

    def column(self, wg, c):
        """The column that a thread's ``c``-th is."""
        return 8 * (c // 2) + 2 * (wg.lane % 4) + c % 2

    @cute.jit
    def over_keys(self, wg, values, combine: cutlass.Constexpr, group: cutlass.Constexpr):
        """Combine the threads' values of each column over all keys of the warpgroup."""
        for c in range_constexpr(self.mine):
            for distance in (4, 8, 16):
                other = cute.arch.shuffle_sync_bfly(values[c], distance)
                values[c] = combine(values[c], other)
            if wg.lane < 4:
                wg.by_warp[wg.warp, self.column(wg, c)] = values[c]
        self.meet(OWN + group, 128)
        for c in range_constexpr(self.mine):
            column = self.column(wg, c)
            values[c] = reduced(combine, [wg.by_warp[w, column] for w in range(4)])

    @cute.jit
    def mask(self, wg, tile):
        """Hide the keys that a row does not see."""
        for c in range_constexpr(self.mine):
            for r in range_constexpr(2):
                key = tile * KEYS + 16 * wg.warp + wg.lane // 4 + 8 * r
                i = self.places(c)[r]
                wg.score[i] = -Float32.inf if key >= wg.limit[c] else wg.score[i]

    @cute.jit
    def rescale(self, wg):
        """Bring the output under the new maximum; skipped where no column has moved."""
        moved = reduced(operator.mul, [wg.shrink[c] for c in range(self.mine)])
        if cute.arch.vote_any_sync(moved != Float32(1.0)):
            self.multiply(wg, wg.shrink)

    @cute.jit
    def multiply(self, wg, factors):
        for block in range_constexpr(BLOCKS):
            for c in range_constexpr(self.mine):
                for i in self.places(c):
                    wg.out[block][i] = wg.out[block][i] * factors[c]

    @cute.jit
    def release(self, wg, slab: cutlass.Constexpr):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free + slab)

    @cute.jit
    def meet(self, barrier: cutlass.Constexpr, threads: cutlass.Constexpr):
        cute.arch.barrier(barrier_id=barrier, number_of_threads=threads)

    # ---- set-up of a consumer --------------------------------------------------------------
    def score_mma(self):
        """Scores [64 keys, columns]: K and Q both K-major."""
        k_major = warpgroup.OperandMajorMode.K
        return self.mma(k_major, k_major)

    def output_mma(self):
        """Output [64 dimensions, columns]: the latent slab MN-major, weights K-major."""
        return self.mma(warpgroup.OperandMajorMode.MN, warpgroup.OperandMajorMode.K)

    def mma(self, a_major, b_major):
        return hopper_helpers.make_trivial_tiled_mma(
            self.dtype, self.dtype, a_major, b_major, Float32, (1, 1, 1), (SLAB, self.columns)
        )

    @cute.jit
    def warpgroup(self, storage, scale_log2, group: cutlass.Constexpr):
        """Views and registers of one warpgroup."""
        thread, n = cute.arch.thread_idx()[0] % 128, self.columns
        s_q = thin_slabs(storage.q, self.dtype, n, SLABS)
        s_p = thin_slabs(storage.weights, self.dtype, n, GROUPS)[None, None, group]
        transposed = warpgroup.make_smem_layout_atom(
            warpgroup.SmemLayoutAtomKind.MN_SW128, self.dtype
        )
        s_k = self.slot(storage, slab_layout(self.dtype, SLABS), group)
        s_v = self.slot(
            storage, cute.tile_to_shape(transposed, (SLAB, KEYS, SLABS), order=(0, 1, 2)), group
        )
        score, out = self.score_mma(), self.output_mma()
        in_score, in_out = score.get_slice(thread), out.get_slice(thread)
        matrices = cute.make_copy_atom(warp.StMatrix8x8x16bOp(True, min(n // 4, 4)), self.dtype)
        store = cute.make_tiled_copy_C(matrices, score)
        own = cute.make_tensor(s_p.iterator, cute.select(s_p.layout, mode=[1, 0]))
        vector = cute.make_layout(self.mine)
        by_warp = storage.by_warp.get_tensor(cute.make_layout((4, n, GROUPS), stride=(n, 1, 4 * n)))
        return Warpgroup(
            full=storage.full.data_ptr() + group * SLABS,
            free=storage.free.data_ptr() + group * SLABS,
            k=in_score.make_fragment_A(in_score.partition_A(s_k)),
            q=in_score.make_fragment_B(in_score.partition_B(s_q)),
            v=in_out.make_fragment_A(in_out.partition_A(s_v)),
            p=in_out.make_fragment_B(in_out.partition_B(s_p)),
            weights=store.get_slice(thread).partition_D(own),
            store=store,
            store_thread=store.get_slice(thread),
            by_warp=by_warp[None, None, group],
            score=in_score.make_fragment_C(in_score.partition_shape_C((KEYS, n))),
            out=tuple(
                in_out.make_fragment_C(in_out.partition_shape_C((SLAB, n))) for _ in range(BLOCKS)
            ),
            top=cute.make_rmem_tensor(vector, Float32),
            row_max=cute.make_rmem_tensor(vector, Float32),
            row_sum=cute.make_rmem_tensor(vector, Float32),
            shrink=cute.make_rmem_tensor(vector, Float32),
            limit=cute.make_rmem_tensor(cute.make_layout(self.mine + 1), Int32),
            scale_log2=scale_log2,
            thread=thread,
            warp=thread // 32,
            lane=thread % 32,
        )

    def slot(self, storage, layout, group):
        """The slabs of a warpgroup's tile, in one of two layouts of the same bytes."""
        start = storage.kv.data_ptr() + group * SLABS * SLAB * SLAB
        return cute.make_tensor(cute.recast_ptr(start, layout.inner, self.dtype), layout.outer)

    @cute.jit
    def start(self, wg, work, first_row):
        """Empty sums, and the keys that the thread's rows see."""
        _, queries, keys = work
        for block in range_constexpr(BLOCKS):
            wg.out[block].fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for c in range_constexpr(self.mine):
            wg.limit[c] = seen(first_row + self.column(wg, c), queries, keys, self.causal)
        wg.limit[self.mine] = seen_by_all(first_row, queries, keys, self.causal)

    # ---- epilogue: the warpgroups merge, then the parts ------------------------------------
    @cute.jit
    def epilogue(self, wg, storage, scratch, o, lse, place, group: cutlass.Constexpr):
        self.over_keys(wg, wg.row_sum, operator.add, group)
        self.hand_over(wg, storage, group)
        self.meet(BOTH, CONSUMERS)
        self.join(wg, storage, group)
        _, _, part = place
        if const_expr(self.parts > 1):
            self.give(wg, scratch, part, group)
            self.meet(BOTH, CONSUMERS)  # who asks already would slow down who still writes
        if part < self.readers:  # as there may be more parts than units to finish
            units = [self.own_unit(wg, part, k, group) for k in range(self.slots_of_part)]
            if const_expr(self.parts > 1):
                self.take(wg, scratch, units, part, group)
            for unit in units:
                self.store_unit(wg, unit, o, lse, place, group)
            if const_expr(self.parts > 1):
                self.meet(BOTH, CONSUMERS)  # both have read all LSEs
                self.clear_lse(scratch, part)

    def results(self, storage):
        """Maximum and sum of each column, by warpgroup: [groups, 2, columns]."""
        n = self.columns
        return storage.results.get_tensor(cute.make_layout((GROUPS, 2, n), stride=(2 * n, n, 1)))

    def handed(self, wg, storage, group):
        """Four values of this thread by quad and block, where warpgroup ``group`` had its keys."""
        values = cute.recast_ptr(storage.kv.data_ptr() + group * SLABS * SLAB * SLAB, dtype=Float32)
        shape = (4, self.quads, HALF_BLOCKS)
        return cute.make_tensor(
            values + wg.thread * 4, cute.make_layout(shape, stride=(1, 512, 512 * self.quads))
        )

    def quad(self, wg, block, j):
        return cute.make_tensor(wg.out[block].iterator + 4 * j, cute.make_layout(4))

    @cute.jit
    def hand_over(self, wg, storage, group: cutlass.Constexpr):
        """The half that the other warpgroup keeps, to where the own keys were, and the sums."""
        results, place = self.results(storage), self.handed(wg, storage, group)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                given = self.quad(wg, (1 - group) * HALF_BLOCKS + block, j)
                cute.autovec_copy(given, place[None, j, block])
        if (wg.warp == 0) & (wg.lane < 4):
            for c in range_constexpr(self.mine):
                results[group, 0, self.column(wg, c)] = wg.row_max[c]
                results[group, 1, self.column(wg, c)] = wg.row_sum[c]

    @cute.jit
    def join(self, wg, storage, group: cutlass.Constexpr):
        """Merge the kept half of both, divided by the sums of both; ``wg.top`` is their LSE."""
        results, place = self.results(storage), self.handed(wg, storage, 1 - group)
        theirs = cute.make_rmem_tensor_like(wg.shrink)
        for c in range_constexpr(self.mine):
            peer_max, peer_sum = [results[1 - group, i, self.column(wg, c)] for i in range(2)]
            top = cute.arch.fmax(wg.row_max[c], peer_max)
            wg.shrink[c] = cute.math.exp2(wg.row_max[c] - top, fastmath=True)
            theirs[c] = cute.math.exp2(peer_max - top, fastmath=True)
            total = wg.row_sum[c] * wg.shrink[c] + peer_sum * theirs[c]
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            wg.shrink[c], theirs[c] = wg.shrink[c] * inverse, theirs[c] * inverse
            wg.top[c] = top + cute.math.log2(total, fastmath=True)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(HALF_BLOCKS):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(place[None, j, block], other)
                own = self.quad(wg, group * HALF_BLOCKS + block, j)
                for i in range_constexpr(4):
                    c = 2 * j + i % 2
                    own[i] = own[i] * wg.shrink[c] + other[i] * theirs[c]

    # ---- the parts of a row tile, which merge through L2 -------------------------------------
    @property
    def slots_of_part(self):
        """Units per warpgroup that a part finishes, at most."""
        return -(-self.slots // self.parts)

    def member(self, part):
        """Place in the scratch tensors of a part of this CTA's row tile."""
        return cute.arch.block_idx()[0] // self.parts * self.parts + part

    def unit_of(self, wg, scratch, part, slot, group):
        """Where ``part`` writes four values of this thread, for the one that finishes the unit."""
        partial, _ = scratch
        row = (self.member(part) * self.slots + slot) * GROUPS + group
        return cute.domain_offset((row, 4 * wg.thread), partial).iterator

    def lse_of(self, scratch, part, reader, column):
        """Where ``part`` writes the LSE of ``column`` and those after it for ``reader``."""
        _, partial_lse = scratch
        row = self.member(part) * self.readers + reader
        return cute.domain_offset((row, column), partial_lse).iterator

    @cute.jit
    def give(self, wg, scratch, part, group: cutlass.Constexpr):
        """Write the LSE, and the units that other parts finish."""
        for reader in range_constexpr(self.readers):
            turn = const_expr(reader // 4 % GROUPS == group)
            if turn & (part != reader) & (wg.warp == reader % 4) & (wg.lane < 4):
                for j in range_constexpr(self.quads):
                    pair = cute.make_tensor(wg.top.iterator + 2 * j, cute.make_layout(2))
                    put(self.lse_of(scratch, part, reader, self.column(wg, 2 * j)), pair)
        for slot in range_constexpr(self.slots):
            if part != slot % self.parts:
                put(self.unit_of(wg, scratch, part, slot, group), self.kept(wg, slot, group))

    def kept(self, wg, slot, group):
        """Four values of a unit: the quads of a column change slowest."""
        return self.quad(wg, group * HALF_BLOCKS + slot % HALF_BLOCKS, slot // HALF_BLOCKS)

    @cute.jit
    def own_unit(self, wg, part, k: cutlass.Constexpr, group: cutlass.Constexpr):
        """The ``k``-th unit that this part finishes, with what it has of it itself."""
        slot = part + k * self.parts
        if const_expr((k + 1) * self.parts > self.slots):
            # The last one twice, rather than one that does not exist.
            slot = slot if slot < self.slots else slot - self.parts
        values = cute.make_rmem_tensor(4, Float32)
        top, total = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
        values.fill(0.0)
        top.fill(0.0)
        for s in range_constexpr(self.slots):
            for i in range_constexpr(4):
                values[i] = self.kept(wg, s, group)[i] if slot == s else values[i]
        for j in range_constexpr(self.quads):
            for i in range_constexpr(2):
                top[i] = wg.top[2 * j + i] if slot // HALF_BLOCKS == j else top[i]
        for i in range_constexpr(2):
            own = top[i]
            # Rows that see no key: any weight of their zeros is right, but none is a NaN.
            top[i] = cute.arch.fmax(own, Float32(LOWEST))
            total[i] = cute.math.exp2(own - top[i], fastmath=True)
            values[i], values[i + 2] = values[i] * total[i], values[i + 2] * total[i]
        return Unit(slot=slot, values=values, top=top, total=total)

    @cute.jit
    def take(self, wg, scratch, units, part, group: cutlass.Constexpr):
        """Add what the other parts have written, some at once."""
        whole, rest = divmod(self.parts - 1, AT_ONCE)
        for i in cutlass.range(whole, unroll=1):
            self.add_parts(wg, scratch, units, part, 1 + i * AT_ONCE, AT_ONCE, group)
        if const_expr(rest):
            self.add_parts(wg, scratch, units, part, 1 + whole * AT_ONCE, rest, group)

    @cute.jit
    def add_parts(
        self,
        wg,
        scratch,
        units,
        part,
        first,
        count: cutlass.Constexpr,
        group: cutlass.Constexpr,
    ):
        """Add the units of ``count`` parts, as soon as all of their words are there."""
        sources = [(part + first + i) % self.parts for i in range(count)]
        given = [self.given(wg, scratch, unit, i, part, group) for i in sources for unit in units]
        missing = cutlass.Boolean(True)
        while missing:
            for one in given:
                get(one.at, one.values)
                get(one.lse_at, one.lse)
            empty = any_empty([x for one in given for x in (one.values, one.lse)])
            missing = cute.arch.vote_any_sync(empty)  # no lane goes ahead of its warp
        for one in given:
            clear(one.at, 4)
            self.add(one)

    def given(self, wg, scratch, unit, source, part, group):
        """Where ``source`` writes what ``part`` takes of a unit, and registers for it."""
        column = UNIT * (unit.slot // HALF_BLOCKS) + 2 * (wg.lane % 4)
        return Given(
            unit=unit,
            at=self.unit_of(wg, scratch, source, unit.slot, group),
            lse_at=self.lse_of(scratch, source, part, column),
            values=cute.make_rmem_tensor(4, Int32),
            lse=cute.make_rmem_tensor(2, Int32),
        )

    @cute.jit
    def add(self, given):
        """Add a part's four values, under a maximum that its LSE may raise."""
        unit = given.unit
        values, lse = (cute.recast_tensor(x, Float32) for x in (given.values, given.lse))
        for i in range_constexpr(2):
            top = cute.arch.fmax(unit.top[i], lse[i])
            old = cute.math.exp2(unit.top[i] - top, fastmath=True)
            weight = cute.math.exp2(lse[i] - top, fastmath=True)
            unit.top[i], unit.total[i] = top, unit.total[i] * old + weight
            for at in (i, i + 2):
                unit.values[at] = unit.values[at] * old + values[at] * weight

    @cute.jit
    def store_unit(self, wg, unit, o, lse, place, group: cutlass.Constexpr):
        """Store a unit, two dimensions of two rows; one warp of a column's first unit the LSE."""
        block, batch, _ = place
        dimension = (group * HALF_BLOCKS + unit.slot % HALF_BLOCKS) * SLAB
        for i in range_constexpr(2):
            row = block * self.columns + UNIT * (unit.slot // HALF_BLOCKS) + 2 * (wg.lane % 4) + i
            total = unit.total[i]
            inverse = Float32(0.0) if total == 0.0 else cute.arch.rcp_approx(total)
            if row < o.shape[0]:
                for r in range_constexpr(2):
                    at = dimension + 16 * wg.warp + wg.lane // 4 + 8 * r
                    o[row, at, batch] = (unit.values[i + 2 * r] * inverse).to(o.element_type)
                first = (unit.slot % HALF_BLOCKS == 0) & (wg.warp == 0) & (wg.lane < 4)
                if const_expr(group == 0) and first:
                    value = unit.top[i] + cute.math.log2(total, fastmath=True)
                    lse[row, batch] = value * LN_2

    @cute.jit
    def clear_lse(self, scratch, part):
        """Leave the LSEs that were written for this part empty."""
        quads, threads = (self.parts - 1) * self.columns // 4, CONSUMERS
        for first in range_constexpr(0, quads, threads):
            number = first + cute.arch.thread_idx()[0]
            if number < quads:
                source = (part + 1 + number // (self.columns // 4)) % self.parts
                column = number % (self.columns // 4) * 4
                clear(self.lse_of(scratch, source, part, column), 4)
