"""Bounds, reference times and their figures."""

from mla_var3.devices.ceilings import Ceilings
from mla_var3.roofline.prediction import (
    Prediction,
    bound,
    device_of,
    devices_of,
    dtype_of,
    fraction,
    predict,
    reference,
)

__all__ = [
    "Ceilings",
    "Prediction",
    "bound",
    "device_of",
    "devices_of",
    "dtype_of",
    "fraction",
    "predict",
    "reference",
]
