"""FlashMLA v1: a running maximum that is raised only when it has to be.

Rows whose new maximum exceeds the running one by no more than ``lazy`` (in units of log2) keep the
old one: weights then reach at most 2**lazy, which fp32 sums and 16-bit weights hold, and neither
the output nor the other warpgroup's weights are rescaled. ``lazy=0`` is the exact online softmax.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import SmemAllocator

from mla_var3.errors import TilingError
from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all, seen_by_any
from mla_var3.kernel.cute_python.kit.products import output_mma, score_mma
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    HALF,
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLAB,
    SLAB_BYTES,
    SLABS,
    SlabLoads,
    as_keys,
    as_rows,
    as_vector,
    operand_layout,
    shared_slabs,
    slab_layout,
    value_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST, reduced
from mla_var3.runtime import KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads import option

if TYPE_CHECKING:
    import torch

SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM


class Side(enum.IntEnum):
    """The two consumer warpgroups, and the tile of each pair whose weights they make."""

    LEFT = 0
    RIGHT = 1


class Handover(enum.IntEnum):
    """Named barriers between the two warpgroups, in the order of a pair (0 is the CTA's own)."""

    EVEN_MAX = 1  # left has published the maximum after its even tile
    ODD_MAX = 2  # right has published the maximum after its odd tile
    EVEN_WEIGHTS = 3  # left's weights are in shared memory
    ODD_WEIGHTS = 4  # right's weights are too, and right has issued its use of left's
    SUMS = 5  # both have published their row sums


class Free(enum.IntEnum):
    """What a warpgroup gives back to a producer warp: a half or the rope slab of a tile."""

    EVEN_LEFT = 0
    EVEN_RIGHT = 1
    ODD_LEFT = 2
    ODD_RIGHT = 3
    EVEN_ROPE = 4
    ODD_ROPE = 5


CONSUMERS = 256
THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
#: Largest lag of the running maximum: weights of up to 2**15 still fit fp16.
MAX_LAZY = 15
#: The order in which the two sides multiply the slabs of a tile: rope first, since it is freed
#: first, then the own half, which the other warpgroup is waiting to refill.
EVEN_ORDER = (ROPE_SLAB, 0, 1, 2, 3, 4, 5, 6, 7)
ODD_ORDER = (ROPE_SLAB, 4, 5, 6, 7, 0, 1, 2, 3)


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors of two are its thread's two rows."""

    full: cute.Pointer  # barriers of the slabs, two tiles of nine
    free: cute.Pointer  # barriers of Free
    q: cute.Tensor  # operand A: [64, 64] x 9 slabs
    k: cute.Tensor  # operand B: [64, 64] x 18 slabs
    v: tuple[cute.Tensor, ...]  # operand B: [256, 64], own columns of the even and the odd tile
    peer_weights: cute.Tensor  # operand A: [64, 64], what the other warpgroup stored
    own_weights: cute.Tensor  # where this one stores its own
    store: cute.TiledCopy  # registers to shared memory by stmatrix
    store_thread: cute.ThrCopy
    maxima: cute.Tensor  # shared [2, 64]: running maximum after the even and the odd tile
    sums: cute.Tensor  # shared [2, 64]
    score: cute.Tensor  # [64, 64] fp32 accumulator
    out: cute.Tensor  # [64, 256] fp32 accumulator
    weights: cute.Tensor  # [64, 64] operand A in registers
    q_rope: cute.Tensor  # [64, 64] operand A in registers
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the own tiles and the thread's own columns
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all of the 64 do
    scale_log2: Float32
    row: Int32  # first row of the thread; the second is eight below
    lane: Int32


@dataclass(frozen=True, kw_only=True)
class FlashMlaV1Tiling(CuteTiling):
    """How far the running maximum may lag."""

    lazy: float = option(0.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.lazy > MAX_LAZY:
            raise TilingError(f"lazy={self.lazy} exceeds {MAX_LAZY}: fp16 weights would overflow")


@dataclass(frozen=True, kw_only=True)
class FlashMlaV1Plan(SlabPlan):
    """Problem and launch of v1."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"flash_mla_v1": FlashMlaV1Tiling}

    def default_tiling(self, stage: str) -> Tiling:
        return FlashMlaV1Tiling()

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        return {"flash_mla_v1": [FlashMlaV1Tiling()]}

    def plan(self, *inputs: torch.Tensor) -> RuntimeObject:
        return self.launch(
            FlashMlaV1.flash_mla_v1, lambda x: FlashMlaV1(self.causal, x.lazy), inputs
        )


class FlashMlaV1:
    """Host and device half for one mask; the element type is that of q."""

    def __init__(self, causal: bool, lazy: float = 0.0):
        self.causal = causal
        self.lazy = lazy

    # ---- host half -------------------------------------------------------------------------
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
        dtype = self.dtype = q.element_type

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, 1]
            full: cute.struct.MemRange[cutlass.Int64, 2 * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, len(Free)]
            maxima: cute.struct.MemRange[Float32, 2 * ROWS]
            sums: cute.struct.MemRange[Float32, 2 * ROWS]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * SLAB * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, 2 * SLABS * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, SLAB * SLAB], 1024]

        self.storage = Storage
        slab = cute.slice_(slab_layout(dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe, load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(load, x, slab, (SLAB, SLAB))
            for x in (as_rows(q), as_rows(qpe), as_keys(z), as_keys(kpe))
        ]
        b, h, s, _ = q.shape
        self.flash_mla_v1(*load_q, *load_qpe, *load_z, *load_kpe, o, lse, scale_log2).launch(
            grid=(cute.ceil_div(h * s, ROWS), b, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def flash_mla_v1(
        self,
        load_q: cute.CopyAtom,
        q: cute.Tensor,
        load_qpe: cute.CopyAtom,
        qpe: cute.Tensor,
        load_z: cute.CopyAtom,
        z: cute.Tensor,
        load_kpe: cute.CopyAtom,
        kpe: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (row tiles, b)."""
        block, batch, _ = cute.arch.block_idx()
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)

        first, queries, keys = block * ROWS, lse.shape[2], z.shape[0]
        tiles = cute.ceil_div(seen_by_any(first, queries, keys, self.causal), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2), 1)
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, block, batch, pairs, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            outputs = (o, lse)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, keys, scale_log2, outputs, block, batch, pairs, side)

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                cute.arch.mbarrier_init(storage.q_full.data_ptr(), 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                for i in range_constexpr(len(Free)):
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, 4)  # the reader's warps
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(
        self, storage, q_tensors, kv_tensors, block, batch, pairs, group: cutlass.Constexpr
    ):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        q_loads = SlabLoads(*q_tensors, shared_slabs(storage.q, self.dtype, SLABS))
        kv_loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, 2 * SLABS))
        tile, right = group // 2, group % 2
        full, free = storage.full.data_ptr() + tile * SLABS, storage.free.data_ptr()
        if const_expr(group == Free.EVEN_LEFT):
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive_and_expect_tx(
                    storage.q_full.data_ptr(), SLABS * SLAB_BYTES
                )
            for slab in range_constexpr(SLABS):
                q_loads.issue(slab, block, batch, slab, storage.q_full.data_ptr())
        for i in cutlass.range(pairs, unroll=1):
            parity = (i & 1) ^ 1
            if const_expr(right):
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + tile, parity)
                self.load_slab(kv_loads, 2 * i + tile, batch, tile, ROPE_SLAB, full)
            cute.arch.mbarrier_wait(free + group, parity)
            for slab in range_constexpr(4 * right, 4 * right + 4):
                self.load_slab(kv_loads, 2 * i + tile, batch, tile, slab, full)

    @cute.jit
    def load_slab(self, kv_loads, key_tile, batch, tile, slab: cutlass.Constexpr, full):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        policy = cutlass.Int64(EVICT_FIRST)
        kv_loads.issue(slab, key_tile, batch, tile * SLABS + slab, full + slab, cache_policy=policy)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(
        self, storage, keys, scale_log2, outputs, block, batch, pairs, side: cutlass.Constexpr
    ):
        """One warpgroup, from its queries to its half of the output."""
        queries = outputs[-1].shape[2]
        wg = self.warpgroup(storage, scale_log2, side)
        self.start(wg, storage, block * ROWS, queries, keys)
        if const_expr(side == Side.LEFT):
            self.left(wg, pairs)
        else:
            self.right(wg, pairs)
        self.epilogue(wg, storage, outputs, block, batch, side)

    @cute.jit
    def left(self, wg, pairs):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        self.scores(wg, Side.LEFT, EVEN_ORDER, True, 0)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(pairs - 1, unroll=1):
            self.left_pair(wg, i, False)
        self.left_pair(wg, pairs - 1, True)

    @cute.jit
    def left_pair(self, wg, i, last: cutlass.Constexpr):
        """Even weights times own half, then odd weights, then the scores of the next even tile."""
        self.softmax(wg, 2 * i)
        self.publish_max(wg, Side.LEFT)
        self.arrive(Handover.EVEN_MAX)
        self.rescale(wg.out, wg.shrink)
        self.accumulate(wg, RMEM, wg.weights, Side.LEFT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_LEFT)

        self.sync(Handover.ODD_MAX)
        self.adopt_max(wg, Side.RIGHT)
        self.rescale_weights(wg)
        self.store_weights(wg)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.arrive(Handover.EVEN_WEIGHTS)
        self.sync(Handover.ODD_WEIGHTS)
        self.rescale(wg.out, wg.shrink)
        self.accumulate(wg, SMEM, wg.peer_weights, Side.RIGHT)
        if const_expr(not last):
            self.scores(wg, Side.LEFT, EVEN_ORDER[:4], True, (i + 1) & 1)
            warpgroup.wait_group(4)
            self.release(wg, Free.ODD_LEFT)
            self.scores(wg, Side.LEFT, EVEN_ORDER[4:], False, (i + 1) & 1)
        warpgroup.wait_group(0)
        if const_expr(not last):
            self.release(wg, Free.EVEN_ROPE)

    @cute.jit
    def right(self, wg, pairs):
        """Weights of the odd tiles, columns 256 to 511 of the output."""
        for i in cutlass.range(pairs, unroll=1):
            self.right_pair(wg, i)

    @cute.jit
    def right_pair(self, wg, i):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        self.scores(wg, Side.RIGHT, ODD_ORDER, True, i & 1)
        warpgroup.wait_group(0)
        self.release(wg, Free.ODD_ROPE)
        self.sync(Handover.EVEN_MAX)
        self.adopt_max(wg, Side.LEFT)
        even_shrink = (wg.shrink[0], wg.shrink[1])
        self.softmax(wg, 2 * i + 1)
        self.publish_max(wg, Side.RIGHT)
        self.arrive(Handover.ODD_MAX)
        for r in range_constexpr(2):
            wg.shrink[r] = wg.shrink[r] * even_shrink[r]

        self.store_weights(wg)
        self.rescale(wg.out, wg.shrink)
        self.accumulate(wg, RMEM, wg.weights, Side.RIGHT)
        cute.arch.fence_proxy("async.shared", space="cta")
        self.sync(Handover.EVEN_WEIGHTS)
        self.accumulate(wg, SMEM, wg.peer_weights, Side.LEFT)
        self.arrive(Handover.ODD_WEIGHTS)
        warpgroup.wait_group(1)
        self.release(wg, Free.ODD_RIGHT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

    # ---- steps of a consumer ---------------------------------------------------------------
    @cute.jit
    def scores(self, wg, tile, order: cutlass.Constexpr, fresh: cutlass.Constexpr, phase):
        """Issue S += Q K^T over some slabs as each one lands; one commit group per slab."""
        for j in range_constexpr(len(order)):
            slab = order[j]
            cute.arch.mbarrier_wait(wg.full + (tile * SLABS + slab), phase)
            warpgroup.fence()
            mma = score_mma(self.dtype, RMEM if const_expr(slab == ROPE_SLAB) else SMEM)
            for step in range_constexpr(4):
                mma.set(warpgroup.Field.ACCUMULATE, not (fresh and j == 0 and step == 0))
                k = wg.k[None, None, step, tile * SLABS + slab]
                if const_expr(slab == ROPE_SLAB):
                    cute.gemm(mma, wg.score, wg.q_rope[None, None, step], k, wg.score)
                else:
                    cute.gemm(mma, wg.score, wg.q[None, None, step, slab], k, wg.score)
            warpgroup.commit_group()

    @cute.jit
    def accumulate(self, wg, source: cutlass.Constexpr, weights, tile: cutlass.Constexpr):
        """Issue O += P V of one tile, as one commit group."""
        mma = output_mma(self.dtype, source)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for step in range_constexpr(4):
            v = wg.v[tile][None, None, step]
            cute.gemm(mma, wg.out, weights[None, None, step], v, wg.out)
        warpgroup.commit_group()

    @cute.jit
    def softmax(self, wg, tile):
        """Scores to weights under a running maximum; ``shrink`` is what older sums are worth."""
        if (tile + 1) * KEYS > wg.limit[2]:
            self.mask(wg, tile)
        for r in range_constexpr(2):
            mine = [4 * j + 2 * r + i for j in range(8) for i in range(2)]  # the row's 16 scores
            top = reduced(cute.arch.fmax, [wg.score[i] for i in mine])
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
            old, top = wg.row_max[r], top * wg.scale_log2
            new = top if top - old > self.lazy else old
            wg.shrink[r] = cute.math.exp2(old - new, fastmath=True)
            wg.row_max[r] = new
            for i in mine:
                wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
            total = reduced(operator.add, [wg.score[i] for i in mine])
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total
        self.round_weights(wg)

    @cute.jit
    def mask(self, wg, tile):
        """Hide the keys that a row does not see."""
        for i in range_constexpr(cute.size(wg.score)):
            key = tile * KEYS + 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            hidden = key >= wg.limit[i // 2 % 2]
            wg.score[i] = -Float32.inf if hidden else wg.score[i]

    @cute.jit
    def round_weights(self, wg):
        """Weights in the element type, as the A operand."""
        flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
        flat.store(wg.score.load().to(self.dtype))

    @cute.jit
    def store_weights(self, wg):
        flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
        cute.copy(wg.store, wg.store_thread.retile(flat), wg.own_weights)

    @cute.jit
    def publish_max(self, wg, side: cutlass.Constexpr):
        if wg.lane % 4 == 0:
            for r in range_constexpr(2):
                wg.maxima[side, wg.row + 8 * r] = wg.row_max[r]

    @cute.jit
    def adopt_max(self, wg, side: cutlass.Constexpr):
        """Take over the maximum that the other warpgroup has raised."""
        for r in range_constexpr(2):
            new = wg.maxima[side, wg.row + 8 * r]
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
            wg.row_max[r] = new
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r]

    @cute.jit
    def rescale(self, values, shrink):
        """Multiply rows by ``shrink``; skipped where no row of the warp has moved."""
        if cute.arch.vote_any_sync(shrink[0] * shrink[1] != Float32(1.0)):
            for i in range_constexpr(cute.size(values)):
                values[i] = values[i] * shrink[i // 2 % 2]

    @cute.jit
    def rescale_weights(self, wg):
        """The same for weights made under the maximum before."""
        if cute.arch.vote_any_sync(wg.shrink[0] * wg.shrink[1] != Float32(1.0)):
            for i in range_constexpr(cute.size(wg.score)):
                wg.score[i] = wg.score[i] * wg.shrink[i // 2 % 2]
            self.round_weights(wg)

    @cute.jit
    def release(self, wg, which: cutlass.Constexpr):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(wg.free + which)

    @cute.jit
    def arrive(self, barrier: cutlass.Constexpr):
        cute.arch.barrier_arrive(barrier_id=int(barrier), number_of_threads=CONSUMERS)

    @cute.jit
    def sync(self, barrier: cutlass.Constexpr):
        cute.arch.barrier(barrier_id=int(barrier), number_of_threads=CONSUMERS)

    # ---- set-up and epilogue of a consumer -------------------------------------------------
    @cute.jit
    def warpgroup(self, storage, scale_log2, side: cutlass.Constexpr):
        """Views and registers of one side."""
        thread = cute.arch.thread_idx()[0] % 128
        lane = thread % 32
        row = thread // 32 * 16 + lane // 4
        s_q = shared_slabs(storage.q, self.dtype, SLABS)  # [64, 64, 9]
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)  # [64, 64, 18]
        even_weights = shared_slabs(storage.weights, self.dtype, 1)[None, None, 0]
        odd_weights = s_q[None, None, ROPE_SLAB]  # its queries are in registers by then
        own, peer = (
            (even_weights, odd_weights)
            if const_expr(side == Side.LEFT)
            else (odd_weights, even_weights)
        )
        score, out = score_mma(self.dtype, SMEM), output_mma(self.dtype, SMEM)
        in_score, in_out = score.get_slice(thread), out.get_slice(thread)
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), self.dtype)
        store = cute.make_tiled_copy_C(stmatrix, score)
        v_layout = value_layout(self.dtype)
        halves = [
            cute.make_tensor(
                cute.recast_ptr(
                    s_kv.iterator + (tile * SLABS + 4 * side) * SLAB * SLAB,
                    v_layout.inner,
                    self.dtype,
                ),
                v_layout.outer,
            )
            for tile in range(2)
        ]
        two = cute.make_layout(2)
        return Warpgroup(
            full=storage.full.data_ptr(),
            free=storage.free.data_ptr(),
            q=in_score.make_fragment_A(in_score.partition_A(s_q)),
            k=in_score.make_fragment_B(in_score.partition_B(s_kv)),
            v=tuple(in_out.make_fragment_B(in_out.partition_B(x)) for x in halves),
            peer_weights=in_out.make_fragment_A(in_out.partition_A(peer)),
            own_weights=store.get_slice(thread).partition_D(own),
            store=store,
            store_thread=store.get_slice(thread),
            maxima=storage.maxima.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1))),
            sums=storage.sums.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1))),
            score=in_score.make_fragment_C(in_score.partition_shape_C((ROWS, KEYS))),
            out=in_out.make_fragment_C(in_out.partition_shape_C((ROWS, HALF))),
            weights=cute.make_rmem_tensor(operand_layout(), self.dtype),
            q_rope=cute.make_rmem_tensor(operand_layout(), self.dtype),
            row_max=cute.make_rmem_tensor(two, Float32),
            row_sum=cute.make_rmem_tensor(two, Float32),
            shrink=cute.make_rmem_tensor(two, Float32),
            limit=cute.make_rmem_tensor(cute.make_layout(3), Int32),
            scale_log2=scale_log2,
            row=row,
            lane=lane,
        )

    @cute.jit
    def start(self, wg, storage, first, queries, keys):
        """Empty sums, and the queries' rope slab in registers: its place takes odd weights."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for r in range_constexpr(2):
            wg.limit[r] = seen(first + wg.row + 8 * r, queries, keys, self.causal)
        wg.limit[2] = seen_by_all(first, queries, keys, self.causal)
        cute.arch.mbarrier_wait(storage.q_full.data_ptr(), 0)
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_A(ldmatrix, score_mma(self.dtype, RMEM))
        thread = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        cute.copy(copy, thread.partition_S(s_q[None, None, ROPE_SLAB]), thread.retile(wg.q_rope))

    @cute.jit
    def epilogue(self, wg, storage, outputs, block, batch, side: cutlass.Constexpr):
        self.complete_sums(wg, side)
        self.store_output(wg, storage, outputs, block, batch, side)

    @cute.jit
    def complete_sums(self, wg, side: cutlass.Constexpr):
        """Row sums over all columns of a tile, and over the tiles of both sides."""
        for r in range_constexpr(2):
            total = wg.row_sum[r]
            total = total + cute.arch.shuffle_sync_bfly(total, 1)
            wg.row_sum[r] = total + cute.arch.shuffle_sync_bfly(total, 2)
            if wg.lane % 4 == 0:
                wg.sums[side, wg.row + 8 * r] = wg.row_sum[r]
        self.sync(Handover.SUMS)
        for r in range_constexpr(2):
            wg.row_sum[r] = wg.row_sum[r] + wg.sums[1 - side, wg.row + 8 * r]

    @cute.jit
    def store_output(self, wg, storage, outputs, block, batch, side: cutlass.Constexpr):
        """Divide by the row sums and store, as the fragments lie; left stores the LSE."""
        o, lse = outputs
        if const_expr(side == Side.LEFT):
            self.store_lse(wg, as_vector(lse), block, batch)
        tile = cute.local_tile(as_rows(o)[None, None, batch], (ROWS, HALF), (block, side))
        thread = output_mma(self.dtype, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
        target = thread.partition_C(tile)  # ((2, 2, 32), 1, 1): columns, rows, column groups
        for r in range_constexpr(2):
            inverse = self.inverse_sum(wg, r)
            rounded = cute.make_rmem_tensor((2, 32), self.dtype)
            for i in range_constexpr(cute.size(rounded)):
                rounded[i] = (wg.out[i // 2 * 4 + 2 * r + i % 2] * inverse).to(self.dtype)
            if block * ROWS + wg.row + 8 * r < as_rows(o).shape[0]:
                cute.autovec_copy(rounded, target[(None, r, None), 0, 0])

    @cute.jit
    def inverse_sum(self, wg, r: cutlass.Constexpr):
        """1 / row sum, and 0 for a row that sees no key."""
        return Float32(0.0) if wg.row_sum[r] == 0.0 else Float32(1.0) / wg.row_sum[r]

    @cute.jit
    def store_lse(self, wg, lse, block, batch):
        """The natural logarithm of the sum of exponentials: of no key, minus infinity."""
        for r in range_constexpr(2):
            row = block * ROWS + wg.row + 8 * r
            if (row < lse.shape[0]) & (wg.lane % 4 == 0):
                value = wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)
                lse[row, batch] = value * LN_2
