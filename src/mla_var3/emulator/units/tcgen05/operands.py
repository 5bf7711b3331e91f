"""Reads ``tcgen05`` operands from shared memory by descriptor; checks descriptors and races."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import BULK, PC_MASK, TENSOR, Event
from mla_var3.emulator.granules import ranges
from mla_var3.emulator.units.tcgen05.descriptors import Matrix
from mla_var3.emulator.windows import SHARED_START

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine


class Tile(NamedTuple):
    """Where an operand lies in a CTA's shared memory: its pieces of 16 bytes, and its granules."""

    chunks: NDArray[np.int64]
    granules: list[Any]
    swizzle: int


class SharedOperands:
    """Reads matrices behind descriptors for the tcgen05 unit."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.tiles: dict[tuple[int, int, int, int, bool], Tile] = {}

    def codes(
        self,
        word: int,
        rows: int,
        depth: int,
        size: int,
        transposed: bool,
        cta: int,
        event: Event,
        pc: int,
    ) -> NDArray[Any]:
        """Codes of ``size`` bytes: [rows, depth], or [depth, rows] if transposed."""
        m, key = self.machine, (word, rows, depth, size, transposed)
        tile = self.tiles.get(key)
        if tile is None:
            tile = self.tiles[key] = self._tile(*key, pc)
        base = cta * m.shared.size
        if m.checks:
            m.residency.unit(cta, event, pc)
            self._read(tile, base >> m.shared.shift, event, pc)
        pieces = tile.chunks + base // 16 if base else tile.chunks
        if m.checks:
            self._same_swizzle(tile, pieces, event, pc)
        codes: NDArray[Any] = m.shared.views[16][pieces].view(f"u{size}")
        return codes

    def _read(self, tile: Tile, offset: int, event: Event, pc: int) -> None:
        """Check and note a read of a tile in the CTA whose granules begin at ``offset``."""
        shadow = self.machine.shadow
        for g in tile.granules:
            if isinstance(g, slice):
                here: Any = slice(g.start + offset, g.stop + offset)
            else:
                here = g + offset
            if not shadow.clear(here, range(event.warp, event.warp + 1)):
                shadow.may_read(here, event.warp, TENSOR, pc)
            shadow.mark_read(here, [event], pc)

    def _same_swizzle(self, tile: Tile, pieces: NDArray[np.int64], event: Event, pc: int) -> None:
        """Report pieces that a tensor map has written with another swizzle."""
        m = self.machine
        modes = m.shared.swizzles[pieces]
        other = (modes != 0) & (modes != tile.swizzle + 1)
        if not np.count_nonzero(other):
            return
        piece = int(pieces[other][0])
        granule = piece * 16 >> m.shared.shift
        writer, stamped = m.shared.last.last_write(granule)
        if m.clocks.units[writer] != BULK:
            return
        who = m.clocks.name(event.unit, event.warp)
        m.reporter.add(
            "descriptor",
            pc,
            f"a matrix descriptor with {_swizzle(tile.swizzle)} reads shared "
            f"{piece * 16 % m.shared.size:#x}, which a tensor map with "
            f"{_swizzle(int(modes[other][0]) - 1)} has written",
            stamped & PC_MASK,
            who,
            m.clocks.who(writer, stamped),
            "the same swizzle in the tensor map and in the descriptor",
        )

    def _tile(self, word: int, rows: int, depth: int, size: int, transposed: bool, pc: int) -> Tile:
        m, matrix = self.machine, Matrix.of(word)
        chunks = matrix.chunks(rows, depth, size, transposed)
        if not self._inside(matrix, chunks, pc):
            chunks = np.minimum(chunks, m.shared.size - 16)
        touched = np.zeros(m.shared.size // 16, bool)
        touched[chunks // 16] = True
        granules = ranges(np.flatnonzero(touched), 16 // m.shared.granule)
        return Tile(chunks // 16, granules, matrix.swizzle)

    def _inside(self, matrix: Matrix, chunks: NDArray[np.int64], pc: int) -> bool:
        """Check a descriptor; whether its tile is in shared memory."""
        m = self.machine
        low, high = int(chunks.min()), int(chunks.max()) + 16
        inside = low >= SHARED_START and high <= m.shared.end
        if not inside:
            m.reporter.add(
                "out-of-bounds",
                pc,
                f"a matrix descriptor reaches shared {low:#x} to {high:#x}, and shared memory "
                f"spans {SHARED_START:#x} to {m.shared.end:#x}",
                missing="the right start, leading and stride offsets in the descriptor",
            )
        if not m.model.swizzle_by_address and not matrix.is_aligned():
            m.reporter.add(
                "descriptor",
                pc,
                f"a matrix descriptor with the {16 << matrix.swizzle}-byte swizzle starts at "
                f"shared {matrix.start:#x}, off its {128 << matrix.swizzle}-byte pattern",
                missing=f"a tile aligned to {128 << matrix.swizzle} bytes, or the base offset",
            )
        return inside


def _swizzle(mode: int) -> str:
    return f"the {16 << mode}-byte swizzle" if mode else "no swizzle"
