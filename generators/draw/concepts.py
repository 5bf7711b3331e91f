"""Captioned SVG figures of glossary pages, drawn from sizes: a function each, in ``FIGURES``.

They show the causal mask, waves of blocks on SMs, split-KV, how many rows of an MMA one head fills,
and bank conflicts with and without a swizzle.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping

from generators.draw import shapes
from generators.draw.shapes import BLUE, QUIET, SLOWER, SUNK, rect, text
from generators.write.text import capital


@functools.cache
def causal(s: int = 4, t: int = 12, tile: int = 4) -> str:
    """Which keys each query sees, and which tiles need a mask."""
    size, left, top = 26, 70, 30
    parts = []
    for i in range(s):
        for j in range(t):
            seen = j <= t - s + i
            note = f"query {i} {'sees' if seen else 'does not see'} key {j}"
            x, y = left + j * size, top + i * size
            parts.append(rect(x, y, size - 2, size - 2, BLUE if seen else SUNK, note))
        parts.append(text(left - 8, top + i * size + 17, f"query {i}", anchor="end"))
    for column in range(0, t, tile):
        masked = column + tile - 1 > t - s
        words = "mask" if masked else "no mask"
        parts.append(text(left + (column + tile / 2) * size, 18, words, anchor="middle"))
    free = sum(column + tile - 1 <= t - s for column in range(0, t, tile))
    message = (
        f"query i of {s} sees keys 0 to {t - s} + i of {t}; {free} of {t // tile} tiles of {tile} "
        "keys need no mask."
    )
    drawn = shapes.svg(left + t * size + 10, top + s * size, parts, "Causal mask", message)
    return shapes.figure(drawn, f"Bottom-right aligned: {message}")


@functools.cache
def wave(blocks: int = 18, slots: int = 8) -> str:
    """Blocks of a grid on the SMs of a small device."""
    rows = math.ceil(blocks / slots)
    size, left = 40, 80
    parts = []
    for row in range(rows):
        parts.append(text(left - 8, row * 34 + 22, f"wave {row + 1}", anchor="end"))
        for slot in range(slots):
            block = row * slots + slot
            used = block < blocks
            x = left + slot * size
            parts.append(rect(x, row * 34 + 4, size - 4, 28, BLUE if used else SUNK))
            if not used:
                parts.append(text(x + size / 2 - 2, row * 34 + 23, "idle", anchor="middle",
                                  fill=QUIET, size=11))  # fmt: skip
    last = blocks - (rows - 1) * slots
    message = (
        f"{blocks} blocks on {slots} SMs take {rows} waves; the last one uses {last} of {slots}, "
        f"so {last / slots:.0%} of it is full."
    )
    drawn = shapes.svg(left + slots * size + 10, rows * 34 + 6, parts, "Waves", message)
    return shapes.figure(drawn, message)


@functools.cache
def split(keys: int = 12, splits: int = 3, slots: int = 4) -> str:
    """One sequence on one block, and on several."""
    size, left = 26, 110
    parts = []
    for row, parts_of in enumerate((1, splits)):
        top = 10 + row * 58
        each = keys // parts_of
        parts.append(text(left - 10, top + 18, f"{parts_of} of {slots} SMs", anchor="end"))
        for part in range(parts_of):
            x = left + part * (each * size + 10)
            parts.append(rect(x, top, each * size, 26, BLUE))
            words = f"keys {part * each} to {(part + 1) * each - 1}"
            parts.append(text(x + 4, top + 42, words, size=11, fill=QUIET))
    message = (
        f"one sequence of {keys} tiles of keys keeps 1 of {slots} SMs busy; cut into {splits}, it "
        f"keeps {splits} busy for 1/{splits} of the time, and a combine merges their outputs."
    )
    width = left + keys * size + splits * 10 + 10
    drawn = shapes.svg(width, 116, parts, "Split-KV", message)
    return shapes.figure(drawn, capital(message))


@functools.cache
def mma(rows: int = 64, queries: int = 1) -> str:
    """How much of an MMA's rows one query fills, and a group of heads."""
    parts = []
    for x, filled, words in ((10, queries, "one head"), (230, rows, f"{rows} heads")):
        parts.append(rect(x, 24, 180, 2 * rows, SUNK))
        parts += [rect(x, 24 + 2 * row, 180, 1.5, BLUE) for row in range(filled)]
        parts.append(text(x, 16, f"{words}: {filled} of {rows} rows work"))
    message = (
        f"an MMA of M = {rows} takes as long for {queries} query row as for {rows}; with one head "
        f"per tile {(rows - queries) / rows:.1%} of its work is padding."
    )
    drawn = shapes.svg(420, 30 + 2 * rows, parts, "MMA tile", message)
    return shapes.figure(drawn, capital(message))


@functools.cache
def banks(rows: int = 8, columns: int = 8) -> str:
    """A column of a tile over the banks, plain and swizzled."""
    size = 24
    parts = []
    for plain, left in ((True, 10), (False, 10 + (columns + 2) * size)):
        parts.append(text(left, 16, "plain" if plain else "row XOR column"))
        for row in range(rows):
            for column in range(columns):
                bank = column if plain else column ^ row
                hit = column == 3
                x, y = left + bank * size, 24 + row * size
                color = (SLOWER if plain else BLUE) if hit else SUNK
                note = f"row {row}, column {column}: bank {bank}"
                parts.append(rect(x, y, size - 2, size - 2, color, note))
    message = (
        f"reading column 3 of {rows} rows hits one of {columns} banks {rows} times when rows lie "
        f"plain, and each of {rows} banks once when the bank is row XOR column."
    )
    width = 2 * (columns + 2) * size
    drawn = shapes.svg(width, 30 + rows * size, parts, "Bank conflict", message)
    return shapes.figure(drawn, capital(message))


FIGURES: Mapping[str, Callable[[], str]] = {
    "banks": banks,
    "causal": causal,
    "mma": mma,
    "split": split,
    "wave": wave,
}
