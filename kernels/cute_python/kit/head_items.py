"""Work items of per-head attention: query tiles, head and keys of a block, their order, outputs.

Keys go backward, so that tiles that need the mask come first.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import cutlass
import cutlass.cute as cute
from cutlass import Int32, const_expr

from mla_var3.kernel.cute_python.kit.head_tiles import ROWS, SLAB

#: Consumer warpgroups of a block.
GROUPS = 2


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


class HeadItems:
    """Where an item's rows and keys lie, and where its output goes."""

    shape: Shape

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

    def walk(self):
        """First item of a block, and how many blocks take turns."""
        return cute.arch.block_idx()[0], cute.arch.grid_dim()[0]

    def place_of(self, wg, done, i):
        """Place in the rings of a warpgroup's step ``i``."""
        return done + i * GROUPS + wg.number if self.shape.apart else done + i

    def tile_of(self, wg, item, steps, i):
        """Key tile of a warpgroup's step ``i`` out of ``steps``."""
        if self.shape.apart:
            return item.first + (steps - i) * GROUPS - 1 - wg.number
        return item.first + steps - 1 - i
