"""Draws figures of CuTe layouts (offsets, tiles, swizzles), computed by a small layout algebra."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from generators.draw import shapes
from generators.draw.shapes import BLUE, ORANGE, PURPLE, SUNK, rect, text

#: A shape or a stride: a number, or nested tuples of them.
Nested = int | tuple["Nested", ...]


@dataclass(frozen=True)
class Layout:
    """A function from coordinates to offsets.

    Attributes:
        shape: Extents.
        stride: What a step along each adds to the offset.
        swizzle: Bits, base and shift of ``Swizzle(b, m, s)``, on the offset.
    """

    shape: Nested
    stride: Nested
    swizzle: tuple[int, int, int] | None = None

    def __call__(self, *coordinates: int) -> int:
        """Offset of a coordinate, a number per mode at the top."""
        assert isinstance(self.shape, tuple)
        assert isinstance(self.stride, tuple)
        offset = sum(
            _offset(at, shape, stride)
            for at, shape, stride in zip(coordinates, self.shape, self.stride, strict=True)
        )
        return swizzled(offset, *self.swizzle) if self.swizzle else offset

    def __str__(self) -> str:
        words = f"{_written(self.shape)}:{_written(self.stride)}"
        return f"Swizzle({', '.join(map(str, self.swizzle))}) of {words}" if self.swizzle else words


def _written(nested: Nested) -> str:
    return str(nested) if isinstance(nested, int) else f"({','.join(map(_written, nested))})"


def size(nested: Nested) -> int:
    """Product of the extents."""
    if isinstance(nested, int):
        return nested
    return functools.reduce(lambda found, inner: found * size(inner), nested, 1)


def _offset(at: int, shape: Nested, stride: Nested) -> int:
    """Offset of a number within a mode, the first of its inner modes running fastest."""
    if isinstance(shape, int):
        assert isinstance(stride, int)
        return at * stride
    assert isinstance(stride, tuple)
    found = 0
    for inner, step in zip(shape, stride, strict=True):
        found += _offset(at % size(inner), inner, step)
        at //= size(inner)
    return found


def swizzled(offset: int, bits: int, base: int, shift: int) -> int:
    """An offset with ``bits`` bits from ``base + shift`` on added (XOR) to those at base."""
    mask = ((1 << bits) - 1) << (base + shift)
    return offset ^ ((offset & mask) >> shift)


# -- pictures --------------------------------------------------------------------------------------

_CELL, _LEFT, _TOP = 30, 8, 26
_COLORS = (BLUE, ORANGE, PURPLE, "var(--series-3)")


def grid(
    layout: Layout, left: float, top: float, label: str, color: Callable[[int, int, int], str]
) -> list[str]:
    """A matrix of a layout's offsets.

    Args:
        layout: Has two modes.
        left: Place of the first cell.
        top: Place of the first cell; the label stands above.
        label: What it is.
        color: Color of a cell by row, column and offset.
    """
    assert isinstance(layout.shape, tuple)
    rows, columns = (size(mode) for mode in layout.shape)
    parts = [text(left, top - 8, label, size=12)]
    for row, column in itertools.product(range(rows), range(columns)):
        offset = layout(row, column)
        x, y = left + column * _CELL, top + row * _CELL
        note = f"({row}, {column}) is at offset {offset}"
        parts.append(rect(x, y, _CELL - 2, _CELL - 2, color(row, column, offset), note, 0.55))
        parts.append(text(x + _CELL / 2 - 1, y + 19, str(offset), anchor="middle", size=11))
    return parts


def _plain(row: int, column: int, offset: int) -> str:
    return BLUE if offset < 4 else SUNK


def _two(layouts: Sequence[Layout], title: str, message: str,
         color: Callable[[int, int, int], str] = _plain) -> str:  # fmt: skip
    """Layouts one below the other."""
    parts, top, width = [], float(_TOP), 0.0
    for layout in layouts:
        assert isinstance(layout.shape, tuple)
        rows, columns = (size(mode) for mode in layout.shape)
        parts += grid(layout, _LEFT, top, str(layout), color)
        top += rows * _CELL + _TOP + 8
        width = max(width, _LEFT + columns * _CELL)
    drawn = shapes.svg(width + 10, top - _TOP, parts, title, message)
    return shapes.figure(drawn, message)


@functools.cache
def row_major() -> str:
    """The same shape with two strides."""
    pair = (Layout((4, 8), (1, 4)), Layout((4, 8), (8, 1)))
    assert [layout(1, 2) for layout in pair] == [9, 10]
    message = (
        "column-major and row-major: the shape is the same, the stride decides. Offsets 0 to 3, "
        "which are neighbors in memory, are colored; coordinate (1, 2) is at 9, and at 10."
    )
    return _two(pair, "Two layouts of 4 x 8", message)


@functools.cache
def nested() -> str:
    """A layout whose modes are nested."""
    layout = Layout(((2, 2), (2, 4)), ((1, 8), (2, 16)))
    message = (
        "a nested layout keeps blocks together: each 2 x 2 block lies in 4 neighboring places, "
        "which no layout of two plain modes can say."
    )
    blocks = {(row // 2, column // 2) for row in range(4) for column in range(8)}
    order = {block: index for index, block in enumerate(sorted(blocks))}
    return _two((layout,), "A nested layout", message,
                lambda r, c, o: _COLORS[(order[r // 2, c // 2] // 4 + c // 2) % 4])  # fmt: skip


@functools.cache
def divided(rows: int = 8, columns: int = 12, tile: tuple[int, int] = (4, 6)) -> str:
    """A matrix in tiles."""
    layout = Layout((rows, columns), (1, rows))
    tall, wide = tile
    message = (
        f"zipped_divide by ({tall}, {wide}): four tiles, each a color. Element (1, 2) of tile "
        f"(1, 1) is element ({tall + 1}, {wide + 2}), at offset {layout(tall + 1, wide + 2)}."
    )
    return _two((layout,), "A matrix in tiles", message,
                lambda r, c, o: _COLORS[r // tall * 2 + c // wide])  # fmt: skip


@functools.cache
def swizzle() -> str:
    """Where the 16-byte pieces of 8 rows lie, plain and with 128 bytes of swizzle."""
    pair = (Layout((8, 8), (8, 1)), Layout((8, 8), (8, 1), (3, 0, 3)))
    plain, mixed = ({layout(row, 3) % 8 for row in range(8)} for layout in pair)
    assert (len(plain), len(mixed)) == (1, 8)
    message = (
        "8 rows of 128 bytes, in pieces of 16 bytes that are numbered by their place. The places "
        "that hold piece 3 of each row are colored: plain, all 8 share one group of four banks; "
        "with a swizzle of 128 bytes they lie in 8 groups, and are read at once."
    )

    def color(row: int, column: int, offset: int) -> str:
        return ORANGE if column == 3 else SUNK

    return _two(pair, "Plain and swizzled rows", message, color)


#: Pictures by the name that chapters and pages use.
FIGURES: Mapping[str, Callable[[], str]] = {
    "row_major": row_major,
    "nested": nested,
    "divided": divided,
    "swizzle": swizzle,
}
