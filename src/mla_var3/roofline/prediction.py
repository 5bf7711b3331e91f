"""Predicts a kernel's bound and reference time from its FLOPs and bytes and a device's rates.

The roofline model (Williams, Waterman, Patterson, CACM 52(4), 2009): a kernel that overlaps its
arithmetic with its memory traffic perfectly takes the longer of the two. Where joules were
measured, a third time joins them: what the work takes for its energy (Choi, Bedard, Fowler, Vuduc,
IPDPS 2013). At the largest rates that anybody states or ever measured on a device the result is a
*bound*, which no kernel can beat. At the rates that a named kernel attained it is a *reference
time*, which a better kernel can.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from mla_var3.archs import base_arch
from mla_var3.devices import Ceilings, Device, all_devices, default_for_arch, load
from mla_var3.errors import DeviceFigureError, PlanError, UnknownNameError
from mla_var3.evidence import Record

Side = Literal["compute", "memory", "power"]


@dataclass(frozen=True)
class Prediction:
    """Time of some work at two rates and, where it is known, at a power.

    Attributes:
        time_us: The longest of the times, in microseconds.
        bound: What sets it.
        intensity: FLOP per byte; infinite when no bytes move, 0 when nothing is computed.
        ridge: The intensity at which the rates bind equally.
        flops: The work's FLOPs.
        bytes: Its DRAM bytes.
        compute_us: Time at the arithmetic rate alone.
        memory_us: Time at the DRAM rate alone.
        power_us: Time at the board's power alone; 0 where the rates state none.
        rates: The rates.
        device: Key of the device; empty when only rates were given.
    """

    time_us: float
    bound: Side
    intensity: float
    ridge: float
    flops: float
    bytes: float
    compute_us: float
    memory_us: float
    power_us: float
    rates: Ceilings
    device: str = ""

    @property
    def source(self) -> str:
        """Who says what sets the time; empty where the rates were given."""
        if self.bound == "power":
            return self.rates.power.source if self.rates.power else ""
        return self.rates.sources[self.bound == "memory"] if self.rates.sources else ""

    def explain(self) -> str:
        """The arithmetic in one line."""
        parts = [
            f"{self.compute_us:.4g} us at {self.rates.tflops:g} TFLOP/s",
            f"{self.memory_us:.4g} us at {self.rates.gbps:g} GB/s",
        ]
        if self.rates.power is not None:
            parts.append(f"{self.power_us:.4g} us at {self.rates.power.watts:g} W")
        return f"max({', '.join(parts)})"


def predict(flops: float, bytes: float, rates: Ceilings, device: str = "") -> Prediction:
    """max(flops / throughput, bytes / bandwidth, time at the power) and what leads to it.

    Args:
        flops: Floating-point operations (a multiply-add counts as two).
        bytes: Bytes read from and written to DRAM.
        rates: The rates for the element type, and the power where it is known.
        device: Key of the device they are of.

    Raises:
        PlanError: A count is negative or not finite.
    """
    for name, count in (("FLOPs", flops), ("bytes", bytes)):
        if not 0 <= count < math.inf:
            raise PlanError(f"cannot predict a stage with {count} {name}: a count is 0 or more")
    compute_us = flops / (rates.tflops * 1e6)
    memory_us = bytes / (rates.gbps * 1e3)
    power_us = rates.power.us(flops, bytes) if rates.power and (flops or bytes) else 0.0
    sides: dict[Side, float] = {"compute": compute_us, "memory": memory_us, "power": power_us}
    side = max(sides, key=lambda name: sides[name])
    return Prediction(
        time_us=sides[side],
        bound=side,
        intensity=flops / bytes if bytes else (math.inf if flops else 0.0),
        ridge=rates.ridge,
        flops=flops,
        bytes=bytes,
        compute_us=compute_us,
        memory_us=memory_us,
        power_us=power_us,
        rates=rates,
        device=device,
    )


# -- of records -----------------------------------------------------------------------------------


def device_of(record: Record) -> Device | None:
    """The record's own device, else the one that stands for its arch; None on the CPU."""
    try:
        if record.device is not None:
            return load(record.device.key)
        return default_for_arch(record.arch) if record.arch else None
    except UnknownNameError:
        return None


def devices_of(record: Record) -> list[Device]:
    """Devices whose bound is known and that a record speaks of: its own, else all of its arch."""
    if record.device is not None or record.arch is None:
        own = device_of(record)
        return [own] if own is not None else []
    found = []
    for device in all_devices():
        if device.sm == base_arch(record.arch) and device.is_compile_target:
            try:
                device.bound(dtype_of(record))
            except DeviceFigureError:
                continue
            found.append(device)
    return found


def dtype_of(record: Record) -> str:
    """Element type of a record's problem."""
    return str(record.problem.get("dtype", "bf16"))


def rates_of(device: Device, dtype: str, *, bound: bool) -> Ceilings | None:
    """The rates that no kernel can beat on a device, or those that were attained; None if UNKNOWN.

    Args:
        device: The device.
        dtype: Element type.
        bound: Which of the two.
    """
    try:
        return (device.bound if bound else device.ceilings)(dtype)
    except (DeviceFigureError, UnknownNameError):
        return None
