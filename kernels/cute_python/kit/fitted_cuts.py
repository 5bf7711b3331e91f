"""Order of sequences and cuts, worked out on the host: parts that fit, and few of them.

Work is counted in half tiles: a tile takes two, an odd one at the end of a part one more, since it
costs nearly a pair. Each worker first takes what is left of the sequence that the worker before it
has cut, then again and again the longest sequence that still fits whole. What room is left at the
end takes the beginning of another one: the longest, or the shortest. The least size of parts that
holds all work is taken; where both hold it, the longest is cut, unless only so there were three
parts of a sequence.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from mla_var3.kernel.cute_python.kit.even import COLUMNS

#: Sizes of parts that are tried, each with either as the one that is cut. A worker leaves less room
#: than a least part and a beginning take, and begins one sequence more than its share, so that one
#: of these holds all (a test shows it).
SIZES = 32
#: Sequences that are sorted; of more the order stays, and each worker has so many that few are cut.
MOST = 1024


class Costs(NamedTuple):
    """What cuts cost, in half tiles.

    Attributes:
        begin: To begin a sequence.
        split: To leave a part of one.
        least: The least part, in tiles.
        alone: The least work of a worker, in tiles; less than a least part where work is short.
    """

    begin: int
    split: int
    least: int
    alone: int


class Fit(NamedTuple):
    """An order of sequences, and where each worker begins: a place in it, and a tile."""

    order: list[int]
    places: list[tuple[int, int]]
    many: bool  # a sequence has three parts and more
    fits: bool


def halves(tiles: int) -> int:
    """Half tiles that so many tiles take."""
    return 2 * tiles + tiles % 2


def room_for(room: int) -> int:
    """Tiles that half tiles are room for."""
    tiles = max(room, 0) // 2
    return tiles - int(halves(tiles) > max(room, 0))


def fit(tiles: Sequence[int], workers: int, size: int, costs: Costs, *, shortest: bool) -> Fit:
    """Fill workers up to a size; the last one takes what is left.

    Args:
        tiles: Tiles of keys of each sequence, at least 1 each.
        workers: Parts.
        size: Of a part, in half tiles.
        costs: What cuts cost.
        shortest: Whether the shortest sequence is cut, and not the longest.
    """
    least = min(costs.least, room_for(size - costs.begin - costs.split))
    names = list(range(len(tiles)))
    if len(names) <= MOST:
        names.sort(key=lambda i: (-tiles[i], i))
    falling = [-tiles[i] for i in names]
    used, order, places = [False] * len(names), list[int](), [(0, 0)]
    rest, begun, parts, most, fits = 0, 0, 0, 1, True
    for worker in range(workers):
        room, last = size, worker == workers - 1
        if rest:
            parts += 1
            most = max(most, parts)
            needs = halves(rest) + costs.begin + costs.split
            fits &= needs <= room or not last
            if needs > room and not last:
                taken = room_for(room - costs.begin - costs.split)
                begun, rest = begun + taken, rest - taken
                places.append((len(order) - 1, begun))
                continue
            rest, room = 0, room - needs
        if last:
            left = [i for i, gone in enumerate(used) if not gone]
            fits &= sum(halves(-falling[i]) + costs.begin for i in left) <= room
            order += [names[i] for i in left]
            break
        while (at := fitting(falling, used, room - costs.begin)) is not None:
            used[at] = True
            order.append(names[at])
            room -= halves(-falling[at]) + costs.begin
        taken = room_for(room - costs.begin - costs.split)
        if len(order) == len(names) or taken < least:
            places.append((len(order), 0))
            continue
        at = used.index(False)
        if shortest and len(names) <= MOST:
            at = max(i for i, gone in enumerate(used) if not gone)
        used[at] = True
        order.append(names[at])
        begun, rest, parts = taken, -falling[at] - taken, 1
        places.append((len(order) - 1, begun))
    places += [(len(order), 0)] * (workers + 1 - len(places))
    return Fit(order, places, most > 2, fits)


def fitting(falling: Sequence[int], used: Sequence[bool], room: int) -> int | None:
    """The longest sequence left that half tiles are room for; where the order stays, the next."""
    longest = next((i for i, gone in enumerate(used) if not gone), None)
    if longest is None or halves(-falling[longest]) <= room:
        return longest
    if len(falling) > MOST:
        return None
    first = bisect_left(falling, -room_for(room))
    return next((i for i in range(first, len(used)) if not used[i]), None)


def fitted_cuts(tiles: Sequence[int], workers: int, costs: Costs) -> list[tuple[int, ...]]:
    """The cuts that ``Fitted`` makes: rows of the workers, as ``Cut`` and ``Named`` name them.

    Below them lie rows that say which sequence follows each one: -1 after the last, and past all.

    Args:
        tiles: Tiles of keys of each sequence, at least 1 each.
        workers: Parts.
        costs: What cuts cost.
    """
    total = sum(halves(n) + costs.begin for n in tiles)
    size = max(-(-total // workers), costs.begin + costs.split + halves(costs.alone))
    for extra in range(SIZES):
        ways = [fit(tiles, workers, size + extra, costs, shortest=x) for x in (False, True)]
        if found := [one for one in ways if one.fits]:
            break
    return named_rows(min(found, key=lambda one: one.many))


def named_rows(made: Fit) -> list[tuple[int, ...]]:
    """Rows of the workers, and below them which sequence follows each one."""
    follows = [-1] * (len(made.order) + -len(made.order) % COLUMNS)
    for one, after in itertools.pairwise(made.order):
        follows[one] = after
    below = [tuple(follows[i : i + COLUMNS]) for i in range(0, len(follows), COLUMNS)]
    return rows_of(made) + below


def rows_of(made: Fit) -> list[tuple[int, ...]]:
    """Rows of the workers."""
    order, places = made.order, made.places
    last, owners, owner = [-1] * (len(places) - 1), [-1] * (len(places) - 1), 0
    for worker, (place, tile) in enumerate(places[:-1]):
        if not tile:
            owner = worker
        elif places[worker - 1][0] != place or not places[worker - 1][1]:
            owner = worker - 1
        if tile:
            last[owner], owners[worker] = worker, owner
    rows = []
    for worker in range(len(places) - 1):
        (first, tile), (end, stop) = places[worker], places[worker + 1]
        final = end if stop else end - 1
        some = (first, tile) < (end, stop)
        names = (order[first], order[final]) if some else (-1, -1)
        rows.append((first, tile, end, stop, last[worker], owners[worker], *names))
    return rows
