"""Base class of CuTe kernels' tilings, and checks of multiples, choices and shared memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mla_var3.errors import TilingError
from mla_var3.runtime.tiling import Tiling


@dataclass(frozen=True, kw_only=True)
class CuteTiling(Tiling):
    """Launch and tile parameters of one CuTe kernel; each kernel's own adds its fields."""


def require_multiple(of: int, **values: int) -> None:
    """Raise TilingError unless each named value is a positive multiple of ``of``."""
    for name, value in values.items():
        if value < 1 or value % of:
            raise TilingError(f"{name}={value} is not a positive multiple of {of}")


def require_shared_memory(room: int, **parts: int) -> None:
    """Raise TilingError, with the sum, unless named parts fit a block's shared memory.

    Args:
        room: Bytes that a block may use.
        parts: Bytes of each part.
    """
    total = sum(parts.values())
    if total > room:
        terms = " + ".join(f"{name} {size}" for name, size in parts.items())
        raise TilingError(f"{terms} = {total} bytes of shared memory exceed {room}")


def require_one_of(allowed: Iterable[int], **values: int) -> None:
    """Raise TilingError unless each named value is one of those allowed."""
    choices = tuple(allowed)
    for name, value in values.items():
        if value not in choices:
            raise TilingError(f"{name}={value} is not one of {', '.join(map(str, choices))}")
