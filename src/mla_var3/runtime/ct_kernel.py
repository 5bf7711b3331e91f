"""Import path of cuTile kernels for plans: re-exports ``mla_var3.languages.cutile``."""

from mla_var3.languages.cutile.kernel import (
    INV_LOG_2,
    ConstBool,
    ConstFloat,
    ConstInt,
    CtKernel,
)
from mla_var3.languages.cutile.tiling import (
    CutileTiling,
    TileMN,
    require_power_of_two,
    require_tile,
)

__all__ = [
    "INV_LOG_2",
    "ConstBool",
    "ConstFloat",
    "ConstInt",
    "CtKernel",
    "CutileTiling",
    "TileMN",
    "require_power_of_two",
    "require_tile",
]
