"""Computes theoretical occupancy: a kernel's blocks that an SM holds, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict

from mla_var3.devices import Device, default_for_arch
from mla_var3.devices.limits import SmLimits
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.evidence import StaticFacts

#: Each SM has four processing blocks, each with a quarter of the registers; a warp lives in one of
#: them (NVIDIA H100 Tensor Core GPU Architecture whitepaper; the same from sm_80 to sm_120).
PROCESSING_BLOCKS = 4

#: Bytes that shared memory is handed out in (cuda_occupancy.h of the CUDA toolkit, sm_80 and up).
SHARED_ALLOCATION_UNIT = 128

#: Columns of tensor memory an SM has, where it has any (PTX ISA, section "Tensor Memory").
TENSOR_MEMORY_COLUMNS = 512

Limiter = Literal[
    "registers", "shared memory", "tensor memory", "threads", "warps", "blocks", "block too large"
]


class Occupancy(BaseModel):
    """Theoretical occupancy of one kernel on one device.

    Attributes:
        blocks_per_sm: Resident blocks; 0 when not even one fits.
        warps: Resident warps per SM.
        fraction: ``warps`` over the warps that the SM can hold.
        limiter: What stops the next block; registers and shared memory are named before the fixed
            limits where several do.
        device: Key of the device whose figures were used.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    blocks_per_sm: int
    warps: int
    fraction: float
    limiter: Limiter
    device: str | None = None


def round_up(value: int, unit: int) -> int:
    """``value`` raised to a multiple of ``unit``."""
    return -(-value // unit) * unit


def occupancy(
    limits: SmLimits,
    *,
    threads: int,
    registers: int,
    shared_bytes: int,
    tensor_memory_columns: int = 0,
    device: str | None = None,
) -> Occupancy:
    """Blocks one SM holds, by the rules of the CUDA occupancy calculator.

    Registers are handed out a warp at a time, in units of ``register_allocation_unit``, from the
    quarter of the register file that the warp's processing block owns; shared memory a block at a
    time, with the driver's reserve added. Clusters are not modeled: a cluster of several blocks
    needs its blocks in one GPC, which can only lower the figure.

    Args:
        limits: What an SM has.
        threads: Threads per block, at least 1.
        registers: Registers per thread, as the cubin states them.
        shared_bytes: Shared memory per block, static and dynamic, without the system's reserve.
        tensor_memory_columns: Columns of tensor memory a block holds.
        device: Key of the device, kept in the result.

    Returns:
        The occupancy; ``blocks_per_sm`` is 0 and the limiter ``"block too large"`` when the
        device refuses the launch.

    Raises:
        ValueError: A figure is out of range.
    """
    if threads < 1 or min(registers, shared_bytes, tensor_memory_columns) < 0:
        raise ValueError(
            f"threads={threads} must be >= 1, registers={registers}, shared_bytes={shared_bytes} "
            f"and tensor_memory_columns={tensor_memory_columns} >= 0"
        )
    warps = -(-threads // limits.warp_size)
    reserve = limits.reserved_shared_per_block
    shared = round_up(shared_bytes + reserve, SHARED_ALLOCATION_UNIT)
    bounds: dict[Limiter, int] = {
        "threads": limits.threads_per_sm // (warps * limits.warp_size),
        "warps": limits.warps_per_sm // warps,
        "blocks": limits.blocks_per_sm,
    }
    if tensor_memory_columns:
        bounds = {"tensor memory": TENSOR_MEMORY_COLUMNS // tensor_memory_columns, **bounds}
    if shared:
        bounds = {"shared memory": limits.shared_memory_per_sm // shared, **bounds}
    if registers:
        bounds = {"registers": _register_bound(limits, warps, registers), **bounds}
    limiter = min(bounds, key=lambda name: bounds[name])
    blocks = bounds[limiter]
    if blocks == 0 or shared_bytes > limits.shared_memory_per_block_max:
        return Occupancy(
            blocks_per_sm=0, warps=0, fraction=0.0, limiter="block too large", device=device
        )
    return Occupancy(
        blocks_per_sm=blocks,
        warps=blocks * warps,
        fraction=round(blocks * warps / limits.warps_per_sm, 6),
        limiter=limiter,
        device=device,
    )


def _register_bound(limits: SmLimits, warps: int, registers: int) -> int:
    a_warp = round_up(registers * limits.warp_size, limits.register_allocation_unit)
    warps_held = limits.registers_per_sm // PROCESSING_BLOCKS // a_warp * PROCESSING_BLOCKS
    return warps_held // warps


def limits_of(arch: str) -> SmLimits | None:
    """Limits of the device that stands for an arch; None without one, or where one is UNKNOWN."""
    try:
        return default_for_arch(arch).sm_limits()
    except (UnknownNameError, DeviceFigureError):
        return None


def of_facts(facts: StaticFacts | None, device: Device | None = None) -> Occupancy | None:
    """Occupancy of a compiled kernel, worked out from its facts.

    Args:
        facts: Facts of one compile.
        device: The device; the one that stands for the arch by default.

    Returns:
        None for a failed compile, for an arch that no device file stands for, and where a limit
        is UNKNOWN.
    """
    if facts is None or not facts.ok:
        return None
    try:
        device = device or default_for_arch(facts.arch)
        limits = device.sm_limits()
    except (UnknownNameError, DeviceFigureError):
        return None
    return occupancy(
        limits,
        threads=facts.threads_per_block,
        registers=facts.registers,
        shared_bytes=facts.shared_bytes,
        tensor_memory_columns=facts.tensor_memory_columns,
        device=device.key,
    )


def fit_together(facts: Sequence[StaticFacts], device: Device | None) -> bool | None:
    """Whether one SM holds a block of each kernel at the same time.

    Args:
        facts: Facts of compiles for one arch.
        device: The device.

    Returns:
        None without a device, and where a limit is UNKNOWN.
    """
    try:
        limits = None if device is None else device.sm_limits()
    except DeviceFigureError:
        return None
    if limits is None:
        return None
    shared = sum(
        round_up(f.shared_bytes + limits.reserved_shared_per_block, SHARED_ALLOCATION_UNIT)
        for f in facts
    )
    registers = sum(
        round_up(f.registers * limits.warp_size, limits.register_allocation_unit)
        * -(-f.threads_per_block // limits.warp_size)
        for f in facts
    )
    return (
        shared <= limits.shared_memory_per_sm
        and registers <= limits.registers_per_sm
        and sum(f.threads_per_block for f in facts) <= limits.threads_per_sm
    )
