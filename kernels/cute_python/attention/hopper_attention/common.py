"""What all versions share: the plan, tile views, the roles around the main loop.

A head's queries are rows. Where several sequences attend the same keys (members of a group), the
rows of all of them make common tiles: a tile of 64 rows is a rectangle of ``tile_s`` queries by
``64 / tile_s`` members, which TMA cuts out of the tensor as it lies. Plain attention is the case of
one member.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr, range_constexpr
from cutlass.cute.nvgpu import cpasync, warp, warpgroup
from cutlass.utils import SmemAllocator, hopper_helpers

from mla_var3.errors import PlanError, TilingError
from mla_var3.runtime import KernelPlan, RuntimeObject
from mla_var3.runtime.cute_kernel import (
    CuteKernel,
    CuteTiling,
    Dynamic,
    require_multiple,
    require_shared_memory,
)
from mla_var3.workloads import option
from mla_var3.workloads.attention import AttentionProblem

if TYPE_CHECKING:
    import torch

#: Rows of a consumer warpgroup, and columns of a slab: 128 bytes, the width of the swizzle.
ROWS, SLAB = 64, 64
GROUPS = 2
CONSUMERS = GROUPS * 128
THREADS = CONSUMERS + 128
WARPS = CONSUMERS // 32
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24
ELEMENT_BYTES = 2
#: Shared memory that a block of sm_90 may ask for, and what barriers and alignment take of it.
SHARED_BYTES, BARRIER_BYTES = 232448, 1024
#: Most keys of a step: more scores and weights than theirs, beside the output, spill.
MAX_KEYS = 128
#: Named barrier of the first consumer warpgroup (0 is the CTA's own); the next is the other's.
EPILOGUE, TURN = 1, 3
#: A finite start keeps exp2(old - new) defined for rows that have seen no key yet.
LOWEST = -1.0e30
LN_2 = 0.6931471805599453
SMEM, RMEM = warpgroup.OperandSource.SMEM, warpgroup.OperandSource.RMEM


@dataclass(frozen=True, kw_only=True)
class RingTiling(CuteTiling):
    """Keys of a step, and how many steps are in shared memory."""

    keys: int = option(128, "keys per step", minimum=16)
    stages: int = option(2, "steps of keys and of values in shared memory", minimum=1)

    def validate(self, plan: KernelPlan) -> None:
        super().validate(plan)
        assert isinstance(plan, AttentionProblem)
        require_room(self.keys, self.stages, plan.d, plan.d)


def require_room(keys: int, stages: int, d_qk: int, d_v: int) -> None:
    """Raise TilingError unless ``stages`` steps of ``keys`` keys fit beside the queries."""
    require_multiple(16, keys=keys)
    if keys > MAX_KEYS:
        raise TilingError(f"keys={keys} exceeds {MAX_KEYS}: scores and weights would spill")
    require_shared_memory(
        SHARED_BYTES,
        queries=GROUPS * ROWS * d_qk * ELEMENT_BYTES,
        stages=stages * keys * (d_qk + d_v) * ELEMENT_BYTES,
        barriers=BARRIER_BYTES,
    )


@dataclass(frozen=True, kw_only=True)
class HopperPlan(AttentionProblem, KernelPlan):
    """Problems whose head dimension is whole slabs, and their launch."""

    def validate(self) -> None:
        super().validate()
        if self.d not in (SLAB, 2 * SLAB):
            raise PlanError(f"d={self.d} is not {SLAB} or {2 * SLAB}")

    def launch(
        self,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        inputs: tuple[torch.Tensor, ...],
    ) -> RuntimeObject:
        """A launch on ``inputs`` and fresh outputs.

        Args:
            kernel_fn: The device function; its name is the stage's.
            host_fn: The host function for a tiling.
            inputs: q, k, v.
        """
        q, k, v = inputs
        o = self.empty_output(q.device)
        lse = self.empty(self.b, self.h, self.s, device=q.device, fp32=True)
        arguments = (*(Dynamic(x, (0, 1, 2)) for x in (q, k, v, o, lse)), self.d**-0.5 / LN_2)
        stage = next(iter(self.tiling_types))
        return CuteKernel(
            kernel_fn,
            lambda x: (host_fn(x), arguments),
            input_tensors={"q": q, "k": k, "v": v},
            output_tensors={"o": o},
            tiling=self.tiling(stage),
            autotune_configs=self._autotune_configs()[stage],
            algorithmic_flops_bytes_fn=self._algorithmic_flops_bytes,
        )


# ---- views of tensors ----------------------------------------------------------------------
def by_group(x, groups):
    """Queries or outputs [b, h, s, w] as [s, members, w, h, groups]; members are neighbors in b."""
    b, h, s, w = x.shape
    members = b // groups
    return cute.make_tensor(
        x.iterator,
        cute.make_layout(
            (s, members, w, h, groups), stride=(w, h * s * w, 1, s * w, members * h * s * w)
        ),
    )


def sums_by_group(x, groups):
    """[b, h, s] as [s, members, h, groups]."""
    b, h, s = x.shape
    members = b // groups
    return cute.make_tensor(
        x.iterator,
        cute.make_layout((s, members, h, groups), stride=(1, h * s, s, members * h * s)),
    )


def slab_layout(dtype, rows, count):
    """Shared memory of slabs ``rows`` x 64, 128-byte swizzle: [rows, 64, count]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (rows, SLAB, count), order=(0, 1, 2))


