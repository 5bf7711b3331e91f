"""Workloads (``mla``, ``attention``, ``gemm``): problems, references and costs, found by key.

A workload is a module or package of this folder that defines ``WORKLOAD``; its key is the layer of
the kernels that compute it.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil

from mla_var3.errors import UnknownNameError
from mla_var3.workloads.base import (
    AxisMetric,
    Cost,
    Problem,
    Regime,
    Tolerance,
    Workload,
    axis_metric,
    check_minima,
    option,
)
from mla_var3.workloads.kinds import check_kinds

__all__ = [
    "AxisMetric",
    "Cost",
    "Problem",
    "Regime",
    "Tolerance",
    "Workload",
    "axis_metric",
    "check_kinds",
    "check_minima",
    "find",
    "option",
    "workloads",
]


@functools.cache
def workloads() -> dict[str, Workload]:
    """Every workload by its key, in order: what modules of this folder call ``WORKLOAD``."""
    modules = (
        importlib.import_module(f"{__name__}.{found.name}")
        for found in pkgutil.iter_modules(__path__)
    )
    found = (module.WORKLOAD for module in modules if hasattr(module, "WORKLOAD"))
    return {workload.key: workload for workload in sorted(found, key=lambda w: w.key)}


def find(key: str) -> Workload:
    """The workload with a key.

    Raises:
        UnknownNameError: There is none.
    """
    if key not in workloads():
        raise UnknownNameError("workload", key, list(workloads()))
    return workloads()[key]
