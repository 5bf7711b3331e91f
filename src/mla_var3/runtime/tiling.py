"""``Tiling``: base class of launch and tile parameters of one stage, in any language."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mla_var3.errors import TilingError
from mla_var3.workloads import check_minima

if TYPE_CHECKING:
    from mla_var3.runtime.plan import KernelPlan


@dataclass(frozen=True, kw_only=True)
class Tiling:
    """Launch and tile parameters of one stage."""

    def validate(self, plan: KernelPlan) -> None:
        """Raise TilingError, with the arithmetic that failed, unless the tiling fits ``plan``."""
        check_minima(self, TilingError)

    def values(self) -> dict[str, Any]:
        """The fields, as a record keeps them."""
        return dataclasses.asdict(self)


def tiling_text(values: Mapping[str, object]) -> str:
    """Set fields of a tiling as ``tile_m=64 tile_n=64``, tile extents first."""
    ordered = sorted(values, key=lambda name: not name.startswith("tile_"))
    return " ".join(f"{name}={values[name]}" for name in ordered if values[name] is not None)
