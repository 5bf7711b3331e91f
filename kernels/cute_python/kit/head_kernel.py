"""Kernel template of per-head attention: three producer warps, two consumer warpgroups."""

from __future__ import annotations

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, const_expr
from cutlass.cute.nvgpu import cpasync
from cutlass.utils import SmemAllocator

from mla_var3.kernel.cute_python.kit.head_epilogue import HeadEpilogue
from mla_var3.kernel.cute_python.kit.head_items import GROUPS, Shape
from mla_var3.kernel.cute_python.kit.head_loads import WARPS, HeadLoads
from mla_var3.kernel.cute_python.kit.head_steps import HeadSteps
from mla_var3.kernel.cute_python.kit.head_tiles import (
    ROWS,
    by_group,
    sums_by_group,
    tma_keys,
    tma_rows,
)

CONSUMERS = GROUPS * 128
THREADS = CONSUMERS + 128
CONSUMER_REGISTERS, PRODUCER_REGISTERS = 240, 24


class HeadKernel(HeadLoads, HeadSteps, HeadEpilogue):
    """Host and device half; a version adds ``attend``, its main loop.

    Args:
        shape: What it is compiled for.
        blocks: Persistent CTAs; None launches one per item.
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

    # ---- device half -----------------------------------------------------------------------
    def device(self):
        """The device function."""
        return self.attention

    @cute.kernel
    def attention(
        self,
        q_loads: tuple,
        k_loads: tuple,
        v_load: tuple,
        o_store: tuple,
        lse: cute.Tensor,
        scale_log2: Float32,
    ):
        """Grid (items), or (persistent CTAs)."""
        self.run(q_loads, k_loads, v_load, o_store, lse, scale_log2)

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
