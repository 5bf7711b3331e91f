"""GPUs and their figures, each with the source that states it.

Run ``python -m mla_var3.devices check|list|show|write`` to lint, read or regenerate.
"""

from mla_var3.devices.model import (
    DEVICE_DIR,
    Device,
    Figure,
    all_devices,
    default_for_arch,
    dtype_metric,
    find,
    load,
)
from mla_var3.roofline.ceilings import Ceilings

__all__ = [
    "DEVICE_DIR",
    "Ceilings",
    "Device",
    "Figure",
    "all_devices",
    "default_for_arch",
    "dtype_metric",
    "find",
    "load",
]
