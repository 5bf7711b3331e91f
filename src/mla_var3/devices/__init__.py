"""Database of GPUs: their figures (rates, sizes, limits), each with the source that states it.

Run ``python -m mla_var3.devices check|list|show|write`` to lint, read or regenerate.
"""

from mla_var3.devices.ceilings import Ceilings, Power
from mla_var3.devices.limits import SmLimits
from mla_var3.devices.machine import Machine
from mla_var3.devices.model import (
    DEVICE_DIR,
    Device,
    Figure,
    all_devices,
    default_for_arch,
    dtype_metric,
    find,
    load,
    runs_code_of,
)

__all__ = [
    "DEVICE_DIR",
    "Ceilings",
    "Device",
    "Figure",
    "Machine",
    "Power",
    "SmLimits",
    "all_devices",
    "default_for_arch",
    "dtype_metric",
    "find",
    "load",
    "runs_code_of",
]
