"""Rings: what of the two tiles of keys, and of the queries, a warpgroup gives back to be refilled.

Each slab of a tile has a full barrier, which counts the bytes of its load. Each half of a tile and
each rope slab has a free barrier, at which every warp that reads it arrives. Tile i and tile i + 2
take the same place, so that phases alternate with the pair of tiles.
"""

from __future__ import annotations

import enum


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
