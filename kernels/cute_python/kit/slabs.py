"""Slabs: swizzled 64 x 64 tiles in shared memory, their layouts, views and TMA atoms."""

from __future__ import annotations

import cutlass.cute as cute
from cutlass.cute.nvgpu import cpasync, warpgroup

#: Rows (head, query) of a CTA, keys of a tile, and the side of the square slabs that TMA moves.
ROWS, KEYS, SLAB = 64, 64, 64
LATENT, ROPE = 512, 64
#: A row of q or of the cache in slabs: eight of the latent part, then the rope slab.
SLABS, ROPE_SLAB = 9, 8
SLAB_BYTES = SLAB * SLAB * 2
#: The latent dimensions that one consumer warpgroup accumulates: half of the output's columns.
HALF = LATENT // 2
#: L2 policy "evict first" of a TMA load: keys of one sequence are of no use to the next.
EVICT_FIRST = 0x12F0000000000000


def slab_layout(dtype, slabs):
    """Shared memory of square slabs, K-major, 128-byte swizzle: [64, 64, slabs]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, dtype)
    return cute.tile_to_shape(atom, (SLAB, SLAB, slabs), order=(0, 1, 2))


def shared_slabs(memory, dtype, slabs):
    """Shared memory as slabs: [64, 64, slabs]."""
    layout = slab_layout(dtype, slabs)
    return memory.get_tensor(layout.outer, swizzle=layout.inner)


def value_layout(dtype):
    """Four slabs of keys read as values: the same bytes, transposed, [256, 64]."""
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.MN_SW128, dtype)
    return cute.tile_to_shape(atom, (HALF, KEYS), order=(1, 0))


def operand_layout():
    """Registers of a 64x64 tile as the A operand of four MMA steps; flat, it is the C layout."""
    return cute.make_layout(((2, 2, 2), 1, 4), stride=((1, 2, 4), 0, 8))


def as_rows(x):
    """[b, h, s, w] as [h*s, w, b]: row r is query ``r % s`` of head ``r // s``."""
    b, h, s, width = x.shape
    return cute.make_tensor(
        x.iterator, cute.make_layout((h * s, width, b), stride=(width, 1, h * s * width))
    )


def as_keys(x):
    """[b, t, w] as [t, w, b]."""
    return cute.make_tensor(x.iterator, cute.select(x.layout, mode=[1, 2, 0]))


def as_vector(x):
    """[b, h, s] as [h*s, b]."""
    b, h, s = x.shape
    return cute.make_tensor(x.iterator, cute.make_layout((h * s, b), stride=(1, h * s)))


def tma_parts(atom, shared, matrix, rank=0, ranks=1):
    """The slabs of ``shared`` and of ``matrix`` [rows, width, b] as operands of a TMA copy.

    Of a multicast to ``ranks`` CTAs, CTA ``rank`` loads its share of each slab.
    """
    slabs = cute.local_tile(matrix, (SLAB, SLAB), (None, None, None))
    return cpasync.tma_partition(
        atom,
        rank,
        cute.make_layout(ranks),
        cute.group_modes(shared, 0, 2),
        cute.group_modes(slabs, 0, 2),
    )


def latent_loads(q, qpe, z, kpe, slab, share=1):
    """TMA loads of queries, and of keys that ``share`` CTAs take in by multicast; with tensors."""
    load = cpasync.CopyBulkTensorTileG2SOp()
    load_q, load_qpe = [
        cpasync.make_tiled_tma_atom(load, as_rows(x), slab, (SLAB, SLAB)) for x in (q, qpe)
    ]
    if share > 1:
        load = cpasync.CopyBulkTensorTileG2SMulticastOp()
    load_z, load_kpe = [
        cpasync.make_tiled_tma_atom(load, as_keys(x), slab, (SLAB, SLAB), num_multicast=share)
        for x in (z, kpe)
    ]
    return (*load_q, *load_qpe), (*load_z, *load_kpe)


class SlabLoads:
    """TMA loads of a tile of 64 rows, slab by slab: eight latent ones, then the rope slab."""

    def __init__(self, latent_atom, latent, rope_atom, rope, shared, rank=0, ranks=1):
        """``latent`` [rows, 512, b] and ``rope`` [rows, 64, b] go to ``shared`` [64, 64, slabs]."""
        self.atoms = (latent_atom, rope_atom)
        parts = [
            tma_parts(atom, shared, x, rank, ranks)
            for atom, x in ((latent_atom, latent), (rope_atom, rope))
        ]
        self.shared = parts[0][0]
        self.sources = tuple(source for _, source in parts)  # [box, row tiles, slabs, b]

    def issue(self, slab, tile, batch, into, barrier, **options):
        """Load ``slab`` of row tile ``tile`` into the shared slab ``into``; from the whole warp."""
        rope = slab == ROPE_SLAB
        source = self.sources[rope][None, tile, 0 if rope else slab, batch]
        cute.copy(self.atoms[rope], source, self.shared[None, into], tma_bar_ptr=barrier, **options)
