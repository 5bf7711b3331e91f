"""Emulated ``tcgen05.cp`` unit: copies rows of shared memory to lanes of tensor memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mla_var3.emulator.clocks import TENSOR
from mla_var3.emulator.units.base import Unit
from mla_var3.emulator.units.tcgen05.descriptors import NotEmulated
from mla_var3.emulator.units.tcgen05.memory import memory_of
from mla_var3.emulator.units.tcgen05.operands import SharedOperands
from mla_var3.emulator.units.tcgen05.products import COLUMN, TensorProducts, at_thread
from mla_var3.emulator.units.tcgen05.shadow import BLOCKS, LANES, ROOM, Place

if TYPE_CHECKING:
    from mla_var3.emulator.clocks import Event
    from mla_var3.emulator.machine import Machine

#: Which quarter of the rows the lanes of each warp get, by how a copy is repeated.
REPEATS = {
    "": (0, 1, 2, 3),
    "warpx4": (0, 0, 0, 0),
    "warpx2::02_13": (0, 1, 0, 1),
    "warpx2::01_23": (0, 0, 1, 1),
}


class TensorCopies(Unit):
    """Copies from shared to tensor memory, in order with the products of their thread."""

    name = "tensor_copies"

    def __init__(self, machine: Machine) -> None:
        super().__init__(machine)
        self.shared = SharedOperands(machine)

    def copy(
        self, rows: int, width: int, repeat: str, pair: bool, to: Any, source: Any, s: Any, pc: int
    ) -> None:
        """``tcgen05.cp`` of each thread of ``s``: ``rows`` of ``width`` bits."""
        m, memory = self.machine, memory_of(self.machine)
        products = m.units[TensorProducts.name]
        assert isinstance(products, TensorProducts)
        for i, thread in enumerate(m.ids[s].tolist()):
            event = memory.shadow.issue(TENSOR, int(m.warp[thread]))
            at, word = at_thread(to, i), at_thread(source, i)
            try:
                for cta in products.ctas(pair, int(m.cta[thread]), pc):
                    self._copy(rows, width, REPEATS[repeat], at, word, cta, event, pc)
            except NotEmulated as error:
                raise m.reporter.stop(pc, str(error)) from None
        m.note("tcgen05.cp", s, pc)

    def _copy(
        self,
        rows: int,
        width: int,
        order: tuple[int, ...],
        at: int,
        word: int,
        cta: int,
        event: Event,
        pc: int,
    ) -> None:
        memory, wide = memory_of(self.machine), width // 32
        first = at & COLUMN
        if at >> 16 & 0x7FFF or first + wide > ROOM:
            raise NotEmulated(f"a tcgen05.cp to tensor memory {at:#x} is not emulated")
        data = self.shared.codes(word, rows, width // 8, 1, False, cta, event, pc)
        quarters = data.view(np.uint32).reshape(-1, LANES // 4, wide)
        place = Place(cta, slice(0, BLOCKS), slice(first, first + wide))
        memory.allocated([place], pc, "cp")
        if self.machine.checks:
            memory.shadow.write(place, event, pc)
        memory.words[cta, :, place.columns] = quarters[list(order)].reshape(LANES, wide)
