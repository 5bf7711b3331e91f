"""Normalizes units of device figures, as their sources print them, to one unit per metric.

Two readings are decided here, once. Rates and DRAM capacity are decimal (1 TB/s is 1000 GB/s,
1 GB is 10^9 bytes), as data sheets use them. On-chip sizes are binary even when a source prints
KB or MB: the CUDA Programming Guide states KB = 1024 bytes for its shared-memory rows, and
torch divides the L2 size by 1024 * 1024 before it prints "MB".
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from mla_var3.errors import DeviceFigureError, UnknownNameError

MEASURED_PREFIX = "measured_"


@dataclass(frozen=True)
class Quantity:
    """A physical quantity.

    Attributes:
        unit: The unit that values are normalized to.
        factors: Factor to ``unit`` for each unit a source may print.
        integral: Whether the normalized value is a whole number.
    """

    unit: str
    factors: dict[str, Decimal]
    integral: bool = False


def _quantity(unit: str, factors: dict[str, int | str], *, integral: bool = False) -> Quantity:
    return Quantity(unit, {name: Decimal(factor) for name, factor in factors.items()}, integral)


_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3

THROUGHPUT = _quantity(
    "TFLOP/s",
    {
        "GFLOP/s": "0.001",
        "TFLOPS": 1,
        "TFLOP/s": 1,
        "teraFLOPS": 1,
        "TOPS": 1,
        "AI TOPS": 1,
        "PFLOPS": 1000,
        "POPS": 1000,
    },
)
BANDWIDTH = _quantity("GB/s", {"GB/s": 1, "TB/s": 1000})
DRAM_CAPACITY = _quantity("bytes", {"GB": 10**9, "GiB": _GIB}, integral=True)
ON_CHIP = _quantity(
    "bytes", {"bytes": 1, "KB": _KIB, "KiB": _KIB, "MB": _MIB, "MiB": _MIB}, integral=True
)
# AMD prints the size of the vector register file: a 32-bit register is 4 bytes.
REGISTERS = _quantity(
    "32-bit registers",
    {"32-bit registers": 1, "32-bit VGPRs": 1, "KiB": _KIB // 4},
    integral=True,
)
CLOCK = _quantity("MHz", {"MHz": 1, "GHz": 1000})
POWER = _quantity("W", {"W": 1})
ENERGY_PER_FLOP = _quantity("pJ/FLOP", {"pJ/FLOP": 1})
ENERGY_PER_BYTE = _quantity("pJ/byte", {"pJ/byte": 1})
PROCESSORS = _quantity("SMs", {"SMs": 1, "CUs": 1, "XCDs": 1}, integral=True)
THREADS = _quantity("threads", {"threads": 1, "work-items": 1}, integral=True)
WARPS = _quantity("warps", {"warps": 1, "wavefronts": 1}, integral=True)
BLOCKS = _quantity("blocks", {"blocks": 1}, integral=True)

METRICS: dict[str, Quantity] = {
    "tensor_bf16_fp32acc": THROUGHPUT,
    "tensor_fp16_fp32acc": THROUGHPUT,
    "tensor_fp16_fp16acc": THROUGHPUT,
    "tensor_fp8": THROUGHPUT,
    "tensor_fp4": THROUGHPUT,
    "tensor_tf32": THROUGHPUT,
    "tensor_int8": THROUGHPUT,
    "fp32_vector": THROUGHPUT,
    "fp64_vector": THROUGHPUT,
    "dram_bandwidth": BANDWIDTH,
    "link_bandwidth": BANDWIDTH,
    "dram_capacity": DRAM_CAPACITY,
    "l2_size": ON_CHIP,
    "l3_size": ON_CHIP,
    "lds_size": ON_CHIP,
    "lds_per_workgroup_max": ON_CHIP,
    "shared_memory_per_sm": ON_CHIP,
    "shared_memory_per_block_max": ON_CHIP,
    "reserved_shared_per_block": ON_CHIP,
    "tmem_per_sm": ON_CHIP,
    "registers_per_sm": REGISTERS,
    "max_registers_per_thread": REGISTERS,
    "register_allocation_unit": REGISTERS,
    "sm_count": PROCESSORS,
    "max_threads_per_sm": THREADS,
    "warp_size": THREADS,
    "max_warps_per_sm": WARPS,
    "max_blocks_per_sm": BLOCKS,
    "boost_clock": CLOCK,
    "tdp": POWER,
    # Power that a running kernel costs whatever it does, and what a 16-bit tensor FLOP and a DRAM
    # byte cost beside it, at full clock.
    "static_power": POWER,
    "energy_per_flop": ENERGY_PER_FLOP,
    "energy_per_byte": ENERGY_PER_BYTE,
}


def quantity(metric: str) -> Quantity:
    """The quantity of a metric; ``measured_<metric>`` shares that of ``<metric>``.

    Raises:
        UnknownNameError: No such metric.
    """
    base = metric.removeprefix(MEASURED_PREFIX)
    if base not in METRICS:
        raise UnknownNameError("device metric", metric, sorted(METRICS))
    return METRICS[base]


def normalise(metric: str, value: int | float, unit: str) -> float:
    """Convert a figure as its source prints it to the metric's own unit.

    Args:
        metric: A key of ``METRICS``, with or without the measured prefix.
        value: The number as printed.
        unit: The unit as printed.

    Returns:
        The value in ``quantity(metric).unit``; a whole number where the quantity is integral.

    Raises:
        DeviceFigureError: The unit does not measure this metric, or the value is not whole.
    """
    target = quantity(metric)
    if unit not in target.factors:
        allowed = ", ".join(target.factors)
        raise DeviceFigureError(f"{metric} cannot be given in {unit!r} (allowed: {allowed})")
    # Decimal keeps 8.1 TB/s at exactly 8100 GB/s, so that equal figures compare equal.
    exact = Decimal(str(value)) * target.factors[unit]
    if not target.integral:
        return float(exact)
    if exact != exact.to_integral_value():
        # Capacities such as 95.1 GiB are rounded by their source; counts never are.
        if target is not DRAM_CAPACITY:
            raise DeviceFigureError(
                f"{metric} of {value} {unit} is {exact} {target.unit}, which is not whole"
            )
        exact = exact.to_integral_value()
    return int(exact)
