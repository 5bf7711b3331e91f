"""Latent attention kernel with one CTA per work item: a tile of 64 rows of a sequence."""

from __future__ import annotations

from dataclasses import dataclass

import cutlass
import cutlass.cute as cute
from cutlass import const_expr, range_constexpr
from cutlass.cute.nvgpu import warpgroup

from mla_var3.kernel.cute_python.kit.epilogue import Epilogue
from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.masks import seen_by_any
from mla_var3.kernel.cute_python.kit.products import scores
from mla_var3.kernel.cute_python.kit.queries import OnceQueries
from mla_var3.kernel.cute_python.kit.rings import KEY_RINGS, Free
from mla_var3.kernel.cute_python.kit.slabs import (
    KEYS,
    ROPE_SLAB,
    ROWS,
    SLABS,
    SlabLoads,
    shared_slabs,
)
from mla_var3.kernel.cute_python.kit.warpgroups import EVEN_ORDER, Side, views


@dataclass(frozen=True)
class TileSchedule:
    """A CTA per row tile and sequence.

    Attributes:
        causal: Whether the mask is causal.
        splits: CTAs that split the keys of a row tile.
    """

    causal: bool
    splits: int = 1

    def launch(self, q, o):
        """Grid of a launch on q [b,h,s,512]: row tiles, sequences."""
        b, h, s, _ = q.shape
        return {"grid": (cute.ceil_div(h * s, ROWS), b, 1)}

    def work(self, cta, z, o, lse):
        """Row tile, queries, keys, sequence, first key tile, pairs of key tiles."""
        block, batch, split = cta
        queries, keys = lse.shape[2], z.shape[0]
        tiles = cute.ceil_div(seen_by_any(block * ROWS, queries, keys, self.causal), KEYS)
        pairs = cutlass.max(cute.ceil_div(tiles, 2 * self.splits), 1)
        return block, queries, keys, batch, self.first_tile(pairs, split), pairs

    def first_tile(self, pairs, split):
        """The first tile of keys of a CTA."""
        return 0


class TileKernel(LatentKernel):
    """One item per CTA; keys are shared with no other."""

    schedule_type = TileSchedule
    epilogue_type = Epilogue
    queries = OnceQueries()
    rings = KEY_RINGS

    def __init__(self, causal, tiling):
        """Settings.

        Args:
            causal: Whether the mask is causal.
            tiling: A tiling, with or without ``lazy`` and ``splits``; without ``lazy`` a maximum is
                raised in each tile.
        """
        splits = getattr(tiling, "splits", 1)
        self.causal, self.lazy = causal, getattr(tiling, "lazy", None)
        self.share, self.partial = 1, False
        self.schedule = self.schedule_type(causal, splits)
        self.epilogue = self.epilogue_type(splits)

    @cute.jit
    def after_barriers(self):
        """All warps see the barriers."""
        cute.arch.sync_threads()

    def end(self):
        """Nothing is written to another CTA then."""

    @cute.jit
    def produce(self, storage, q_tensors, kv_tensors, work, group: cutlass.Constexpr):
        """One warp: half a tile of each pair; of a right half also the rope slab, first."""
        block, _, _, batch, _, pairs = work
        q_loads = SlabLoads(*q_tensors, shared_slabs(storage.q, self.dtype, SLABS))
        kv_loads = SlabLoads(*kv_tensors, shared_slabs(storage.kv, self.dtype, 2 * SLABS))
        tile, right = group // 2, group % 2
        full, free = storage.full.data_ptr() + tile * SLABS, storage.free.data_ptr()
        self.queries.load(storage, q_loads, block, batch, 0, group)
        for i in cutlass.range(pairs, unroll=1):
            parity = (i & 1) ^ 1
            if const_expr(right):
                cute.arch.mbarrier_wait(free + Free.EVEN_ROPE + tile, parity)
                self.load_slab(kv_loads, 2 * i + tile, batch, tile, ROPE_SLAB, full, None)
            cute.arch.mbarrier_wait(free + group, parity)
            for slab in range_constexpr(4 * right, 4 * right + 4):
                self.load_slab(kv_loads, 2 * i + tile, batch, tile, slab, full, None)

    @cute.jit
    def consume(self, storage, work, scale_log2, outputs, exchanged, side: cutlass.Constexpr):
        """One warpgroup, from its queries to its half of the output."""
        block, _, _, batch, first_tile, pairs = work
        wg = views(storage, self.dtype, scale_log2, side)
        self.start(wg, storage, work, block * ROWS, first_tile * KEYS, 0)
        if const_expr(side == Side.LEFT):
            self.left(wg, pairs, 0, None)
        else:
            self.right(wg, pairs, 0)
        self.epilogue.finish(wg, storage, outputs, exchanged, block, batch, 0, side)

    @cute.jit
    def left(self, wg, pairs, done, queries):
        """Weights of the even tiles, columns 0 to 255 of the output."""
        scores(wg, Side.LEFT, EVEN_ORDER, True, 0)
        warpgroup.wait_group(0)
        self.release(wg, Free.EVEN_ROPE)
        for i in cutlass.range(pairs - 1, unroll=1):
            self.left_pair(wg, i, None, False)
        self.left_pair(wg, pairs - 1, None, True)

    def next_phase(self, i, phase):
        """The phase of the next even tile."""
        return (i + 1) & 1

    @cute.jit
    def release_odd(self, wg, more):
        """The right half of the odd tile: no item follows that the last one would meet."""
        self.release(wg, Free.ODD_RIGHT)

    def release_queries(self, wg, which):
        """No other queries follow."""
