"""FlashMLA v12: partial results leave piece by piece as well.

What v11 does with the output of one part, each 64 columns merged and sent on while the next are
awaited, happens with partial results too, so that no register holds all of them until the last.
"""

from __future__ import annotations

import dataclasses
import enum
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
from cutlass.utils import SmemAllocator

from mla_var3.errors import PlanError, TilingError
from mla_var3.kernel.cute_python.kit.l2 import PLACE, fetch_piece, leave_pieces, signal_piece
from mla_var3.kernel.cute_python.kit.latent_plan import SlabPlan
from mla_var3.kernel.cute_python.kit.masks import seen, seen_by_all, seen_by_any
from mla_var3.kernel.cute_python.kit.pieces import PIECE_BYTES, PIECES, received
from mla_var3.kernel.cute_python.kit.products import output_mma, score_mma
from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    HALF,
    KEYS,
    LATENT,
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
    tma_parts,
    value_layout,
)
from mla_var3.kernel.cute_python.kit.softmax import LN_2, LOWEST, reduced
from mla_var3.runtime import KernelPipeline, KernelPlan, RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteTiling, require_multiple, require_one_of
from mla_var3.workloads import Cost, option

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
    LEFT_OUTPUT = 6  # left's output is in shared memory
    RIGHT_OUTPUT = 7  # right's is
    FIRST_PIECE = 8  # the first piece of the half to give away is written; the others follow


class Free(enum.IntEnum):
    """What a warpgroup gives back to a producer warp: a half or the rope slab of a tile."""

    EVEN_LEFT = 0
    EVEN_RIGHT = 1
    ODD_LEFT = 2
    ODD_RIGHT = 3
    EVEN_ROPE = 4
    ODD_ROPE = 5
    Q = 6  # the latent slabs of the queries, read by both
    Q_ROPE = 7  # the place of the rope slab, which left reads last


CONSUMERS = 256
THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
#: Largest lag of the running maximum: weights of up to 2**15 still fit fp16.
MAX_LAZY = 15
#: Pairs of key tiles below which a part is not worth its merge.
MIN_PAIRS = 2
#: Threads that merge a row, each four columns.
MERGE_THREADS = LATENT // 4
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
class FlashMlaV12Tiling(CuteTiling):
    """How far the running maximum may lag, and what CTAs share or split."""

    lazy: float = option(0.0, "log2 by which a row's maximum may lag behind; 0 is exact", minimum=0)
    splits: int = option(1, "CTAs that split the keys of 64 rows (1 or 2)", minimum=1)
    share: int = option(1, "row tiles of a cluster that share their keys (1 or 2)", minimum=1)
    blocks: int = option(132, "blocks that stay", minimum=2)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        if self.lazy > MAX_LAZY:
            raise TilingError(f"lazy={self.lazy} exceeds {MAX_LAZY}: fp16 weights would overflow")
        require_one_of((1, 2), splits=self.splits, share=self.share)
        require_multiple(2, blocks=self.blocks)
        if self.splits == 2 and isinstance(plan, FlashMlaV12Plan):
            if plan.invariant:
                raise TilingError("splits=2 merges in another order, and invariant asks for one")
            blocks, room = plan.blocks(2, self.share), min(self.blocks, plan.room)
            if blocks > room:  # CTAs that wait for one that has not started would do so forever
                raise TilingError(
                    f"splits=2 and share={self.share} take {blocks} blocks at once, more than the "
                    f"{room} of blocks and SMs"
                )


