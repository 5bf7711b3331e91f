"""``LibraryPlan``: base plan of versions that call a library; nothing is tiled or tuned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from mla_var3.languages.library.finding import Requirement
from mla_var3.runtime.plan import KernelPlan
from mla_var3.runtime.tiling import Tiling


@dataclass(frozen=True, kw_only=True)
class LibraryPlan(KernelPlan):
    """Problem and call of a library."""

    #: The library; None where it is torch, whose version every record states.
    needs: ClassVar[Requirement | None] = None
    keeps_layouts: ClassVar[bool] = True

    def default_tiling(self, stage: str) -> Tiling:
        return Tiling()

    def _autotune_configs(self) -> Mapping[str, Sequence[Tiling]]:
        return {stage: [] for stage in self.tiling_types}

    def libraries(self) -> dict[str, str]:
        return self.needs.version() if self.needs else {}
