"""FlashMLA v22: odd row tiles share no keys, short sequences are cut finer; the rest is v20."""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.even import Even
from mla_var3.kernel.cute_python.kit.thin_paged import ThinPagedKernel
from mla_var3.kernel.cute_python.kit.thin_paged_plan import EitherPlan, EitherTiling
from mla_var3.kernel.cute_python.kit.units import UnitsKernel
from mla_var3.runtime import Tiling


class Kernel(UnitsKernel):
    """Rows are rows of the matrix instructions."""


class Thin(ThinPagedKernel):
    """Rows are columns of the matrix instructions."""


@dataclass(frozen=True, kw_only=True)
class Plan(EitherPlan):
    """Problem and launch."""

    kernel = Kernel
    thin = Thin
    schedule = Even(2, least=2, join=2, each=1)

    def default_tiling(self, stage: str) -> Tiling:
        """No CTAs share keys where they would be one more than row tiles, with nothing to do."""
        made = super().default_tiling(stage)
        assert isinstance(made, EitherTiling)
        return self.sharing(1) if self.row_tiles % made.share else made
