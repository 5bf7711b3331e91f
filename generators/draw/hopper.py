"""Draws the figures of the Hopper course: TMA boxes, fragments, rings, multicast and schedules.

Each is a function of sizes; ``generators.pages.hopper`` puts them on pages.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping

from generators.draw import shapes
from generators.draw.shapes import BLUE, ORANGE, PURPLE, QUIET, SUNK, rect, text

#: Between two orders of loads in a ring.
APART = 0.25
_COLORS = (BLUE, ORANGE, PURPLE, "var(--series-3)")


@functools.cache
def boxes(rows: int = 13, box: int = 8) -> str:
    """A tensor whose last box reaches over its end."""
    count = -(-rows // box)
    parts, left, high = [], 90, 16
    for row in range(count * box):
        inside = row < rows
        note = f"row {row} of box {row // box}" if inside else "beyond the end: TMA fills zeros"
        parts.append(rect(left, 8 + row * high, 240, high - 2,
                          _COLORS[row // box % 4] if inside else SUNK, note, 0.6))  # fmt: skip
        if not inside:
            parts.append(text(left + 120, 8 + row * high + 11, "0", anchor="middle", size=11))
    for index in range(count):
        middle = 8 + (index + 0.5) * box * high
        parts.append(text(left - 10, middle, f"box {index}", anchor="end"))
    beyond = count * box - rows
    message = (
        f"{rows} rows in boxes of {box}: {count} boxes. Of the last one {beyond} rows lie beyond "
        "the end; they arrive as zeros, and their bytes count."
    )
    drawn = shapes.svg(left + 250, 16 + count * box * high, parts, "Boxes of a tensor", message)
    return shapes.figure(drawn, message)


@functools.cache
def banks(size: int = 8) -> str:
    """In which bank the words of a tile's first rows lie, plain and swizzled."""
    cell, parts = 30, []
    for panel, (title, mixed) in enumerate((("plain: bank = column", 0), ("swizzled: XOR row", 1))):
        left = 62 + panel * (size * cell + 70)
        parts.append(text(left, 16, title, bold=True))
        parts += [text(left + (bank + 0.5) * cell, 36, str(bank), anchor="middle", size=11,
                       fill=QUIET) for bank in range(size)]  # fmt: skip
        for row, column in itertools.product(range(size), range(size)):
            bank = column ^ row if mixed else column
            x, y = left + bank * cell, 42 + row * cell
            color = ORANGE if column == 3 else SUNK
            note = f"row {row}, column {column}: bank {bank}"
            parts.append(rect(x, y, cell - 2, cell - 2, color, note, 0.6))
            parts.append(text(x + cell / 2 - 1, y + 19, str(column), anchor="middle", size=11))
        parts += [text(left - 8, 42 + row * cell + 19, f"row {row}", anchor="end", size=11)
                  for row in range(size)]  # fmt: skip
    touched = {3 ^ row for row in range(size)}
    assert len(touched) == size
    message = (
        f"The first {size} rows and banks of the script's tile. A number is the column whose word "
        f"lies there, and column 3 is colored. Plain, its {size} words share bank 3 and take "
        f"{size} turns; swizzled, they have moved to {size} banks and take one."
    )
    drawn = shapes.svg(2 * (62 + size * cell) + 16, 48 + size * cell, parts, "Banks", message)
    return shapes.figure(drawn, message)


def accumulator_thread(row: int, column: int) -> tuple[int, int]:
    """Warp and lane that hold an element of the accumulator of a wgmma."""
    return row // 16, row % 8 * 4 + column % 8 // 2


@functools.cache
def accumulator() -> str:
    """Who holds the first eight columns of the 64 rows."""
    size, left, top = 30, 70, 24
    shown = [*range(16), *range(16, 64, 16)]
    parts = [text(left + column * size + 14, 16, str(column), anchor="middle", size=11, fill=QUIET)
             for column in range(8)]  # fmt: skip
    for place, row in enumerate(shown):
        y = top + place * 22
        parts.append(text(left - 8, y + 15, f"row {row}", anchor="end", size=11))
        for column in range(8):
            warp, lane = accumulator_thread(row, column)
            note = f"({row}, {column}): warp {warp}, lane {lane}"
            parts.append(rect(left + column * size, y, size - 2, 20, _COLORS[warp], note, 0.55))
            parts.append(
                text(left + column * size + 14, y + 14, str(lane), anchor="middle", size=11)
            )
    assert len({accumulator_thread(r, c) for r, c in itertools.product(range(64), range(8))}) == 128
    message = (
        "The accumulator's first 8 columns; numbers are lanes, colors warps. Each thread holds two "
        "neighbors in two rows of its warp's 16; further columns repeat the pattern."
    )
    drawn = shapes.svg(
        left + 8 * size + 10, top + len(shown) * 22 + 4, parts, "Accumulator", message
    )
    return shapes.figure(drawn, message)


