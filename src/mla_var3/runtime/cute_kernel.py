"""Import path of CuTe kernels for plans: re-exports names of ``mla_var3.languages.cute``."""

from mla_var3.languages.cute.kernel import CuteKernel
from mla_var3.languages.cute.signature import Dynamic, by_rows
from mla_var3.languages.cute.tiling import (
    CuteTiling,
    require_multiple,
    require_one_of,
    require_shared_memory,
)

__all__ = [
    "CuteKernel",
    "CuteTiling",
    "Dynamic",
    "by_rows",
    "require_multiple",
    "require_one_of",
    "require_shared_memory",
]
