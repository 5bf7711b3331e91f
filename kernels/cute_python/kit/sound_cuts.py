"""What rows of any schedule have to say, whoever made them; and lengths that are hard to cut.

A schedule's host half and its device half are held against each other, which shows no fault that
both have.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from mla_var3.kernel.cute_python.kit.even import Cut
from mla_var3.kernel.cute_python.kit.ordered import Named, order_rows
from mla_var3.kernel.cute_python.kit.slabs import KEYS

#: How much longer than the others a long sequence is.
LONGER = 10
#: The most tiles of a worker: so many times an even share, and so many more. What it costs to
#: begin a sequence makes shares of tiles uneven.
SHARES, MORE = 2, 8


class Part(NamedTuple):
    """Tiles of a sequence that a worker has."""

    worker: int
    name: int
    first: int
    end: int


def lengths_by_chance(chance: random.Random, most: int, workers: int) -> tuple[list[int], int]:
    """Keys of some sequences, and workers: of any lengths, alike, empty, of one tile, one long.

    Args:
        chance: What decides.
        most: Sequences at most.
        workers: Likewise.
    """
    count, mean = chance.randint(1, most), chance.choice((1, KEYS, 300, 2000))
    ragged = [chance.randint(0, 2 * mean) for _ in range(count)]
    long = [mean * LONGER if i == count // 2 else mean for i in range(count)]
    some = [0 if i % 3 == 1 else keys for i, keys in enumerate(ragged)]
    return chance.choice((ragged, [mean] * count, long, some)), chance.randint(1, workers)


def unsound(rows: Sequence[tuple[int, ...]], tiles: Sequence[int], *, ordered: bool) -> str:
    """What is wrong with rows; empty where nothing is.

    Args:
        rows: Of workers; where ``ordered`` also what follows each sequence.
        tiles: Tiles of keys of each sequence.
        ordered: Whether rows name sequences of an order of their own.
    """
    workers = list(rows[: len(rows) - order_rows(len(tiles))] if ordered else rows)
    order = list(range(len(tiles)))
    if ordered:
        order = _order(workers, [x for row in rows[len(workers) :] for x in row])
        if sorted(order) != list(range(len(tiles))):
            return "the order has not each sequence once"
    wrong = _taken(workers, tiles, order) or _shared(workers, tiles, order, ordered)
    loads = [0] * len(workers)
    for part in _parts(workers, tiles, order) if not wrong else ():
        loads[part.worker] += part.end - part.first
    most = SHARES * -(-sum(tiles) // len(workers)) + MORE
    if not wrong and max(loads) > most:
        wrong = f"a worker has {max(loads)} of {sum(tiles)} tiles, and {len(workers)} share these"
    return wrong


def _order(workers: Sequence[tuple[int, ...]], follows: Sequence[int]) -> list[int]:
    order, at = list[int](), workers[0][Named.FIRST]
    while 0 <= at < len(follows) and len(order) <= len(follows):
        order.append(at)
        at = follows[at]
    return order


def _parts(
    workers: Sequence[tuple[int, ...]], tiles: Sequence[int], order: Sequence[int]
) -> Iterator[Part]:
    for worker, row in enumerate(workers):
        place, tile, end, stop = row[: Cut.END_TILE + 1]
        for at in range(place, end + (stop > 0)):
            name = order[at]
            first = tile if at == place else 0
            yield Part(worker, name, first, stop if at == end and stop else tiles[name])


def _taken(workers: Sequence[tuple[int, ...]], tiles: Sequence[int], order: Sequence[int]) -> str:
    """Whether each worker begins where the one before it ends, from the first tile to the last."""
    at = 0, 0
    for worker, row in enumerate(workers):
        begin, end = row[: Cut.TILE + 1], row[Cut.END_SEQUENCE : Cut.END_TILE + 1]
        if begin != at:
            return f"worker {worker} begins at {begin}, and the one before it ends at {at}"
        place, tile = end
        if not begin <= end or place > len(order) or (tile and tile >= tiles[order[place]]):
            return f"worker {worker} ends at {end}, which is no place behind {begin}"
        at = end
    return "" if at == (len(tiles), 0) else f"the last worker ends at {at}"


def _shared(
    workers: Sequence[tuple[int, ...]], tiles: Sequence[int], order: Sequence[int], ordered: bool
) -> str:
    """Whether rows tell who shares a sequence, and what workers begin and end with."""
    names: dict[int, list[int]] = {}
    holders: dict[int, list[int]] = {}
    for part in _parts(workers, tiles, order):
        names.setdefault(part.worker, []).append(part.name)
        if part.first < part.end:
            holders.setdefault(part.name, []).append(part.worker)
    expected = {worker: [-1, -1] for worker in range(len(workers))}
    for those in holders.values():
        if len(those) > 1:
            expected[those[0]][0] = those[-1]
        for later in those[1:]:
            expected[later][1] = those[0]
    for worker, row in enumerate(workers):
        own = names.get(worker, [-1])
        told = [*expected[worker], own[0], own[-1]] if ordered else expected[worker]
        if list(row[Cut.LAST : Cut.LAST + len(told)]) != told:
            return f"worker {worker} is told {list(row[Cut.LAST :])}, and shares {told}"
    return ""
