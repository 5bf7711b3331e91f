"""Names the tiles behind the bars of a timeline of two warpgroups, and what they hand over.

Left makes the weights of even tiles and right those of odd ones; each multiplies first by its own
weights, then by the other's. That order numbers the bars: the trace itself has no tile numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from generators.model.timelines import Bar

Lanes = Mapping[str, Sequence[Bar]]
#: The two warpgroups of the first CTA, the makers of even and of odd weights.
SIDES = ("0 left", "0 right")


@dataclass(frozen=True)
class Named:
    """A stretch of a lane that belongs to one tile of keys."""

    tile: int
    what: str
    start: int
    end: int


@dataclass(frozen=True)
class Handover:
    """Weights of a tile on their way: from the lane and cycle where they are ready to their use."""

    giver: str
    ready: int
    taker: str
    used: int


def named(lanes: Lanes) -> dict[str, list[Named]]:
    """The tiles of each lane's products and loads."""
    # A product with values that stands alone; two in a row are one bar.
    one = min(end - start for side in SIDES for what, start, end in lanes[side] if what == "output")
    found = {name: list(_products(lanes[name], side, one)) for side, name in enumerate(SIDES)}
    for name, bars in lanes.items():
        if name.startswith("0 load "):
            found[name] = list(_loads(bars, int(name.rpartition(" ")[2]) - 1))
    return found


def _products(bars: Sequence[Bar], side: int, one: int) -> Iterator[Named]:
    """A run of scores is of the side's next tile; two products with values follow it."""
    shown = sorted((b for b in bars if b[0] in ("scores", "output")), key=lambda bar: bar[1])
    pair, before, done = -1, "", 0
    for what, start, end in shown:
        if what == "scores":
            if before != "scores":
                pair, done = pair + 1, 0
            yield Named(2 * pair + side, what, start, end)
        else:
            for number in range(round((end - start) / one)):
                tile = 2 * pair + (side + done) % 2
                yield Named(tile, what, start + number * one, start + (number + 1) * one)
                done += 1
        before = what


def _loads(bars: Sequence[Bar], group: int) -> Iterator[Named]:
    """Loaders 1 and 2 bring even tiles, 3 and 4 odd ones; a right half has its rope slab apart."""
    odd, right = divmod(group, 2)
    loads = sorted((bar for bar in bars if bar[0] == "load"), key=lambda bar: bar[1])
    for number, (what, start, end) in enumerate(loads):
        turn = (number + 1) // 2 if right else number
        yield Named(2 * turn + odd, what, start, end)


def handovers(lanes: Lanes) -> list[Handover]:
    """Weights that one side makes and the other multiplies by."""
    tiles, made = named(lanes), []
    for side, giver in enumerate(SIDES):
        taker = SIDES[1 - side]
        ends = [end for what, _, end in lanes[giver] if what == "softmax"]
        for use in tiles[taker]:
            if use.what == "output" and use.tile % 2 == side:
                ready = max((end for end in ends if end <= use.start), default=None)
                if ready is not None:
                    made.append(Handover(giver, ready, taker, use.start))
    return made
