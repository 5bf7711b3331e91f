"""Tensor maps that an emulated kernel uses: found by address, changed and copied by threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.units import tensormap
from mla_var3.emulator.units.tensormap import TensorMap
from mla_var3.emulator.windows import PARAM_WINDOW

if TYPE_CHECKING:
    from mla_var3.emulator.machine import Machine


class Maps:
    """The maps that the copies of a cluster have named so far."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.decoded: dict[int, TensorMap] = {}

    def start(self) -> None:
        """A new cluster."""
        self.decoded.clear()

    def at(self, address: int, pc: int) -> TensorMap:
        """The map at a global or parameter address."""
        if (found := self.decoded.get(address)) is not None:
            return found
        data, at = self._bytes(address, pc)
        if address % 64:
            self.machine.reporter.add(
                "misaligned", pc, f"a tensor map at {address:#x}", missing="64-byte alignment"
            )
        found = self.decoded[address] = TensorMap.decode(data[at : at + tensormap.BYTES].tobytes())
        if found.interleave:
            raise self.machine.reporter.stop(pc, "an interleaved tensor map is not emulated")
        return found

    def _bytes(self, address: int, pc: int) -> tuple[NDArray[np.uint8], int]:
        """The bytes that hold an address, and where in them it is."""
        m = self.machine
        if address >> 48 == PARAM_WINDOW >> 48:
            return m.parameters.bytes, address & (1 << 48) - 1
        region = m.memory_map.find(address)
        if region is None:
            raise m.reporter.stop(
                pc, f"a tensor map at {address:#x} is outside of every allocation"
            )
        return region.data, address - region.low

    def replace(
        self, name: str, address: Any, space: str, ordinal: int, value: Any, s: Any, pc: int
    ) -> None:
        """``tensormap.replace``."""
        m = self.machine
        at = int(np.ravel(address)[0])
        if space == "shared":
            data, start = (
                m.shared.bytes,
                int(m.shared.physical(np.array([at]), m.cta_offset[s][:1])[0]),
            )
        else:
            data, start = self._bytes(at, pc)
            self.decoded.pop(at, None)
        here = slice(start, start + tensormap.BYTES)
        new = tensormap.replaced(data[here].tobytes(), name, ordinal, int(np.ravel(value)[0]))
        data[here] = np.frombuffer(new, np.uint8)

    def copy(self, to: Any, source: Any, s: Any, pc: int) -> None:
        """``tensormap.cp_fenceproxy``: a map from shared to global memory."""
        m = self.machine
        at = int(np.ravel(to)[0])
        start = int(m.shared.physical(np.ravel(source)[:1], m.cta_offset[s][:1])[0])
        data, offset = self._bytes(at, pc)
        data[offset : offset + tensormap.BYTES] = m.shared.bytes[start : start + tensormap.BYTES]
        self.decoded.pop(at, None)
