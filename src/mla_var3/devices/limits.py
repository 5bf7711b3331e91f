"""``SmLimits``: registers, shared memory, threads and blocks of one SM, from device figures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class SmLimits:
    """Resources of one streaming multiprocessor, from the device's sourced figures.

    Attributes:
        registers_per_sm: 32-bit registers.
        shared_memory_per_sm: Bytes.
        shared_memory_per_block_max: Bytes one block may use.
        reserved_shared_per_block: Bytes the driver takes from each resident block.
        threads_per_sm: Resident threads.
        warps_per_sm: Resident warps.
        blocks_per_sm: Resident blocks.
        register_allocation_unit: Registers of a warp are rounded up to a multiple of this.
        warp_size: Threads per warp.
        registers_per_thread: Most that an instruction can name.
    """

    registers_per_sm: int
    shared_memory_per_sm: int
    shared_memory_per_block_max: int
    reserved_shared_per_block: int
    threads_per_sm: int
    warps_per_sm: int
    blocks_per_sm: int
    register_allocation_unit: int
    warp_size: int
    registers_per_thread: int
