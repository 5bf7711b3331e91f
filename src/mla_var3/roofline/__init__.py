"""Roofline model: predicts bounds and reference times, and draws them as figures."""

from mla_var3.devices.ceilings import Ceilings
from mla_var3.roofline.prediction import (
    Prediction,
    device_of,
    devices_of,
    dtype_of,
    predict,
    rates_of,
)

__all__ = [
    "Ceilings",
    "Prediction",
    "device_of",
    "devices_of",
    "dtype_of",
    "predict",
    "rates_of",
]
