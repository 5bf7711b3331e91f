"""Looks up a record's target (GPU, compile arch or CPU): name, device figures, roofline rates."""

from __future__ import annotations

from mla_var3 import devices
from mla_var3.devices import Ceilings, Device
from mla_var3.errors import DeviceFigureError, UnknownNameError
from mla_var3.evidence import CPU
from mla_var3.evidence.model import STATIC


def target_name(target: str) -> str:
    """A record's target in prose: the device's name, the arch, or the CPU."""
    if target == CPU:
        return "CPU"
    device = None if target.startswith(STATIC) else device_of(target)
    return device.name if device else target.removeprefix(STATIC)


def device_of(target: str) -> Device | None:
    """The device of a record's target, or the one that stands for its arch; None without one."""
    try:
        if target.startswith(STATIC):
            return devices.default_for_arch(target.removeprefix(STATIC))
        return devices.load(target)
    except UnknownNameError:
        return None


def roofs(target: str, dtype: str) -> tuple[Ceilings, Ceilings] | None:
    """Bound and reference rates of a target's device; None where one is not known."""
    device = device_of(target)
    try:
        return (device.bound(dtype), device.ceilings(dtype)) if device else None
    except (DeviceFigureError, UnknownNameError):  # An element type may have no rate.
        return None
