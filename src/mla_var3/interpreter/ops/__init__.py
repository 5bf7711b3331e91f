"""Handlers of typed-IR operations, one per opcode, in the table of ``handlers``.

Importing this package fills the table.
"""

from mla_var3.interpreter.ops import (
    access,
    arithmetic,
    atomics,
    control,
    matrix,
    pointers,
    scalars,
    shapes,
    views,
)

__all__ = [
    "access",
    "arithmetic",
    "atomics",
    "control",
    "matrix",
    "pointers",
    "scalars",
    "shapes",
    "views",
]