def shared_slabs(memory, dtype, rows, count):
    """Shared memory as slabs: [rows, 64, count]."""
    layout = slab_layout(dtype, rows, count)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def rectangle(tile_s, count=1):
    """Slabs of 64 rows as rectangles: [tile_s, 64 / tile_s, 64, count]."""
    return cute.make_layout(
        (tile_s, ROWS // tile_s, SLAB, count), stride=(SLAB, SLAB * tile_s, 1, SLAB * ROWS)
    )


def value_layout(dtype, width, keys, stages):
    """Slabs of values as the B operand of the output: the same bytes, [width, keys, stages]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, dtype)
    return cute.tile_to_shape(atom, (width, keys, stages), order=(1, 0, 2))


def tma_rows(operation, x, tile_s):
    """TMA copies of rectangles of ``x`` [s, members, w, h, groups], and its coordinates."""
    box = rectangle(tile_s)
    swizzle = slab_layout(x.element_type, ROWS, 1).inner
    box = cute.make_composed_layout(swizzle, 0, cute.select(box, mode=[0, 1, 2]))
    return tuple(cpasync.make_tiled_tma_atom(operation, x, box, (tile_s, ROWS // tile_s, SLAB)))


def tma_keys(x, keys):
    """TMA loads of ``keys`` x 64 of ``x`` [t, w, h, groups], and its coordinates."""
    box = cute.slice_(slab_layout(x.element_type, keys, 1), (None, None, 0))
    load = cpasync.CopyBulkTensorTileG2SOp()
    return tuple(cpasync.make_tiled_tma_atom(load, x, box, (keys, SLAB)))


def row_parts(atom, slabs, x, tile_s):
    """Rectangles of ``slabs`` [64, 64, count] and of ``x``: operands of a TMA copy.

    The second is [box, tile of s, tile of members, slab, h, groups].
    """
    boxes = cute.make_tensor(slabs.iterator, rectangle(tile_s, cute.size(slabs, mode=[2])))
    return cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(boxes, 0, 3),
        cute.group_modes(cute.local_tile(x, (tile_s, ROWS // tile_s, SLAB), (None,) * 5), 0, 3),
    )


def key_parts(atom, slabs, x, keys):
    """Boxes of ``slabs`` and of ``x`` [box, tile of t, slab, h, groups]: operands of a copy."""
    return cpasync.tma_partition(
        atom,
        0,
        cute.make_layout(1),
        cute.group_modes(slabs, 0, 2),
        cute.group_modes(cute.local_tile(x, (keys, SLAB), (None,) * 4), 0, 2),
    )


# ---- matrix products -----------------------------------------------------------------------
def score_mma(dtype, keys):
    """Scores [64, keys] of a warpgroup, both operands K-major in shared memory."""
    k_major = warpgroup.OperandMajorMode.K
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, k_major, Float32, (1, 1, 1), (ROWS, keys), SMEM
    )


def output_mma(dtype, width):
    """Output [64, width] of a warpgroup: weights from registers, values MN-major."""
    k_major, mn_major = warpgroup.OperandMajorMode.K, warpgroup.OperandMajorMode.MN
    return hopper_helpers.make_trivial_tiled_mma(
        dtype, dtype, k_major, mn_major, Float32, (1, 1, 1), (ROWS, width), RMEM
    )


def operand_layout(keys):
    """Registers of [64, keys] as the A operand of its MMA steps; flat, it is the C layout."""
    return cute.make_layout(((2, 2, 2), 1, keys // 16), stride=((1, 2, 4), 0, 8))


def reduced(combine, values):
    """Values combined pairwise, as a tree, which has few steps that wait for each other."""
    while len(values) > 1:
        pairs = [combine(*values[i : i + 2]) for i in range(0, len(values) - 1, 2)]
        values = pairs + values[len(pairs) * 2 :]
    return values[0]


class Work(NamedTuple):
    """Extents of a launch."""

    queries: Int32
    members: Int32
    heads: Int32
    groups: Int32
    splits: Int32
    keys: Int32


class Item(NamedTuple):
    """What a block works on: two tiles of rows of a head, and a range of key tiles."""

    pair: Int32
    head: Int32
    group: Int32
    split: Int32
    first: Int32  # key tile
    tiles: Int32  # how many


class Warpgroup(NamedTuple):
    """Views and registers of one consumer warpgroup; vectors of two are its thread's two rows."""

    number: Int32
    q: cute.Tensor  # operand A: [64, 64] x slabs of both warpgroups
    k: cute.Tensor  # operand B: [keys, 64] x slabs of all stages
    v: cute.Tensor  # operand B: [d_v, keys] x stages
    score: cute.Tensor  # [64, keys] fp32 accumulator
    out: cute.Tensor  # [64, d_v] fp32 accumulator
    weights: cute.Tensor  # [64, keys] operand A in registers
    row_max: cute.Tensor  # in units of log2
    row_sum: cute.Tensor  # over the thread's own columns
    shrink: cute.Tensor  # factor that a raised maximum puts on older sums
    limit: cute.Tensor  # one past the last key that its rows see, and that all of the 64 do
    scale_log2: Float32
    row: Int32  # first row of the thread; the second is eight below
    lane: Int32


@dataclass(frozen=True)
class Shape:
    """What a kernel is compiled for.

    Attributes:
        d_qk: Width of the scores' products, in slabs of 64.
        d_v: Width of a value.
        keys: Keys of a step.
        stages: Steps in shared memory.
        causal: Bottom-right aligned mask; of groups of one member only.
        tile_s: Queries of a row tile; a power of two up to 64.
        apart: The two warpgroups take alternate steps of the same rows, not rows of their own.
    """

    d_qk: int
    d_v: int
    keys: int = 128
    stages: int = 2
    causal: bool = False
    tile_s: int = ROWS
    apart: bool = False

    @property
    def parts(self) -> int:
        """Outputs of a block for the same rows."""
        return GROUPS if self.apart else 1

    @property
    def q_slabs(self) -> int:
        """Slabs of a row of queries and of keys."""
        return self.d_qk // SLAB

    @property
    def v_slabs(self) -> int:
        """Slabs of a row of values and of the output."""
        return self.d_v // SLAB


# ---- the kernel around a version's main loop -----------------------------------------------
class Attention:
    """Host and device half; a version adds its kernel and ``attend``, its main loop.

    Three warps load (queries, keys, values), two warpgroups compute. Keys go backward, so that
    tiles that need the mask come first.
    """

    def __init__(self, shape: Shape, blocks: int | None = None):
        self.shape = shape
        self.blocks = blocks

    # ---- host half -------------------------------------------------------------------------
    @cute.jit
    def __call__(
        self,
        q: cute.Tensor,
        k: cute.Tensor,
        v: cute.Tensor,
        o: cute.Tensor,
        lse: cute.Tensor,
        scale_log2: Float32,
        stream: cuda.CUstream,
    ):
        """Launch on q and o [b,h,s,d], k and v [b,h,t,d], lse [b,h,s]."""
        b = q.shape[0]
        key, value = [
            cute.make_tensor(x.iterator, cute.select(x.layout, mode=[2, 3, 1, 0])) for x in (k, v)
        ]
        outputs = (by_group(o, b), sums_by_group(lse, b))
        self.start((by_group(q, b),), (key,), value, outputs, scale_log2, stream)

    @cute.jit
    def start(self, queries, keys, value, outputs, scale_log2, stream):
        """Launch on views as ``prepare`` takes them."""
        operands = self.prepare(queries, keys, value, outputs)
        count = self.items(self.work(outputs[0], value))[1]
        self.device()(*operands, scale_log2).launch(
            grid=(
                count if const_expr(self.blocks is None) else cutlass.min(count, self.blocks),
                1,
                1,
            ),
            block=(THREADS, 1, 1),
            stream=stream,
            min_blocks_per_mp=1,
        )

    @cute.jit
    def prepare(self, queries, keys, value, outputs):
        """Shared memory, and what the device function takes before the scale.

        Args:
            queries: Parts [s, members, w, h, groups] whose widths add up to d_qk.
            keys: The same parts of the keys [t, w, h, groups]; a part with one head serves all.
            value: Values [t, d_v, h, groups].
            outputs: o [s, members, d_v, h, splits * groups], lse [s, members, h, splits * groups].
        """
        shape, o = self.shape, outputs[0]
        dtype = self.dtype = o.element_type

        @cute.struct
        class Storage:
            q_full: cute.struct.MemRange[cutlass.Int64, GROUPS]
            q_free: cute.struct.MemRange[cutlass.Int64, GROUPS]
            k_full: cute.struct.MemRange[cutlass.Int64, shape.stages]
            k_free: cute.struct.MemRange[cutlass.Int64, shape.stages]
            v_full: cute.struct.MemRange[cutlass.Int64, shape.stages]
            v_free: cute.struct.MemRange[cutlass.Int64, shape.stages]
            q: cute.struct.Align[cute.struct.MemRange[dtype, GROUPS * ROWS * shape.d_qk], 1024]
            k: cute.struct.Align[
                cute.struct.MemRange[dtype, shape.stages * shape.keys * shape.d_qk], 1024
            ]
            v: cute.struct.Align[
                cute.struct.MemRange[dtype, shape.stages * shape.keys * shape.d_v], 1024
            ]

        self.storage = Storage
        load, store = cpasync.CopyBulkTensorTileG2SOp(), cpasync.CopyBulkTensorTileS2GOp()
        q_loads = tuple([tma_rows(load, x, shape.tile_s) for x in queries])
        k_loads = tuple([tma_keys(x, shape.keys) for x in keys])
        v_load, o_store = tma_keys(value, shape.keys), tma_rows(store, o, shape.tile_s)
        return q_loads, k_loads, v_load, o_store, outputs[1]

    # ---- items -----------------------------------------------------------------------------
    def work(self, o, value):
        """Extents, from the outputs and the values."""
        keys, _, heads, groups = value.shape
        splits = o.shape[4] // (groups * self.shape.parts)
        return Work(o.shape[0], o.shape[1], heads, groups, splits, keys)

    def items(self, work):
        """Blocks' worth of row tiles of a head, and items."""
        shape = self.shape
        tiles = cute.ceil_div(work.queries, shape.tile_s)
        tiles = tiles * cute.ceil_div(work.members, ROWS // shape.tile_s)
        pairs = tiles if shape.apart else cute.ceil_div(tiles, GROUPS)
        return pairs, pairs * work.heads * work.groups * work.splits

    @cute.jit
    def place(self, work, item):
        """The item's rows and keys; under a mask, of a head what takes longest comes first."""
        pairs, _ = self.items(work)
        pair, head, outer = item % pairs, item // pairs % work.heads, item // pairs // work.heads
        seen = work.keys
        if const_expr(self.shape.causal):
            pair = pairs - 1 - pair
            last = cutlass.min((pair + 1) * GROUPS * ROWS, work.queries)
            seen = work.keys - work.queries + last
        total, split = cute.ceil_div(seen, self.shape.keys), outer // work.groups
        first = total * split // work.splits
        tiles = total * (split + 1) // work.splits - first
        return Item(pair, head, outer % work.groups, split, first, tiles)

    def steps(self, item):
        """Places in the rings that an item takes: at least one per warpgroup."""
        parts = self.shape.parts
        return cutlass.max(cute.ceil_div(item.tiles, parts), 1) * parts

    def rows_of(self, work, item, number):
        """Tile of queries and tile of members of a warpgroup."""
        tile = item.pair if self.shape.apart else item.pair * GROUPS + number
        tiles = cute.ceil_div(work.queries, self.shape.tile_s)
        return tile % tiles, tile // tiles

    def output_of(self, work, item, number):
        """Place of a warpgroup's output among those of all groups and splits."""
        split = item.split * GROUPS + number if self.shape.apart else item.split
        return split * work.groups + item.group

    # ---- device half -----------------------------------------------------------------------
    @cute.jit
    def run(self, q_loads, k_loads, v_load, o_store, lse, scale_log2):
        """All roles of a block."""
        warp_index = cute.arch.make_warp_uniform(cute.arch.warp_idx())
        storage = SmemAllocator().allocate(self.storage)
        self.init_barriers(storage, warp_index)
        operands = (q_loads, k_loads, v_load, o_store, lse)
        if warp_index >= WARPS:
            cute.arch.setmaxregister_decrease(PRODUCER_REGISTERS)
            self.load(storage, operands, warp_index - WARPS)
        else:
            cute.arch.setmaxregister_increase(CONSUMER_REGISTERS)
            self.consume(storage, operands, scale_log2, warp_index // 4)

    @cute.jit
    def load(self, storage, operands, warp_index):
        """A warp for each operand."""
        q_loads, k_loads, v_load, o_store, _ = operands
        work = self.work(o_store[1], v_load[1])
        if warp_index == 0:
            self.produce_queries(storage, work, q_loads)
        if warp_index == 1:
            self.produce_keys(storage, work, k_loads)
        if warp_index == 2:
            self.produce_values(storage, work, v_load)

    def walk(self):
        """First item of a block, and how many blocks take turns."""
        return cute.arch.block_idx()[0], cute.arch.grid_dim()[0]

    @cute.jit
    def init_barriers(self, storage, warp_index):
        if warp_index == 0:
            with cute.arch.elect_one():
                for i in range_constexpr(GROUPS):
                    cute.arch.mbarrier_init(storage.q_full.data_ptr() + i, 1)
                    cute.arch.mbarrier_init(storage.q_free.data_ptr() + i, 1)
                for stage in range_constexpr(self.shape.stages):
                    for full in (storage.k_full, storage.v_full):
                        cute.arch.mbarrier_init(full.data_ptr() + stage, 1)
                    for free in (storage.k_free, storage.v_free):
                        cute.arch.mbarrier_init(free.data_ptr() + stage, WARPS // self.shape.parts)
        cute.arch.mbarrier_init_fence()
        cute.arch.sync_threads()

    # ---- producer warps --------------------------------------------------------------------
    @cute.jit
    def produce_queries(self, storage, work, q_loads):
        """One warp: both warpgroups' rows of every item."""
        slabs, count = self.shape.q_slabs, self.items(work)[1]
        s_q = shared_slabs(storage.q, self.dtype, ROWS, GROUPS * slabs)
        full, free = storage.q_full.data_ptr(), storage.q_free.data_ptr()
        sources = self.sources(q_loads, row_parts, s_q, self.shape.tile_s)
        taken = Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            for number in range_constexpr(GROUPS):
                tile_s, tile_m = self.rows_of(work, item, number)
                cute.arch.mbarrier_wait(free + number, (taken & 1) ^ 1)
                self.expect(full + number, ROWS * self.shape.d_qk)
                for slab in range_constexpr(slabs):
                    atom, shared, source, inner = sources[slab]
                    cute.copy(
                        atom,
                        source[None, tile_s, tile_m, inner, item.head, item.group],
                        shared[None, number * slabs + slab],
                        tma_bar_ptr=full + number,
                    )
            taken = taken + 1

    @cute.jit
    def produce_keys(self, storage, work, k_loads):
        """One warp: tiles of keys, as places in their ring come free."""
        shape = self.shape
        s_k = shared_slabs(storage.k, self.dtype, shape.keys, shape.stages * shape.q_slabs)
        sources = self.sources(k_loads, key_parts, s_k, shape.keys)
        self.produce(work, storage.k_full.data_ptr(), storage.k_free.data_ptr(), sources)

    @cute.jit
    def produce_values(self, storage, work, v_load):
        """One warp: tiles of values, likewise."""
        shape = self.shape
        s_v = shared_slabs(storage.v, self.dtype, shape.keys, shape.stages * shape.v_slabs)
        sources = self.sources([v_load], key_parts, s_v, shape.keys)
        self.produce(work, storage.v_full.data_ptr(), storage.v_free.data_ptr(), sources)

    def sources(self, loads, parts, shared, tile):
        """For each slab of a row: atom, shared boxes, boxes in memory, and slab of its part."""
        found = []
        for atom, x in loads:
            boxes, source = parts(atom, shared, x, tile)
            width = x.shape[-3]
            found += [(atom, boxes, source, inner) for inner in range(width // SLAB)]
        return found

    @cute.jit
    def produce(self, work, full, free, sources):
        """One warp: ``sources`` of every key tile of every item, from the last tile back."""
        shape, count = self.shape, self.items(work)[1]
        slabs, done = len(sources), Int32(0)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            steps = self.steps(item)
            for i in cutlass.range(steps, unroll=1):
                place, tile = (done + i) % shape.stages, item.first + steps - 1 - i
                cute.arch.mbarrier_wait(free + place, ((done + i) // shape.stages & 1) ^ 1)
                self.expect(full + place, shape.keys * SLAB * slabs)
                for slab in range_constexpr(slabs):
                    atom, shared, source, inner = sources[slab]
                    cute.copy(
                        atom,
                        source[None, tile, inner, item.head, item.group],
                        shared[None, place * slabs + slab],
                        tma_bar_ptr=full + place,
                    )
            done = done + steps

    @cute.jit
    def expect(self, barrier, elements):
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive_and_expect_tx(barrier, elements * ELEMENT_BYTES)

    # ---- consumer warpgroups ---------------------------------------------------------------
    @cute.jit
    def consume(self, storage, operands, scale_log2, number):
        """One warpgroup: 64 rows of every item."""
        _, _, v_load, o_store, lse = operands
        work = self.work(o_store[1], v_load[1])
        count = self.items(work)[1]
        wg = self.warpgroup(storage, scale_log2, number)
        taken, done = Int32(0), Int32(0)  # items and places in the rings before this item
        self.enter(wg)
        first, blocks = self.walk()
        for index in cutlass.range(first, count, blocks, unroll=1):
            item = self.place(work, index)
            steps = self.steps(item)
            self.reset(wg, work, item)
            cute.arch.mbarrier_wait(storage.q_full.data_ptr() + number, taken & 1)
            self.attend(wg, storage, item, steps // self.shape.parts, done)
            self.finish(wg, storage, work, item, o_store, lse)
            taken, done = taken + 1, done + steps
        self.leave(wg)

    def enter(self, wg):
        """What a version does before the first item."""

    def leave(self, wg):
        """What a version does after the last item."""

    def place_of(self, wg, done, i):
        """Place in the rings of a warpgroup's step ``i``."""
        return done + i * GROUPS + wg.number if self.shape.apart else done + i

    def tile_of(self, wg, item, steps, i):
        """Key tile of a warpgroup's step ``i`` out of ``steps``."""
        if self.shape.apart:
            return item.first + (steps - i) * GROUPS - 1 - wg.number
        return item.first + steps - 1 - i

    @cute.jit
    def warpgroup(self, storage, scale_log2, number):
        """Views and registers of a warpgroup."""
        shape, dtype = self.shape, self.dtype
        thread = cute.arch.thread_idx()[0] % 128
        lane = thread % 32
        s_q = shared_slabs(storage.q, dtype, ROWS, GROUPS * shape.q_slabs)
        s_k = shared_slabs(storage.k, dtype, shape.keys, shape.stages * shape.q_slabs)
        v_layout = value_layout(dtype, shape.d_v, shape.keys, shape.stages)
        s_v = storage.v.get_tensor(v_layout.outer, swizzle=v_layout.inner)
        score = score_mma(dtype, shape.keys).get_slice(thread)
        out = output_mma(dtype, shape.d_v).get_slice(thread)
        two = cute.make_layout(2)
        return Warpgroup(
            number=number,
            q=score.make_fragment_A(score.partition_A(s_q)),
            k=score.make_fragment_B(score.partition_B(s_k)),
            v=out.make_fragment_B(out.partition_B(s_v)),
            score=score.make_fragment_C(score.partition_shape_C((ROWS, shape.keys))),
            out=out.make_fragment_C(out.partition_shape_C((ROWS, shape.d_v))),
            weights=cute.make_rmem_tensor(operand_layout(shape.keys), dtype),
            row_max=cute.make_rmem_tensor(two, Float32),
            row_sum=cute.make_rmem_tensor(two, Float32),
            shrink=cute.make_rmem_tensor(two, Float32),
            limit=cute.make_rmem_tensor(cute.make_layout(3), Int32),
            scale_log2=scale_log2,
            row=thread // 32 * 16 + lane // 4,
            lane=lane,
        )

    @cute.jit
    def reset(self, wg, work, item):
        """Empty sums, and how far the rows see."""
        wg.out.fill(0.0)
        wg.row_max.fill(LOWEST)
        wg.row_sum.fill(0.0)
        end = cutlass.min((item.first + item.tiles) * self.shape.keys, work.keys)
        wg.limit.fill(end)
        if const_expr(self.shape.causal):
            first = (item.pair * GROUPS + wg.number) * ROWS + (work.keys - work.queries + 1)
            wg.limit[0] = cutlass.min(first + wg.row, end)
            wg.limit[1] = cutlass.min(first + wg.row + 8, end)
            wg.limit[2] = cutlass.min(first, end)

    # ---- steps of a main loop --------------------------------------------------------------
    @cute.jit
    def scores(self, wg, storage, place):
        """Issue S = Q K^T once the keys have landed, as one commit group."""
        stages, slabs = self.shape.stages, self.shape.q_slabs
        stage = cute.arch.make_warp_uniform(place % stages)
        cute.arch.mbarrier_wait(storage.k_full.data_ptr() + stage, place // stages & 1)
        mma = score_mma(self.dtype, self.shape.keys)
        warpgroup.fence()
        for slab in range_constexpr(slabs):
            for step in range_constexpr(SLAB // 16):
                mma.set(warpgroup.Field.ACCUMULATE, slab + step > 0)
                q = wg.q[None, None, step, wg.number * slabs + slab]
                k = wg.k[None, None, step, stage * slabs + slab]
                cute.gemm(mma, wg.score, q, k, wg.score)
        warpgroup.commit_group()

    @cute.jit
    def accumulate(self, wg, storage, place):
        """Issue O += P V once the values have landed, as one commit group."""
        stages = self.shape.stages
        stage = cute.arch.make_warp_uniform(place % stages)
        cute.arch.mbarrier_wait(storage.v_full.data_ptr() + stage, place // stages & 1)
        mma = output_mma(self.dtype, self.shape.d_v)
        mma.set(warpgroup.Field.ACCUMULATE, True)
        warpgroup.fence()
        for step in range_constexpr(self.shape.keys // 16):
            v = wg.v[None, None, step, stage]
            cute.gemm(mma, wg.out, wg.weights[None, None, step], v, wg.out)
        warpgroup.commit_group()

    @cute.jit
    def softmax(self, wg, tile):
        """Scores to weights under a running maximum; ``shrink`` is what older sums are worth."""
        keys = self.shape.keys
        if (tile + 1) * keys > wg.limit[2]:
            self.mask(wg, tile * keys)
        for r in range_constexpr(2):
            mine = [4 * j + 2 * r + i for j in range(keys // 8) for i in range(2)]
            top = reduced(cute.arch.fmax, [wg.score[i] for i in mine])
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 1))
            top = cute.arch.fmax(top, cute.arch.shuffle_sync_bfly(top, 2))
            new = cute.arch.fmax(wg.row_max[r], top * wg.scale_log2)
            wg.shrink[r] = cute.math.exp2(wg.row_max[r] - new, fastmath=True)
            wg.row_max[r] = new
            for i in mine:
                wg.score[i] = cute.math.exp2(wg.score[i] * wg.scale_log2 - new, fastmath=True)
            total = reduced(operator.add, [wg.score[i] for i in mine])
            wg.row_sum[r] = wg.row_sum[r] * wg.shrink[r] + total

    @cute.jit
    def mask(self, wg, first):
        """Hide the keys that a row does not see, in a tile that begins with key ``first``."""
        for i in range_constexpr(cute.size(wg.score)):
            key = first + 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            hidden = key >= wg.limit[i // 2 % 2]
            wg.score[i] = -Float32.inf if hidden else wg.score[i]

    @cute.jit
    def round_weights(self, wg):
        """Weights in the element type, as the A operand."""
        flat = cute.make_tensor(wg.weights.iterator, wg.score.layout)
        flat.store(wg.score.load().to(self.dtype))

    @cute.jit
    def rescale(self, wg):
        """What older sums are worth under the raised maximum."""
        for i in range_constexpr(cute.size(wg.out)):
            wg.out[i] = wg.out[i] * wg.shrink[i // 2 % 2]

    @cute.jit
    def release(self, free, place):
        """A warp has read a place of a ring."""
        with cute.arch.elect_one():
            cute.arch.mbarrier_arrive(free.data_ptr() + place % self.shape.stages)

    # ---- end of an item --------------------------------------------------------------------
    @cute.jit
    def finish(self, wg, storage, work, item, o_store, lse):
        """Divide by the row sums, store output and LSE, and give the queries' place back."""
        tile_s, tile_m = self.rows_of(work, item, wg.number)
        output = self.output_of(work, item, wg.number)
        for r in range_constexpr(2):
            total = wg.row_sum[r]
            total = total + cute.arch.shuffle_sync_bfly(total, 1)
            total = total + cute.arch.shuffle_sync_bfly(total, 2)
            wg.row_sum[r] = total
            wg.shrink[r] = Float32(0.0) if total == 0.0 else Float32(1.0) / total
        self.rescale(wg)
        self.store_lse(wg, work, lse[None, None, item.head, output], tile_s, tile_m)
        self.store_output(wg, storage, o_store, (tile_s, tile_m), item.head, output)

    @cute.jit
    def store_lse(self, wg, work, lse, tile_s, tile_m):
        """The natural logarithm of the sum of exponentials: of no key, minus infinity."""
        width = self.shape.tile_s
        for r in range_constexpr(2):
            row = wg.row + 8 * r
            query, member = tile_s * width + row % width, tile_m * (ROWS // width) + row // width
            if (query < work.queries) & (member < work.members) & (wg.lane % 4 == 0):
                value = wg.row_max[r] + cute.math.log2(wg.row_sum[r], fastmath=True)
                lse[query, member] = value * LN_2

    @cute.jit
    def store_output(self, wg, storage, o_store, rows, head, output):
        """Registers to the place of the own queries, and on by TMA, which clips the edges."""
        shape, number = self.shape, wg.number
        slabs = shared_slabs(storage.q, self.dtype, ROWS, GROUPS * shape.q_slabs)
        first = number * shape.q_slabs
        stmatrix = cute.make_copy_atom(warp.StMatrix8x8x16bOp(False, 4), self.dtype)
        copy = cute.make_tiled_copy_C(stmatrix, score_mma(self.dtype, SLAB))
        mine = copy.get_slice(cute.arch.thread_idx()[0] % 128)
        rounded = cute.make_rmem_tensor(wg.out.layout, self.dtype)
        rounded.store(wg.out.load().to(self.dtype))
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        for j in range_constexpr(shape.v_slabs):
            part = cute.make_tensor(rounded.iterator + j * 32, cute.make_layout(((2, 2, 8), 1, 1)))
            cute.copy(copy, mine.retile(part), mine.partition_D(slabs[None, None, first + j]))
        cute.arch.fence_proxy("async.shared", space="cta")
        cute.arch.barrier(barrier_id=EPILOGUE + number, number_of_threads=128)
        if cute.arch.make_warp_uniform(cute.arch.warp_idx()) % 4 == 0:
            parts, out = row_parts(o_store[0], slabs, o_store[1], shape.tile_s)
            for j in range_constexpr(shape.v_slabs):
                target = out[None, rows[0], rows[1], j, head, output]
                cute.copy(o_store[0], parts[None, first + j], target)
            cute.arch.cp_async_bulk_commit_group()
            cute.arch.cp_async_bulk_wait_group(0, read=True)
            with cute.arch.elect_one():
                cute.arch.mbarrier_arrive(storage.q_free.data_ptr() + number)
