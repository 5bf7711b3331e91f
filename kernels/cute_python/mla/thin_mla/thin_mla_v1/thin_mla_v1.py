"""Thin MLA v1: the clusters of a sequence merge through L2, without a second kernel.

Clusters larger than two leave SMs idle, and a second kernel has to be launched. Here the CTAs that
share the keys of a row tile, in clusters of two, are all resident at once: each writes what the
others finish to a scratch tensor, signals with a release at a counter, waits until all others have
signaled, and finishes an equal share of the output itself.
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
from mla_var3.kernel.cute_python.kit.dsmem import remote_address, store_remote
from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all, seen_by_any
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    LATENT,
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
#: Named barriers: one per warpgroup, then one of both (0 is the CTA's own).
OWN, BOTH = 1, 1 + GROUPS
#: Blocks of 64 latent dimensions, which are the rows of the output's products.
BLOCKS = ROPE_SLAB
#: The order in which slabs of a tile land: rope first, since the scores alone need it.
ORDER = (ROPE_SLAB, *range(ROPE_SLAB))
#: Columns of a product: rows (head, query) of a CTA, padded.
COLUMNS = (8, 16, 32)
#: CTAs of a cluster; 32 clusters of four do not fit an H200 at once.
SPLITS = (1, 2)
#: Columns of a unit: what a warpgroup finishes of a block of the output, four values per thread.
UNIT = 8
#: Distance of two counters, so that each has a line of L2 for itself.
LINE = 32
#: What the parts of a row tile add to their counter together: the highest bit is turned over when
#: all are in, and the others are zero again for the next launch.
TURN = 1 << 31
#: Key tiles below which a CTA is not worth its merge: one per warpgroup.
MIN_TILES = GROUPS


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
    """How many rows a CTA holds, and how many CTAs share their keys."""

    columns: int = option(16, "rows (head, query) of a CTA: 8, 16 or 32", minimum=8)
    splits: int = option(2, "CTAs of a cluster that split the keys (1 or 2)", minimum=1)
    parts: int = option(1, "clusters that share the keys of a row tile", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        require_one_of(COLUMNS, columns=self.columns)
        require_one_of(SPLITS, splits=self.splits)
        if self.parts > 1 and isinstance(plan, Plan):
            tiles, sms = plan.tiles_of(self.columns), plan.target.sm_count
            if (ctas := tiles * self.splits * self.parts) > sms:
                raise TilingError(
                    f"parts={self.parts} lets {tiles} row tiles * {self.splits} splits * "
                    f"{self.parts} parts = {ctas} CTAs wait for each other, and {sms} run at once"
                )


@dataclass(frozen=True, kw_only=True)
class Plan(SlabPlan):
    """Problem and launch of v1."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}

    @property
    def columns(self) -> int:
        """Columns that hold the rows of a sequence, or of a row tile where they are more."""
        return next((n for n in COLUMNS if n >= self.h * self.s), COLUMNS[-1])

    def tiles_of(self, columns: int) -> int:
        """Row tiles of all sequences."""
        return -(-self.h * self.s // columns) * self.b

    def room(self, columns: int) -> int:
        """CTAs per row tile that fit the SMs and have keys to work on."""
        tiles = -(-self.t // KEYS)
        return max(min(self.target.sm_count // self.tiles_of(columns), tiles // MIN_TILES), 1)

    def tiling_of(self, columns: int, splits: int) -> Tiling:
        """As many parts as there is room for."""
        parts = max(self.room(columns) // splits, 1)
        return Tiling(columns=columns, splits=splits, parts=parts)

    def check_plans(self) -> list[Self]:
        """The shared problems: several parts, one, and more than key tiles."""
        parts = itertools.cycle((2, None, 1, 3))
        return [
            plan if n is None else plan.with_parts(n)
            for plan, n in zip(super().check_plans(), parts, strict=False)
        ]

    def with_parts(self, parts: int) -> Self:
        """The same problem, with so many parts of its default tiling, or what the SMs take."""
        (stage,) = self.tiling_types
        tiling = self.default_tiling(stage)
        most = self.target.sm_count // (self.tiles_of(tiling.columns) * tiling.splits)
        tiling = dataclasses.replace(tiling, parts=max(min(parts, most), 1))
        return dataclasses.replace(self, tilings={stage: tiling})

    def default_tiling(self, stage: str) -> Tiling:
        return self.tiling_of(self.columns, min(self.room(self.columns), SPLITS[-1]))

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        columns = sorted({self.columns, min(2 * self.columns, COLUMNS[-1])})
        configs = [self.tiling_of(n, splits) for n, splits in itertools.product(columns, SPLITS)]
        alone = [dataclasses.replace(x, parts=1) for x in configs]
        return {"attention": list(dict.fromkeys([*configs, *alone]))}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        device = inputs[0].device
        tensors = dict(zip(("q", "qpe", "z", "kpe"), inputs, strict=True))
        return self.bind(
            Kernel.attention,
            lambda x: Kernel(self.causal, x.columns, x.splits, x.parts),
            tensors | self.scratch(device),
            dict(zip(("o", "lse"), self.empty_outputs(device), strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )

    def scratch(self, device: torch.device) -> dict[str, torch.Tensor]:
        """What parts write for each other, under any tiling, and the counters of their signals."""
        import torch

        ctas = self.target.sm_count
        units = ctas * BLOCKS * COLUMNS[-1] // UNIT
        return {
            "partial": self.empty(units, LATENT, device=device, fp32=True),
            "partial_lse": self.empty(ctas, COLUMNS[-1], device=device, fp32=True),
            "arrived": torch.zeros(ctas, LINE, dtype=torch.int32, device=device),
        }


class Kernel:
    """Host and device half for one mask; the element type is that of q."""

    def __init__(self, causal: bool, columns: int = 16, splits: int = 2, parts: int = 1):
        self.causal = causal
        self.columns = columns
        self.splits = splits
        self.parts = parts
        #: Of a thread: columns, and groups of four values of one block of the output.
        self.mine = columns // 4
        self.quads = columns // 8
        #: Blocks that each CTA of the cluster finishes.
        self.share = BLOCKS // splits
        #: Units of a warpgroup in that share; the parts take turns to finish one.
        self.slots = self.share * self.quads // GROUPS
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
        arrived: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64] and the scratch.

        ``arrived`` is zero but for the highest bits, before the launch as after it.
        """
        dtype = self.dtype = q.element_type
        n = self.columns

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, 1]
            full: cute.struct.MemRange[cutlass.Int64, GROUPS * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, GROUPS * SLABS]
            by_warp: cute.struct.MemRange[Float32, GROUPS * 4 * n]
            results: cute.struct.MemRange[Float32, self.splits * GROUPS * 2 * n]
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
        scratch = (partial, partial_lse, arrived)
        self.attention(*loads, *scratch, as_rows(o), lse, scale_log2).launch(
            grid=(cute.ceil_div(h * s, n) * o.shape[0] * self.splits * self.parts, 1, 1),
            cluster=(self.splits, 1, 1),
            block=(CONSUMERS + (128 if self.wide else 32 * GROUPS), 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
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
        arrived: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (splits * parts * row tiles * sequences)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)

        work = (o.shape[0], lse.shape[2], z.shape[0])  # rows, queries, keys
        scratch = (partial, partial_lse, arrived)
        if warp_index >= CONSUMERS // 32:
            if const_expr(self.wide):
                cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(GROUPS):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, work, group)
            self.cluster_sync()  # the two of the epilogue
            self.cluster_sync()
        else:
            if const_expr(self.wide):
                cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            for group in range_constexpr(GROUPS):
                if warp_index // 4 == group:
                    self.consume(storage, work, scratch, scale_log2, o, lse, group)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(storage.q_full.data_ptr(), 1)
                for i in range_constexpr(GROUPS * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # warps
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    @cute.jit
    def place(self, work):
        """Row tile, sequence and part of this CTA, its first key tile, and how many."""
        rows, queries, keys = work
        groups, item = cute.ceil_div(rows, self.columns), cute.arch.cluster_idx()[0]
        part, item = item % self.parts, item // self.parts
        block, batch = item % groups, item // groups
        first_row = block * self.columns
        tiles = cute.ceil_div(
            seen_by_any(first_row, queries, keys, self.causal, self.columns), KEYS
        )
        each = cute.ceil_div(tiles, self.splits * self.parts)
        first = (part * self.splits + self.rank()) * each
        count = cutlass.max(cutlass.min(each, tiles - first), 0)
        return block, batch, part, first, count

    def rank(self):
        return cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: the tiles of one warpgroup, slab by slab; the first also loads the queries."""
        block, batch, _, first, count = self.place(work)
        if const_expr(group == 0):
            self.load_queries(storage, q_tensors, block, batch)
        loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, GROUPS * SLABS))
        full, free = storage.full.data_ptr(), storage.free.data_ptr()
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
            tile = first + GROUPS * i + group
            for j in range_constexpr(SLABS):
                place = group * SLABS + ORDER[j]
                cute.arch.mbarrier_wait(free + place, (i & 1) ^ 1)
                self.load_slab(loads, tile, batch, ORDER[j], place, full + place)

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
        cute.arch.mbarrier_wait(storage.q_full.data_ptr(), 0)
        for i in cutlass.range((count + GROUPS - 1 - group) // GROUPS, unroll=1):
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

    @cute.jit
    def cluster_sync(self):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

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

    # ---- epilogue: all warpgroups of the cluster merge, then its parts -----------------------
    @cute.jit
    def epilogue(self, wg, storage, scratch, o, lse, place, group: cutlass.Constexpr):
        self.over_keys(wg, wg.row_sum, operator.add, group)
        self.publish(wg, storage, group)
        self.cluster_sync()  # all have read their tiles, whose place the outputs take
        self.normalize(wg, storage, scratch, lse, place, group)
        self.add_other(wg, storage, group)
        self.send(wg, storage, group)
        self.cluster_sync()  # and all have sent
        _, _, part = place
        if const_expr(self.parts > 1):
            self.give(wg, storage, scratch, part, group)
            if part < self.slots:  # as there may be more parts than units to finish
                self.take(wg, scratch, lse, place, group)
                self.store_output(wg, storage, scratch, o, place, group)
        else:
            self.store_output(wg, storage, scratch, o, place, group)

    def results(self, storage):
        """Maximum and sum of each column, by warpgroup of the cluster: [sources, 2, columns]."""
        n = self.columns
        shape = (self.splits * GROUPS, 2, n)
        return storage.results.get_tensor(cute.make_layout(shape, stride=(2 * n, n, 1)))

    @cute.jit
    def publish(self, wg, storage, group: cutlass.Constexpr):
        """Maxima and sums to every CTA of the cluster, each by one warp."""
        results, source = self.results(storage), self.rank() * GROUPS + group
        for peer in range_constexpr(self.splits):
            if (wg.warp == peer % 4) & (wg.lane < 4):
                for c in range_constexpr(self.mine):
                    at = results.iterator + source * 2 * self.columns + self.column(wg, c)
                    store_remote(remote_address(at, Int32(peer)), wg.row_max[c])
                    store_remote(remote_address(at + self.columns, Int32(peer)), wg.row_sum[c])

    @cute.jit
    def normalize(self, wg, storage, scratch, lse, place, group: cutlass.Constexpr):
        """Divide by the cluster's row sums, under its maximum; one warp stores the LSE."""
        results = self.results(storage)
        block, batch, part = place
        for c in range_constexpr(self.mine):
            column, sources = self.column(wg, c), range(self.splits * GROUPS)
            top = reduced(cute.arch.fmax, [results[i, 0, column] for i in sources])
            total = reduced(
                operator.add,
                [
                    results[i, 1, column]
                    * cute.math.exp2(results[i, 0, column] - top, fastmath=True)
                    for i in sources
                ],
            )
            own = cute.math.exp2(wg.row_max[c] - top, fastmath=True)
            wg.shrink[c] = Float32(0.0) if total == 0.0 else own / total
            if const_expr(group == 0):
                first = (wg.warp == 0) & (wg.lane < 4)
                value = top + cute.math.log2(total, fastmath=True)
                if const_expr(self.parts > 1):
                    _, partial_lse, _ = scratch
                    if first:
                        partial_lse[self.member(part), column] = value
                else:
                    row = block * self.columns + column
                    if first & (self.rank() == 0) & (row < lse.shape[0]):
                        lse[row, batch] = value * LN_2
        self.multiply(wg, wg.shrink)

    def quads_of(self, wg, storage, first):
        """Shared memory as groups of four values of this thread, from block ``first`` on."""
        values = cute.recast_ptr(storage.kv.data_ptr(), dtype=Float32)
        start = values + first * self.quads * 512 + wg.thread * 4
        shape = (4, self.quads, GROUPS * BLOCKS)
        return cute.make_tensor(start, cute.make_layout(shape, stride=(1, 512, 512 * self.quads)))

    def quad(self, wg, block, j):
        return cute.make_tensor(wg.out[block].iterator + 4 * j, cute.make_layout(4))

    @cute.jit
    def add_other(self, wg, storage, group: cutlass.Constexpr):
        """Add the other warpgroup's output in the half of the blocks that this one keeps."""
        half = BLOCKS // GROUPS
        place = self.quads_of(wg, storage, BLOCKS)  # behind what peers send
        for block in range_constexpr(BLOCKS):
            if const_expr(block // half != group):
                for j in range_constexpr(self.quads):
                    cute.autovec_copy(self.quad(wg, block, j), place[None, j, block])
        self.meet(BOTH, CONSUMERS)
        other = cute.make_rmem_tensor(4, Float32)
        for block in range_constexpr(half * group, half * (group + 1)):
            for j in range_constexpr(self.quads):
                cute.autovec_copy(place[None, j, block], other)
                for i in range_constexpr(4):
                    wg.out[block][4 * j + i] = wg.out[block][4 * j + i] + other[i]

    @cute.jit
    def send(self, wg, storage, group: cutlass.Constexpr):
        """Each block to the CTA that finishes it."""
        half = BLOCKS // GROUPS
        place = self.quads_of(wg, storage, self.rank() * self.share)
        for block in range_constexpr(half * group, half * (group + 1)):
            for j in range_constexpr(self.quads):
                at = place[None, j, block % self.share].iterator
                values = [wg.out[block][4 * j + i] for i in range(4)]
                store_remote(remote_address(at, Int32(block // self.share)), *values)

    # ---- the parts of a row tile, which merge through L2 -------------------------------------
    def team(self):
        """Number of the CTAs that share the keys and finish the same blocks, one of each part."""
        return cute.arch.cluster_idx()[0] // self.parts * self.splits + self.rank()

    def member(self, part):
        """Place of a part in the scratch tensors."""
        return self.team() * self.parts + part

    def unit(self, scratch, wg, part, number):
        """Four values of this thread in a unit that ``part`` gave."""
        partial, _, _ = scratch
        row = self.member(part) * (self.slots * GROUPS) + number
        return cute.local_tile(partial[row, None], (4,), (wg.thread,))

    @cute.jit
    def summed(self, wg, storage, number):
        """What the cluster has sent of a unit."""
        place = self.quads_of(wg, storage, 0)
        one, total = cute.make_rmem_tensor(4, Float32), cute.make_rmem_tensor(4, Float32)
        total.fill(0.0)
        for source in range_constexpr(self.splits):
            first = source * self.share
            cute.autovec_copy(place[None, number % self.quads, first + number // self.quads], one)
            total.store(total.load() + one.load())
        return total

    @cute.jit
    def give(self, wg, storage, scratch, part, group: cutlass.Constexpr):
        """Write the units that other parts finish."""
        for slot in range_constexpr(self.slots):
            if part != slot % self.parts:
                number = slot * GROUPS + group
                total = self.summed(wg, storage, number)
                cute.autovec_copy(total, self.unit(scratch, wg, part, number))
        self.meet(BOTH, CONSUMERS)
        if cute.arch.thread_idx()[0] == 0:
            self.signal(scratch, part)

    @cute.jit
    def counter(self, scratch):
        _, _, arrived = scratch
        return arrived.iterator + self.team() * LINE

    @cute.jit
    def signal(self, scratch, part):
        """Tell the other parts, and wait for those that have not told."""
        step = Int32(1)
        if part == 0:
            step = Int32(TURN - (self.parts - 1))
        counter = self.counter(scratch)
        before = cute.arch.atomic_add(counter, step, sem="release", scope="gpu")
        if part < self.slots:
            now = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")
            while (now ^ before) >= 0:
                now = cute.arch.load(counter, Int32, sem="acquire", scope="gpu")

    @cute.jit
    def take(self, wg, scratch, lse, place, group: cutlass.Constexpr):
        """The LSE over all parts, in units of log2, by which their outputs are weighted."""
        self.meet(BOTH, CONSUMERS)  # one thread has waited for all
        block, batch, part = place
        _, partial_lse, _ = scratch
        for c in range_constexpr(self.mine):
            column = self.column(wg, c)
            top, total = Float32(LOWEST), Float32(0.0)
            for i in cutlass.range(self.parts, unroll=8):
                top = cute.arch.fmax(top, partial_lse[self.member(i), column])
            for i in cutlass.range(self.parts, unroll=8):
                value = partial_lse[self.member(i), column]
                total = total + cute.math.exp2(value - top, fastmath=True)
            wg.top[c] = top + cute.math.log2(total, fastmath=True)
            row = block * self.columns + column
            if const_expr(group == 0):
                first = (part == 0) & (self.rank() == 0) & (wg.warp == 0) & (wg.lane < 4)
                if first & (row < lse.shape[0]):
                    lse[row, batch] = wg.top[c] * LN_2
            # Rows that see no key: any weight of their zeros is right, but none is a NaN.
            wg.top[c] = cute.arch.fmax(wg.top[c], Float32(LOWEST))

    @cute.jit
    def weigh(self, wg, scratch, part, j, values):
        """Bring a part's four values of the columns of quad ``j`` under the LSE of all."""
        _, partial_lse, _ = scratch
        for i in range_constexpr(2):
            c = 2 * j + i
            value = partial_lse[self.member(part), self.column(wg, c)]
            weight = cute.math.exp2(value - wg.top[c], fastmath=True)
            values[i], values[i + 2] = values[i] * weight, values[i + 2] * weight

    @cute.jit
    def merged(self, wg, storage, scratch, part, number, j):
        """A unit of all parts: the own from shared memory, the others' from L2."""
        total = self.summed(wg, storage, number)
        self.weigh(wg, scratch, part, j, total)
        other = cute.make_rmem_tensor(4, Float32)
        for i in cutlass.range(1, self.parts, unroll=8):
            source = (part + i) % self.parts
            cute.autovec_copy(self.unit(scratch, wg, source, number), other)
            self.weigh(wg, scratch, source, j, other)
            total.store(total.load() + other.load())
        return total

    @cute.jit
    def store_output(self, wg, storage, scratch, o, place, group: cutlass.Constexpr):
        """Add what the cluster and the other parts have sent, and store."""
        _, _, part = place
        for slot in range_constexpr(self.slots):
            number = slot * GROUPS + group
            if const_expr(self.parts == 1):
                self.store_unit(wg, o, place, number, self.summed(wg, storage, number))
            elif part == slot % self.parts:
                j = number % self.quads
                total = self.merged(wg, storage, scratch, part, number, j)
                self.store_unit(wg, o, place, number, total)

    @cute.jit
    def store_unit(self, wg, o, place, number: cutlass.Constexpr, total):
        """Store a unit's values, two rows of the output and two dimensions of each."""
        block, batch, _ = place
        dimension = (self.rank() * self.share + number // self.quads) * SLAB
        for i in range_constexpr(4):
            row = block * self.columns + self.column(wg, 2 * (number % self.quads) + i % 2)
            if row < o.shape[0]:
                at = dimension + 16 * wg.warp + wg.lane // 4 + 8 * (i // 2)
                o[row, at, batch] = total[i].to(o.element_type)
