"""Cuts by chance: what any schedule could make, whatever it counts as a cost.

A kernel has to be right for each order and each cut that rows tell. A schedule makes few kinds of
them of the lengths that one tries. Here parts begin and end wherever tiles do, a worker has several
sequences between two parts, and each sequence has the name of the next place.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from mla_var3.kernel.cute_python.kit.fitted_cuts import Fit, named_rows, rows_of

#: How often a worker ends between two tiles of a sequence, and between two sequences.
WITHIN, BETWEEN = 0.7, 0.5
#: Tiles of every other sequence; the ones between have a single one.
LONG = (3, 5)


def scattered_lengths(count: int, tile: int, chance: random.Random) -> list[int]:
    """Keys of sequences: many parts of one come to lie beside one that has none.

    Args:
        count: Sequences.
        tile: Keys of a tile.
        chance: What decides.
    """
    tiles = [chance.randint(*LONG) if i % 2 == 0 else 1 for i in range(count)]
    return [chance.randint((n - 1) * tile + 1, n * tile) for n in tiles]


def scattered_cuts(
    tiles: Sequence[int], chance: random.Random, *, ordered: bool
) -> list[tuple[int, ...]]:
    """Rows of workers that cut sequences by chance; the last worker has nothing to do.

    Args:
        tiles: Tiles of keys of each sequence, at least 1 each.
        chance: What decides.
        ordered: Whether sequences have an order of their own, which rows then name.
    """
    order = [(place + ordered) % len(tiles) for place in range(len(tiles))]
    begins = [(0, 0)]
    for place, name in enumerate(order):
        if place and chance.random() < BETWEEN:
            begins.append((place, 0))
        begins += [(place, tile) for tile in range(1, tiles[name]) if chance.random() < WITHIN]
    made = Fit(order, [*begins, *[(len(tiles), 0)] * 2], many=False, fits=True)
    return named_rows(made) if ordered else [row[:-2] for row in rows_of(made)]
