"""Thin MLA v1 (few rows): split-KV CTAs exchange partials through L2, each finishes a share.

Clusters larger than two leave SMs idle, and a second kernel has to be launched. Here the CTAs that
share the keys of a row tile, in clusters of two, are all resident at once: each writes what the
others finish to a scratch tensor, signals with a release at a counter, waits until all others have
signaled, and finishes an equal share of the output itself: ``kit/thin_l2.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.kernel.cute_python.kit.thin_l2 import ThinL2Kernel
from mla_var3.kernel.cute_python.kit.thin_plan import ThinClusterPlan, ThinClusterTiling


class Tiling(ThinClusterTiling):
    """How many rows a CTA holds, and how many CTAs share their keys."""


class Kernel(ThinL2Kernel):
    """A slot for a tile of keys per warpgroup; parts meet through L2."""


@dataclass(frozen=True, kw_only=True)
class Plan(ThinClusterPlan):
    """Problem and launch."""

    kernel = Kernel
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"attention": Tiling}
