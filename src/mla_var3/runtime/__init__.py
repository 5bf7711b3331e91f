"""API of kernel versions: plans, tilings, kernels, and their compositions into pipelines."""

from mla_var3.runtime.composite import ConcurrentKernels, KernelPipeline
from mla_var3.runtime.kernel import Kernel, RuntimeObject
from mla_var3.runtime.plan import KernelPlan, Metadata
from mla_var3.runtime.tiling import Tiling, tiling_text

__all__ = [
    "ConcurrentKernels",
    "Kernel",
    "KernelPipeline",
    "KernelPlan",
    "Metadata",
    "RuntimeObject",
    "Tiling",
    "tiling_text",
]
