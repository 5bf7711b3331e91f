"""``Configuration`` of a CuTe kernel to compile: one tiling, its host function and arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Configuration:
    """A tiling's fields, the host function that it makes, and what that is called with."""

    tiling: Mapping[str, Any]
    host: Any
    arguments: tuple[Any, ...]