def ring_schedule(
    steps: int, stages: int, load: float, compute: float
) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    """Start and end of each load and of each computation in a ring.

    Args:
        steps: Tiles.
        stages: Of the ring; a load waits until the stage was released.
        load: How long a load takes; one may start while others run.
        compute: How long a computation takes; one at a time.
    """
    loads: list[tuple[float, float]] = []
    done: list[tuple[float, float]] = []
    for step in range(steps):
        free = done[step - stages][1] if step >= stages else 0.0
        asked = max(free, loads[-1][0] + APART if loads else 0.0)
        loads.append((asked, asked + load))
        start = max(loads[step][1], done[-1][1] if done else 0.0)
        done.append((start, start + compute))
    return loads, done


@functools.cache
def ring(steps: int = 6) -> str:
    """One stage and two: what the computing warps see of the loads."""
    load, compute, scale, left = 2.0, 1.5, 26.0, 96
    parts, top, ends = [], 10.0, []
    for stages in (1, 2, 3):
        loads, done = ring_schedule(steps, stages, load, compute)
        words = f"{stages} stage{'s' * (stages > 1)}"
        parts.append(text(left - 10, top + 26, words, anchor="end"))
        for step, (start, end) in enumerate(loads):
            y = top + (step % stages) * 14
            parts.append(rect(left + start * scale, y, (end - start) * scale - 2, 12, BLUE,
                              f"load of tile {step}", 0.6))  # fmt: skip
        y = top + stages * 14 + 2
        for step, (start, end) in enumerate(done):
            parts.append(rect(left + start * scale, y, (end - start) * scale - 2, 16, ORANGE,
                              f"tile {step} is computed"))  # fmt: skip
            parts.append(text(left + (start + end) / 2 * scale, y + 12, str(step), anchor="middle",
                              size=11))  # fmt: skip
        ends.append(done[-1][1])
        top = y + 34
    idle = [end - steps * compute for end in ends]
    message = (
        f"{steps} tiles; a load (blue) takes {load:g}, a computation (orange) {compute:g}. "
        f"With one stage the computing warps wait {idle[0]:g} in all, with two {idle[1]:g}, with "
        f"three {idle[2]:g}, which is the first load. One warp orders the loads, {APART:g} apart."
    )
    drawn = shapes.svg(left + max(ends) * scale + 10, top - 10, parts, "A ring of stages", message)
    return shapes.figure(drawn, message)


@functools.cache
def multicast(blocks: int = 2, kilobytes: int = 16) -> str:
    """A tile that two blocks need, loaded by each and by one for both."""
    parts: list[str] = []
    for panel, (title, loads) in enumerate((("each loads", blocks), ("one load for both", 1))):
        left = panel * 260
        parts.append(text(left + 110, 16, title, anchor="middle", bold=True))
        parts.append(rect(left + 10, 28, 200, 30, SUNK, "L2"))
        parts.append(text(left + 110, 48, f"L2: read {loads} x {kilobytes} KiB", anchor="middle"))
        for block in range(blocks):
            x = left + 10 + block * 105
            source = x + 47 if loads == blocks else left + 110
            parts.append(shapes.path([(source, 58), (x + 47, 110)], _COLORS[min(block, loads - 1)]))
            parts.append(rect(x, 110, 95, 40, BLUE, f"shared memory of block {block}", 0.5))
            parts.append(text(x + 47, 134, f"block {block}", anchor="middle"))
    message = (
        f"a tile of {kilobytes} KiB for {blocks} blocks: {blocks * kilobytes} KiB out of the L2 "
        f"where each loads for itself, {kilobytes} KiB with multicast."
    )
    return shapes.figure(shapes.svg(490, 160, parts, "Multicast", message), message)


@functools.cache
def schedule(tiles: int = 7, blocks: int = 2) -> str:
    """Which block takes which tile, and when."""
    parts, size, left = [], 64, 80
    turns = -(-tiles // blocks)
    for block in range(blocks):
        y = 10 + block * 40
        parts.append(text(left - 10, y + 20, f"block {block}", anchor="end"))
        for turn, tile in enumerate(range(block, tiles, blocks)):
            x, parity = left + turn * size, turn % 2
            note = f"tile {tile}, turn {turn}: phase {turn}, parity {parity}"
            parts.append(rect(x, y, size - 4, 30, (BLUE, ORANGE)[parity], note, 0.6))
            parts.append(text(x + size / 2 - 2, y + 20, f"tile {tile}", anchor="middle", size=12))
    below = 24 + blocks * 40
    parts += [
        text(left + (turn + 0.5) * size - 2, below, f"parity {turn % 2}", anchor="middle", size=11)
        for turn in range(turns)
    ]
    message = (
        f"{tiles} tiles over {blocks} blocks: turn i of block b is tile b + {blocks} i. The "
        f"barrier's parity (color) flips at every turn; the last of {turns} turns has "
        f"{tiles - (turns - 1) * blocks} of {blocks} blocks at work."
    )
    drawn = shapes.svg(left + turns * size + 6, 34 + blocks * 40, parts, "Tiles of blocks", message)
    return shapes.figure(drawn, message)


#: Pictures by the name that pages use.
FIGURES: Mapping[str, Callable[[], str]] = {
    "accumulator": accumulator,
    "boxes": boxes,
    "multicast": multicast,
    "ring": ring,
    "schedule": schedule,
    "swizzle": banks,
}
