"""``Device``: properties of the fake GPU that a program sees (name, compute capability, SMs)."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace

from mla_var3.errors import UsageError

#: Bytes of shared memory that a block may ask for, and of a multiprocessor, by compute capability,
#: where they are not 99 and 100 KiB (CUDA C++ Programming Guide, technical specifications).
_SHARED = {(8, 0): (163, 164), (8, 7): (163, 164), (9, 0): (227, 228), (10, 0): (227, 228)}


class _Properties(SimpleNamespace):
    """What a program is told, and whether it asks for the multiprocessors."""

    def __init__(self, counted: Callable[[], object] | None, **names: object) -> None:
        super().__init__(**names)
        self._counted = counted

    def __getattribute__(self, name: str) -> object:
        counted = super().__getattribute__("__dict__").get("_counted")
        if name == "multi_processor_count" and counted is not None:
            counted()
        return super().__getattribute__(name)


@dataclass(frozen=True)
class Device:
    """What a program is told about its GPU.

    Attributes:
        capability: Its compute capability.
        multiprocessors: Its streaming multiprocessors; persistent kernels launch as many blocks.
        memory: Its memory in bytes.
        name: Its name.
        counted: Told when a program asks how many multiprocessors there are.
    """

    capability: tuple[int, int] = (10, 0)
    multiprocessors: int = 16
    memory: int = 64 * 2**30
    name: str = "CPU in place of a GPU"
    counted: Callable[[], object] | None = field(default=None, compare=False)

    @property
    def shared_per_block(self) -> int:
        """Bytes of shared memory that a block may ask for."""
        return _SHARED.get(self.capability, (99, 100))[0] << 10

    def properties(self) -> SimpleNamespace:
        """What ``torch.cuda.get_device_properties`` returns, with the names that torch has."""
        major, minor = self.capability
        small = self.capability not in _SHARED and major >= 8
        return _Properties(
            self.counted,
            name=self.name,
            major=major,
            minor=minor,
            total_memory=self.memory,
            multi_processor_count=self.multiprocessors,
            warp_size=32,
            max_threads_per_block=1024,
            max_threads_per_multi_processor=1536 if small else 2048,
            regs_per_multiprocessor=65536,
            shared_memory_per_block=48 << 10,
            shared_memory_per_block_optin=self.shared_per_block,
            shared_memory_per_multiprocessor=_SHARED.get(self.capability, (99, 100))[1] << 10,
            L2_cache_size=50 << 20,
            is_integrated=False,
            is_multi_gpu_board=False,
            clock_rate=1000000,
            memory_clock_rate=1000000,
            memory_bus_width=4096,
            pci_bus_id=0,
            pci_device_id=0,
            pci_domain_id=0,
            uuid="00000000-0000-0000-0000-000000000000",
            gcnArchName="",
        )

    def attribute(self, number: int) -> int:
        """What the driver's and the runtime's attribute of a number is; 0 for the unknown."""
        name = _ATTRIBUTES.get(number)
        told = getattr(self.properties(), name) if name is not None else _FIXED.get(number, 0)
        return int(told)


#: Attributes of the driver by number (``CUdevice_attribute``, the runtime's are the same): torch's
#: names of what they say.
_ATTRIBUTES = {
    1: "max_threads_per_block",
    8: "shared_memory_per_block",
    10: "warp_size",
    12: "regs_per_multiprocessor",
    13: "clock_rate",
    16: "multi_processor_count",
    36: "memory_clock_rate",
    37: "memory_bus_width",
    38: "L2_cache_size",
    39: "max_threads_per_multi_processor",
    75: "major",
    76: "minor",
    81: "shared_memory_per_multiprocessor",
    82: "regs_per_multiprocessor",
    97: "shared_memory_per_block_optin",
}
#: The largest blocks and grids, and what every GPU here can (cooperative launches, unified
#: addresses; memory pools and clusters); 1 KiB of shared memory is the system's.
_FIXED = {
    2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535,
    41: 1, 95: 1, 106: 32, 111: 1024, 115: 1, 120: 1, 127: 1,
}  # fmt: skip


def capability(arch: str) -> tuple[int, int]:
    """``sm_90a`` to (9, 0).

    Raises:
        UsageError: It is not an architecture.
    """
    match = re.fullmatch(r"sm_(\d+)(\d)[af]?", arch)
    if not match:
        raise UsageError(f"{arch!r} is not an architecture such as sm_90a")
    return int(match[1]), int(match[2])
