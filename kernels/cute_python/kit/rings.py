"""Rings of K and Q slabs in shared memory: full and free mbarriers, and who releases what.

Each slab of a tile has a full barrier, which counts the bytes of its load. Each half of a tile and
each rope slab has a free barrier, at which every warp that reads it arrives. Tile i and tile i + 2
take the same place, so that phases alternate with the pair of tiles.
"""

from __future__ import annotations

import enum

import cutlass
import cutlass.cute as cute
from cutlass import Float32

from mla_var3.kernel.cute_python.kit.slabs import ROWS, SLAB, SLABS


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


#: How many of these there are without those of the queries.
KEY_RINGS = Free.Q


def readers(which, share):
    """Warps that arrive at a free barrier, where ``share`` CTAs read the same keys."""
    return {Free.Q: 8, Free.Q_ROPE: 4}.get(which, 4 * share)


def latent_storage(dtype, q_barriers, rings, more):
    """Shared memory of latent attention: barriers, what rows exchange, then slabs.

    Args:
        dtype: The element type.
        q_barriers: Barriers of the queries.
        rings: Places that are given back.
        more: Fields of an epilogue.
    """
    memory, align = cute.struct.MemRange, cute.struct.Align
    fields = {
        "q_full": memory[cutlass.Int64, q_barriers],
        "full": memory[cutlass.Int64, 2 * SLABS],
        "free": memory[cutlass.Int64, rings],
        "maxima": memory[Float32, 2 * ROWS],
        "sums": memory[Float32, 2 * ROWS],
        **more,
        "q": align[memory[dtype, SLABS * SLAB * SLAB], 1024],
        "kv": align[memory[dtype, 2 * SLABS * SLAB * SLAB], 1024],
        "weights": align[memory[dtype, SLAB * SLAB], 1024],
    }
    return cute.struct(type("Storage", (), {"__annotations__": fields}))
