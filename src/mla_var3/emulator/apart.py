"""Tells which stores of one instruction are taken one warp after the other, so that races show.

Warps that run together store at once. Where two of them store to one place, no order of theirs
could be held against the other unless one comes first.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOGETHER = (slice(None),)


def by_warps(place: NDArray[Any], warp: NDArray[Any]) -> tuple[slice, ...]:
    """Stores that are taken together: all, or where warps meet in a place, those of each warp.

    Args:
        place: Where each store goes [n]; two of them meet where these are equal.
        warp: Whose it is [n], in order.
    """
    if not len(warp) or warp[0] == warp[-1]:
        return TOGETHER
    ordered = np.sort(place)
    if not np.count_nonzero(ordered[1:] == ordered[:-1]):
        return TOGETHER
    order = np.argsort(place, kind="stable")
    ordered, whose = place[order], warp[order]
    if not np.count_nonzero((ordered[1:] == ordered[:-1]) & (whose[1:] != whose[:-1])):
        return TOGETHER
    edges = [0, *(np.flatnonzero(warp[1:] != warp[:-1]) + 1).tolist(), len(warp)]
    return tuple(slice(low, high) for low, high in itertools.pairwise(edges))
