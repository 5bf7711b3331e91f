"""Lowering of PTX instructions to Python source over numpy, one function per family of opcodes."""

from mla_var3.emulator.lower import (  # noqa: F401  # Each registers its families.
    barriers,
    bitwise,
    convert,
    floating,
    integer,
    launch_control,
    memory,
    moves,
    tcgen05,
    tensor,
    warp,
)
from mla_var3.emulator.lower.base import FAMILIES, Writer, lower

__all__ = ["FAMILIES", "Writer", "lower"]
