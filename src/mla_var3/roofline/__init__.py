"""Roofline ceilings, run-time floors and their figures."""

from mla_var3.roofline.ceilings import Ceilings
from mla_var3.roofline.prediction import (
    Prediction,
    predict,
    predict_concurrent,
    predict_pipeline,
)

__all__ = ["Ceilings", "Prediction", "predict", "predict_concurrent", "predict_pipeline"]