@dataclass(frozen=True, kw_only=True)
class FlashMlaV12Plan(SlabPlan):
    """Problem and launches of v12."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "flash_mla_v12": FlashMlaV12Tiling,
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
        room = self.room // (2 * self.row_tiles)
        return self.parts or max(min(room, pairs // (2 * MIN_PAIRS)), 1)

    @property
    def tiles(self) -> int:
        """Tiles of 64 rows of a sequence."""
        return self.row_tiles // self.b

    @property
    def room(self) -> int:
        """CTAs that run at once, in clusters of two."""
        return self.target.sm_count // 2 * 2

    def blocks(self, splits: int, share: int) -> int:
        """CTAs that take one item each: a part of the keys of neighboring row tiles."""
        return splits * share * -(-self.tiles // share) * self.b * self.part_count

    def may_split(self, share: int) -> bool:
        """Whether CTAs may split the keys of row tiles: there is room, and the bits may vary."""
        return not self.invariant and self.blocks(2, share) <= self.room

    def check_plans(self) -> list[Self]:
        """The shared problems, first one of two row tiles; then several parts, or of fixed size."""
        parts = itertools.cycle(({"parts": 2}, {"parts": 1}, {"parts": 3}, {"invariant": 128}, {}))
        fields = itertools.chain([{"b": 1, "h": 80}], parts)
        return [
            dataclasses.replace(plan, **more)
            for plan, more in zip(super().check_plans(), fields, strict=False)
        ]

    def default_tiling(self, stage: str) -> Tiling:
        if stage == "merge":
            return CuteTiling()
        split = self.split_tilings()
        if split:
            return split[0]
        sms, tiles = self.room, self.tiles
        if tiles == 1:
            return FlashMlaV12Tiling(blocks=sms)
        # A multiple of the row tiles of a sequence keeps all readers of its keys in step.
        tiles += tiles % 2
        return FlashMlaV12Tiling(share=2, blocks=sms // tiles * tiles or sms)

    def split_tilings(self) -> list[FlashMlaV12Tiling]:
        """Those with which CTAs split keys, the one that shares more first."""
        return [
            FlashMlaV12Tiling(splits=2, share=share, blocks=self.room)
            for share in (2, 1)
            if share <= self.tiles and self.may_split(share)
        ]

    def _autotune_configs(self) -> dict[str, list[Tiling]]:
        whole = itertools.product((1, 2), (self.room, self.room // 8 * 8))
        return {
            "flash_mla_v12": self.split_tilings()
            + [FlashMlaV12Tiling(share=share, blocks=blocks) for share, blocks in whole],
            "merge": [CuteTiling()],
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
            lambda x: Merge(),
            dict(zip(("partial", "partial_lse"), partial, strict=True)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (),
            Cost(0, 4 * partial[0].numel() + self.element_bytes * outputs[0].numel()),
        )
        return KernelPipeline(_name="flash_mla_v12", stages=[self.attend(inputs, partial), merge])

    def attend(
        self, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
    ) -> RuntimeObject:
        """Attention over each part, into ``outputs``."""
        partial = self.part_count > 1
        named = zip(("q", "qpe", "z", "kpe"), inputs, strict=True)
        meeting = zip(("exchange", "signals"), self.meeting(inputs[0].device), strict=True)
        return self.bind(
            FlashMlaV12.flash_mla_v12,
            lambda x: FlashMlaV12(self.causal, x.lazy, x.splits, x.share, x.blocks, partial),
            dict(itertools.chain(named, meeting)),
            dict(zip(("o", "lse"), outputs, strict=True)),
            (self.scale / LN_2,),
            self._algorithmic_flops_bytes(),
        )

    def meeting(self, device: torch.device) -> tuple[torch.Tensor, torch.Tensor]:
        """A place per CTA that may split keys, and a signal per piece, zero between launches."""
        import torch

        ctas = min(self.blocks(2, 2), self.room) if self.may_split(1) else 1
        exchange = torch.zeros(ctas, PLACE, dtype=torch.float32, device=device)
        return exchange, torch.zeros(ctas, PIECES, dtype=torch.int32, device=device)


class FlashMlaV12:
    """Host and device half for one mask; the element type is that of q."""

    def __init__(
        self,
        causal: bool,
        lazy: float = 0.0,
        splits: int = 1,
        share: int = 2,
        blocks: int = 132,
        partial: bool = False,
    ):
        self.causal = causal
        self.lazy = lazy
        self.splits = splits
        self.share = share
        self.blocks = blocks
        self.partial = partial

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        qpe: cute.Tensor,
        z: cute.Tensor,
        kpe: cute.Tensor,
        exchange: cute.Tensor,
        signals: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q [b,h,s,512], qpe [b,h,s,64], z [b,t,512], kpe [b,t,64], and the meeting."""
        dtype = self.dtype = q.element_type

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, SLABS]
            full: cute.struct.MemRange[cutlass.Int64, 2 * SLABS]
            free: cute.struct.MemRange[cutlass.Int64, len(Free)]
            maxima: cute.struct.MemRange[Float32, 2 * ROWS]
            sums: cute.struct.MemRange[Float32, 2 * ROWS]
            pieces: cute.struct.MemRange[cutlass.Int64, PIECES]
            peer: cute.struct.Align[cute.struct.MemRange[Float32, 2 * ROWS], 16]
            q: cute.struct.Align[cute.struct.MemRange[dtype, SLABS * SLAB * SLAB], 1024]
            kv: cute.struct.Align[cute.struct.MemRange[dtype, 2 * SLABS * SLAB * SLAB], 1024]
            weights: cute.struct.Align[cute.struct.MemRange[dtype, SLAB * SLAB], 1024]

        self.storage = Storage
        slab = cute.slice_(slab_layout(dtype, 1), (None, None, 0))
        load = cpasync.CopyBulkTensorTileG2SOp()
        load_q, load_qpe = [
            cpasync.make_tiled_tma_atom(load, as_rows(x), slab, (SLAB, SLAB)) for x in (q, qpe)
        ]
        if const_expr(self.share > 1):
            load = cpasync.CopyBulkTensorTileG2SMulticastOp()
        load_z, load_kpe = [
            cpasync.make_tiled_tma_atom(
                load, as_keys(x), slab, (SLAB, SLAB), num_multicast=self.share
            )
            for x in (z, kpe)
        ]
        store_o = (load_q[0], as_rows(o))  # partial results are stored without TMA
        if const_expr(not self.partial):
            store = cpasync.CopyBulkTensorTileS2GOp()
            store_o = cpasync.make_tiled_tma_atom(store, as_rows(o), slab, (SLAB, SLAB))
        _, h, s, _ = q.shape
        items = cute.ceil_div(h * s, ROWS * self.share) * o.shape[0] * self.splits
        loads = (*load_q, *load_qpe, *load_z, *load_kpe)
        self.flash_mla_v12(*loads, exchange, signals, *store_o, lse, scale_log2).launch(
            grid=(cutlass.min(self.blocks // self.share, items) * self.share, 1, 1),
            cluster=(self.share, 1, 1),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    # ---- device half -----------------------------------------------------------------------
    @cute.kernel
    def flash_mla_v12(
        self,
        load_q: cute.CopyAtom,
        q: cute.Tensor,
        load_qpe: cute.CopyAtom,
        qpe: cute.Tensor,
        load_z: cute.CopyAtom,
        z: cute.Tensor,
        load_kpe: cute.CopyAtom,
        kpe: cute.Tensor,
        exchange: cute.Tensor,
        signals: cute.Tensor,
        store_o: cute.CopyAtom,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (blocks)."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        if warp_index == CONSUMERS // 32:
            for load in (load_q, load_qpe, load_z, load_kpe):
                cpasync.prefetch_descriptor(load)
        self.init_barriers(storage, warp_index)

        # rows, queries, keys, sequences, and the parts of each, which are outputs of their own
        work = (o.shape[0], lse.shape[2], z.shape[0], z.shape[2], o.shape[2] // z.shape[2])
        if warp_index >= CONSUMERS // 32:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            q_tensors, kv_tensors = (load_q, q, load_qpe, qpe), (load_z, z, load_kpe, kpe)
            for group in range_constexpr(4):
                if warp_index == CONSUMERS // 32 + group:
                    self.produce(storage, q_tensors, kv_tensors, work, group)
                    if const_expr(self.splits > 1):
                        self.relay(storage, exchange, signals, group)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            outputs = (store_o, o, lse)
            for side in range_constexpr(2):
                if warp_index // 4 == side:
                    self.consume(storage, work, scale_log2, outputs, exchange, side)
        self.cluster_sync()  # neither leaves while the other may still write to it

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(SLABS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                for i in range_constexpr(2 * SLABS):
                    cute.arch.mbarrier_init(storage.full.data_ptr() + i, 1)
                for i in range_constexpr(len(Free)):
                    readers = {Free.Q: 8, Free.Q_ROPE: 4}.get(i, 4 * self.share)  # warps
                    cute.arch.mbarrier_init(storage.free.data_ptr() + i, readers)
                for i in range_constexpr(PIECES if self.splits > 1 else 0):
                    piece = storage.pieces.data_ptr() + i
                    cute.arch.mbarrier_init(piece, 1)
                    numbers = 2 * ROWS * 4 if i == 0 else 0  # maxima and sums
                    cute.arch.mbarrier_arrive_and_expect_tx(piece, PIECE_BYTES + numbers)
        cute.arch.mbarrier_init_fence()
        cute.arch.cluster_arrive_relaxed()  # that fence is all that it has to order
        cute.arch.cluster_wait()

    # ---- items: neighboring row tiles of a sequence, and a split of their keys -------------
    @cute.jit
    def items(self, work):
        """First item of this cluster, one past the last, and the step."""
        rows, _, _, sequences, parts = work
        count = cute.ceil_div(rows, ROWS * self.share) * sequences * parts * self.splits
        return cute.arch.cluster_idx()[0], count, cute.arch.cluster_dim()[0]

    @cute.jit
    def place(self, work, item):
        """Row tile, output and sequence of this CTA, its first key tile, its pairs of key tiles."""
        rows, queries, keys, sequences, parts = work
        groups = cute.ceil_div(rows, ROWS * self.share)
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        split, item = item % self.splits, item // self.splits
        block = item % groups * self.share + rank
        first, height = item % groups * self.share * ROWS, self.share * ROWS
        tiles = cute.ceil_div(seen_by_any(first, queries, keys, self.causal, height), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2 * self.splits * parts), 1)
        out = item // groups
        split = out // sequences * self.splits + split
        return block, out, out % sequences, split * 2 * pairs, pairs

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        rank = cute.arch.make_warp_uniform(cute.arch.block_idx_in_cluster())
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        s_kv = shared_slabs(storage.kv, self.dtype, 2 * SLABS)
        q_loads = SlabLoads(*q_tensors, s_q)
        kv_loads = SlabLoads(*kv_tensors, s_kv, rank, self.share)
        tile, right = group // 2, group % 2
        full, free = storage.full.data_ptr() + tile * SLABS, storage.free.data_ptr()
        first, count, step = self.items(work)
        taken, done = Int32(0), Int32(0)  # items, and pairs of tiles, before this item
        for item in cutlass.range(first, count, step, unroll=1):
            block, _, batch, first_tile, pairs = self.place(work, item)
            self.load_queries(storage, q_loads, block, batch, (taken & 1) ^ 1, group)
            for i in cutlass.range(pairs, unroll=1):
                parity, key_tile = ((done + i) & 1) ^ 1, first_tile + 2 * i + tile
                if const_expr(right):
                    cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + tile, parity)
                    self.load_slab(kv_loads, key_tile, batch, tile, ROPE_SLAB, full)
                cute.arch.mbarrier_wait(free + group, parity)
                for slab in range_constexpr(4 * right, 4 * right + 4):
                    self.load_slab(kv_loads, key_tile, batch, tile, slab, full)
            taken, done = taken + 1, done + pairs

    @cute.jit
    def load_queries(self, storage, q_loads, block, batch, parity, group: cutlass.Constexpr):
        """An item's queries; two warps, since the rope slab's place comes free later."""
        full, free = storage.q_full.data_ptr(), storage.free.data_ptr()
        if const_expr(group == Free.EVEN_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q, parity)
            for slab in range_constexpr(ROPE_SLAB):
                self.load_query_slab(q_loads, block, batch, slab, full)
        if const_expr(group == Free.ODD_LEFT):
            cute.arch.mbarrier_wait(free + Free.Q_ROPE, parity)
            self.load_query_slab(q_loads, block, batch, ROPE_SLAB, full)

    @cute.jit
    def load_query_slab(self, q_loads, block, batch, slab: cutlass.Constexpr, full):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        q_loads.issue(slab, block, batch, slab, full + slab)

    @cute.jit
    def load_slab(self, kv_loads, key_tile, batch, tile, slab: cutlass.Constexpr, full):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(full + slab, SLAB_BYTES)
        options = {"cache_policy": cutlass.Int64(EVICT_FIRST)}
        if const_expr(self.share > 1):
            options["mcast_mask"] = cutlass.Int16((1 << self.share) - 1)
        kv_loads.issue(slab, key_tile, batch, tile * SLABS + slab, full + slab, **options)

    @cute.jit
    def relay(self, storage, exchange, signals, piece: cutlass.Constexpr):
        """One warp: a piece of this CTA to the one with the same rows, and the same of that."""
        cta = cute.arch.block_idx()[0]  # the other's cluster is the one beside this one
        signal_piece(signals, cta, Handover.FIRST_PIECE + piece)
        cute.arch.mbarrier_wait(storage.free.data_ptr() + Free.Q, 0)  # a CTA has one item here
        fetch_piece(storage, exchange, signals, cta ^ self.share, piece)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, exchange, side: cutlass.Constexpr):
        """One warpgroup, from an item's queries to its half of the output, item after item."""
        wg = self.warpgroup(storage, scale_log2, side)
        first, count, step = self.items(work)
        taken, done = Int32(0), Int32(0)  # items, and pairs of tiles, before this item
        for item in cutlass.range(first, count, step, unroll=1):
            block, out, _, first_tile, pairs = self.place(work, item)
            self.start(wg, storage, work, block * ROWS, first_tile * KEYS, taken & 1)
            if const_expr(side == Side.LEFT):
                self.left(wg, pairs, done, (storage.q_full.data_ptr(), taken & 1))
            else:
                for slab in range_constexpr(ROPE_SLAB):  # its first scores come later
                    cute.arch.mbarrier_wait(storage.q_full.data_ptr() + slab, taken & 1)
                self.right(wg, pairs, done)
            self.epilogue(wg, storage, outputs, exchange, block, out, item, side)
            self.release(wg, Free.ODD_LEFT + side)  # after its last use as the output's way out
            taken, done = taken + 1, done + pairs

    @cute.jit
    def left(self, wg, pairs, done, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        self.scores(wg, Side.LEFT, EVEN_ORDER, True, done & 1, queries)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(pairs - 1, unroll=1):
            self.left_pair(wg, i, (done + i + 1) & 1, False)
        self.release(wg, Free.Q)
        self.left_pair(wg, pairs - 1, 0, True)
        self.release(wg, Free.Q_ROPE)

    @cute.jit
    def left_pair(self, wg, i, next_phase, last: cutlass.Constexpr):
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
            self.scores(wg, Side.LEFT, EVEN_ORDER[:4], True, next_phase)
            warpgroup.wait_group(4)
            self.release(wg, Free.ODD_LEFT)
            self.scores(wg, Side.LEFT, EVEN_ORDER[4:], False, next_phase)
        warpgroup.wait_group(0)
        if const_expr(not last):
            self.release(wg, Free.EVEN_ROPE)

    @cute.jit
    def right(self, wg, pairs, done):
        """Weights of the odd tiles, columns 256 to 511 of the output."""
        for i in cutlass.range(pairs, unroll=1):
            self.right_pair(wg, i, (done + i) & 1, i + 1 < pairs)
        self.release(wg, Free.Q)

    @cute.jit
    def right_pair(self, wg, i, phase, more):
        """The scores of the odd tile, odd weights times own half, then even weights."""
        self.scores(wg, Side.RIGHT, ODD_ORDER, True, phase)
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
        if more:
            self.release(wg, Free.ODD_RIGHT)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_RIGHT)

    # ---- steps of a consumer ---------------------------------------------------------------
    @cute.jit
    def scores(
        self, wg, tile, order: cutlass.Constexpr, fresh: cutlass.Constexpr, phase, queries=None
    ):
        """Issue S += Q K^T over some slabs as each one lands; one commit group per slab.

        The first of an item also waits for ``queries``, by barriers and their phase.
        """
        for j in range_constexpr(len(order)):
            slab = order[j]
            if const_expr(queries is not None):
                cute.arch.mbarrier_wait(queries[0] + slab, queries[1])
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
            if const_expr(self.share == 1 or which >= Free.Q):
                cute.arch.mbarrier_arrive(wg.free + which)
            else:
                for rank in range_constexpr(self.share):
                    cute.arch.mbarrier_arrive(wg.free + which, rank)

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
    def start(self, wg, storage, work, first, first_key, phase):
        """Empty sums, and the queries' rope slab in registers: its place takes odd weights."""
        _, queries, keys, _, _ = work
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        for r in range_constexpr(2):
            wg.limit[r] = seen(first + wg.row + 8 * r, queries, keys, self.causal) - first_key
        wg.limit[2] = seen_by_all(first, queries, keys, self.causal) - first_key
        cute.arch.mbarrier_wait(storage.q_full.data_ptr() + ROPE_SLAB, phase)
        s_q = shared_slabs(storage.q, self.dtype, SLABS)
        ldmatrix = cute.make_copy_atom(warp.LdMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_A(ldmatrix, score_mma(self.dtype, RMEM))
        thread = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        cute.copy(copy, thread.partition_S(s_q[None, None, ROPE_SLAB]), thread.retile(wg.q_rope))

    @cute.jit
    def epilogue(self, wg, storage, outputs, exchange, block, batch, item, side: cutlass.Constexpr):
        """Of two CTAs with the same rows the first keeps left, and the other right."""
        self.complete_sums(wg, side)
        if const_expr(self.splits == 1):
            self.store_output(wg, storage, outputs, block, batch, side)
        else:
            split = item % self.splits
            if split == side:
                self.store_output(wg, storage, outputs, block, batch, side)
            else:
                self.leave(wg, exchange)

    @cute.jit
    def leave(self, wg, exchange):
        cta, barrier = cute.arch.block_idx()[0], int(Handover.FIRST_PIECE)
        leave_pieces(exchange, cta, wg.out, wg.row_max, wg.row_sum, wg.row, wg.lane, barrier)

    @cute.jit
    def cluster_sync(self):
        cute.arch.cluster_arrive()
        cute.arch.cluster_wait()

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
        """Merge, divide by the row sums and store, piece by piece; left stores the LSE."""
        store_o, o, lse = outputs
        mine, theirs = cute.make_rmem_tensor(2, Float32), cute.make_rmem_tensor(2, Float32)
        self.weigh(wg, storage, mine, theirs)
        if const_expr(side == Side.LEFT):
            self.store_lse(wg, as_vector(lse), block, batch)
        for j in range_constexpr(PIECES):
            for i in range_constexpr(32 * j, 32 * j + 32):
                wg.out[i] = wg.out[i] * mine[i // 2 % 2]
            if const_expr(self.splits > 1):
                self.add_piece(wg, storage, theirs, j)
            if const_expr(self.partial):
                self.store_slab(wg, o, block, batch, side, j)
            else:
                self.send_slab(wg, storage, store_o, o, block, batch, side, j)
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            cute.arch.cp_async_bulk_wait_group(0, read=True)

    @cute.jit
    def weigh(self, wg, storage, mine, theirs):
        """What this CTA's sums and the peer's are worth in the output, by the sum of both."""
        mine.fill(1.0)
        theirs.fill(0.0)
        if const_expr(self.splits > 1):
            cute.arch.mbarrier_wait(storage.pieces.data_ptr(), 0)
            numbers = storage.peer.get_tensor(cute.make_layout((2, ROWS), stride=(ROWS, 1)))
            for r in range_constexpr(2):
                old, peer_max = wg.row_max[r], numbers[0, wg.row + 8 * r]
                wg.row_max[r] = cute.arch.fmax(old, peer_max)
                mine[r] = cute.math.exp2(old - wg.row_max[r], fastmath=True)
                theirs[r] = cute.math.exp2(peer_max - wg.row_max[r], fastmath=True)
                wg.row_sum[r] = wg.row_sum[r] * mine[r] + numbers[1, wg.row + 8 * r] * theirs[r]
        for r in range_constexpr(2):
            inverse = self.inverse_sum(wg, r)
            mine[r], theirs[r] = mine[r] * inverse, theirs[r] * inverse

    @cute.jit
    def add_piece(self, wg, storage, theirs, j: cutlass.Constexpr):
        """Add what the peer has sent of 64 columns, as soon as it is there."""
        cute.arch.mbarrier_wait(storage.pieces.data_ptr() + j, 0)
        quads, quad = received(storage, j), cute.make_rmem_tensor(4, Float32)
        for g in range_constexpr(8):
            cute.autovec_copy(quads[None, g], quad)
            for i in range_constexpr(4):
                at = 32 * j + 4 * g + i
                wg.out[at] = wg.out[at] + quad[i] * theirs[i // 2]

    @cute.jit
    def store_slab(self, wg, o, block, batch, side: cutlass.Constexpr, j: cutlass.Constexpr):
        """Store fp32 as the fragments lie: eight bytes per thread, whole sectors per quad."""
        tile = cute.local_tile(o[None, None, batch], (ROWS, SLAB), (block, 4 * side + j))
        thread = score_mma(self.dtype, SMEM).get_slice(cute.arch.thread_idx()[0] % 128)
        target = thread.partition_C(tile)  # ((2, 2, 8), 1, 1): columns, rows, column groups
        values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)
        for r in range_constexpr(2):
            if block * ROWS + wg.row + 8 * r < o.shape[0]:
                cute.autovec_copy(values[(None, r, None), 0, 0], target[(None, r, None), 0, 0])

    @cute.jit
    def send_slab(
        self, wg, storage, store_o, o, block, batch, side: cutlass.Constexpr, j: cutlass.Constexpr
    ):
        """Registers to an own slab, and on by TMA."""
        slabs, into = shared_slabs(storage.kv, self.dtype, 2 * SLABS), SLABS + 4 * side + j
        values = cute.make_tensor(wg.out.iterator + 32 * j, wg.score.layout)  # [64, 64]
        rounded = cute.make_rmem_tensor(wg.score.layout, self.dtype)
        rounded.store(values.load().to(self.dtype))
        target = wg.store_thread.partition_D(slabs[None, None, into])
        cute.copy(wg.store, wg.store_thread.retile(rounded), target)
        cute.arch.fence_proxy("async.shared", space="cta")
        written = Handover.LEFT_OUTPUT + side
        cute.arch.barrier(barrier_id=written, number_of_threads=CONSUMERS // 2)
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            shared, out = tma_parts(store_o, slabs, o)
            cute.copy(store_o, shared[None, into], out[None, block, 4 * side + j, batch])
            cute.arch.cp_async_bulk_commit_group()

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


class Merge:
    """Merge the parts of each row by their LSE."""

    @cute.jit
    def __call__(
        self,
        partial: cute.Tensor,
        partial_lse: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        stream: cuda.CUstream,
    ):
        """Launch on partial [parts*b,h,s,512] fp32 and partial_lse [parts*b,h,s]."""
        b, h, s, _ = o.shape
        self.merge(as_rows(partial), as_vector(partial_lse), as_rows(o), as_vector(lse)).launch(
            grid=(h * s, b, 1), block=(MERGE_THREADS, 1, 1), stream=stream
        )

    @cute.kernel
    def merge(
        self, partial: cute.Tensor, partial_lse: cute.Tensor, o: cute.Tensor, lse: cute.Tensor
    ):
        """Grid (rows, b): one row of 512."""
        row, batch, _ = cute.arch.block_idx()
        column, sequences = cute.arch.thread_idx()[0], o.shape[2]
        parts = partial.shape[2] // sequences
        top = Float32(LOWEST)
        for part in cutlass.range(parts, unroll=8):
            top = cute.arch.fmax(top, partial_lse[row, part * sequences + batch])
        total = Float32(0.0)
        acc = cute.make_rmem_tensor(4, Float32)
        acc.fill(0.0)
        for part in cutlass.range(parts, unroll=8):
            at = part * sequences + batch
            weight = cute.math.exp2((partial_lse[row, at] - top) * (1.0 / LN_2), fastmath=True)
            values = cute.local_tile(partial[row, None, at], (4,), (column,)).load()
            acc.store(acc.load() + values * weight)
            total = total + weight
        inverse = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        out = cute.local_tile(o[row, None, batch], (4,), (column,))
        out.store((acc.load() * inverse).to(o.element_type))
        if column == 0:
            lse[row, batch] = top + cute.math.log2(total, fastmath=True) * LN_2
