"""Plans, kernels and compositions: how a kernel version is declared and run."""

from mla_var3.runtime.composite import ConcurrentKernels, KernelPipeline
from mla_var3.runtime.ct_kernel import INV_LOG_2, ConstBool, ConstFloat, ConstInt, CtKernel
from mla_var3.runtime.kernel import RuntimeObject
from mla_var3.runtime.plan import Cost, KernelPlan, Tiling, option, require_power_of_two

__all__ = [
    "INV_LOG_2",
    "ConcurrentKernels",
    "ConstBool",
    "ConstFloat",
    "ConstInt",
    "Cost",
    "CtKernel",
    "KernelPipeline",
    "KernelPlan",
    "RuntimeObject",
    "Tiling",
    "option",
    "require_power_of_two",
]
