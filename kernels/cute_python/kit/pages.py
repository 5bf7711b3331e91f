"""TMA loads of keys from a paged KV cache, zero-filled where a sequence has no keys.

A tile of 64 keys is loaded in boxes, each from one page. A box that a sequence fills in part is
loaded from that much higher up, so that its keys lie at its end; what comes before them is in the
same page or outside of it, and TMA makes zeros of the latter. So nothing past the end of a sequence
is read, and values that no weight multiplies are finite.
"""

from __future__ import annotations

import cutlass
import cutlass.cute as cute
from cutlass import Float32, Int32, range_constexpr
from cutlass.cute.nvgpu import cpasync, warpgroup

from mla_var3.kernel.cute_python.kit.slabs import (
    EVICT_FIRST,
    KEYS,
    ROPE_SLAB,
    SLAB,
)

#: Lanes of a warp, each of which finds the page of a box.
LANES = 32


def as_pages(x):
    """[pages, page, w] as [page, w, pages]."""
    return cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0]))


def as_token_rows(x):
    """[b, s, h, w] as [s*h, w, b]: row r is head ``r % h`` of query ``r // h``."""
    b, s, h, width = x.shape
    layout = cute.make_layout((s * h, width, b), stride=(x.stride[2], 1, x.stride[0]))
    return cute.make_tensor(x.iterator, layout)


def box_layout(dtype, box):
    """Shared memory of a box of keys, [box, 64], as it lies in a slab."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    rows = cute.make_layout((min(box, 8), SLAB), stride=(SLAB, 1))
    return cute.tile_to_shape(
        cute.make_composed_layout(atom.inner, 0, rows), (box, SLAB), order=(0, 1)
    )


def page_loads(x, box, share):
    """TMA atom and tensor that load boxes of ``x`` [pages, page, w] into ``share`` CTAs."""
    multicast = cpasync.CopyBulkTensorTileG2SMulticastOp()
    load = multicast if share > 1 else cpasync.CopyBulkTensorTileG2SOp()
    return cpasync.make_tiled_tma_atom(
        load, as_pages(x), box_layout(x.element_type, box), (box, SLAB)
    )


@cute.jit
def first_row(key, kept, page, box: cutlass.Constexpr):
    """Row of a page that a box begins at, whose keys it ends with."""
    row = key % page + kept - box
    return page if kept == 0 else row  # none of them: past the last row there are zeros alone


class PageLoads:
    """Loads of tiles of one sequence after another, this CTA's boxes of them."""

    def __init__(self, tensors, shared, table, box, share, rank, policy=EVICT_FIRST):
        """``tensors`` are atoms and tensors of latents and rotary parts, ``table`` [b, pages].

        ``policy`` is that of L2, None for the usual one.
        """
        self.latent_atom, self.latent, self.rope_atom, self.rope = tensors
        self.boxes = cute.local_tile(shared, (box, SLAB), (None, None, None))
        self.table, self.box, self.share, self.rank = table, box, share, rank
        self.pieces, self.policy = SLAB // share // box, policy

    def key(self, tile):
        """First key of this CTA's part of a tile."""
        return tile * KEYS + self.rank * (KEYS // self.share)

    def entries(self):
        """Registers for the page of each of this CTA's boxes of a tile, one per lane."""
        return cute.make_rmem_tensor(max(self.pieces // LANES, 1), Int32)

    def look_up(self, entries, sequence, length, tile):
        """Find the pages of a tile."""
        for i in range(cute.size(entries)):
            key = self.key(tile) + i * LANES * self.box
            if self.pieces > 1:
                key = key + cute.arch.lane_idx() % self.pieces * self.box
            key = cutlass.max(cutlass.min(key, length - 1), 0)
            # A length beyond the table is the caller's mistake, and must not be read beyond it.
            at = cutlass.min(key // self.latent.shape[0], self.table.shape[1] - 1)
            entries[i] = self.table[sequence, at]

    def place(self, entries, page, key, length, piece):
        """Page and row of a box."""
        kept = cutlass.max(cutlass.min(length - key, self.box), 0)
        row = first_row(key, kept, page, self.box)
        which = entries[piece // LANES]
        if self.pieces > 1:
            which = cute.arch.shuffle_sync(which, piece % LANES)
        return which, row

    def issue(self, slab, entries, tile, length, into, barrier):
        """Load this CTA's boxes of a slab into the shared slab ``into``; from the whole warp."""
        rope = slab == ROPE_SLAB
        atom, source = (self.rope_atom, self.rope) if rope else (self.latent_atom, self.latent)
        page = source.shape[0]
        options = {"tma_bar_ptr": barrier}
        if self.policy is not None:
            options["cache_policy"] = cutlass.Int64(self.policy)
        if self.share > 1:
            options["mcast_mask"] = cutlass.Int16((1 << self.share) - 1)
        for piece in range(self.pieces):
            key = self.key(tile) + piece * self.box
            which, row = self.place(entries, page, key, length, piece)
            moved = cute.domain_offset((row, 0 if rope else SLAB * slab, which), source)
            box = cute.local_tile(moved, (self.box, SLAB), (0, 0, 0))
            target = self.boxes[None, None, self.rank * self.pieces + piece, 0, into]
            to, start = cpasync.tma_partition(
                atom,
                0,
                cute.make_layout(1),
                cute.group_modes(target, 0, 2),
                cute.group_modes(box, 0, 2),
            )
            cute.copy(atom, start, to, **options)


def hide_in_boxes(box):
    """A mask for tiles that came in boxes: keys that a row does not see, and places without keys.

    ``limit`` of the warpgroup has a fourth number: one past the last key of the sequence.
    """

    @cute.jit
    def hide(wg, tile):
        for i in range_constexpr(cute.size(wg.score)):
            column = 8 * (i // 4) + 2 * (wg.lane % 4) + i % 2
            first = tile * KEYS + column // box * box
            kept = cutlass.max(cutlass.min(wg.limit[3] - first, box), 0)
            place = column % box - (box - kept)  # among the keys of the box
            hidden = (place < 0) | (first + place >= wg.limit[i // 2 % 2])
            wg.score[i] = -Float32.inf if hidden else wg.score[i]

    return hide
