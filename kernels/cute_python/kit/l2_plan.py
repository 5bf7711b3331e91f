"""Plan of latent attention whose split-KV partials merge through L2; clusters share keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from mla_var3.kernel.cute_python.kit.cluster_plan import ClusterPlan
from mla_var3.kernel.cute_python.kit.l2 import PLACE, SIGNALS
from mla_var3.kernel.cute_python.kit.latent_tiling import L2Tiling
from mla_var3.runtime import Tiling
from mla_var3.runtime.cute_kernel import CuteTiling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class L2Plan(ClusterPlan):
    """Clusters of two fill the chip, so that those that share come first."""

    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {
        "attention": L2Tiling,
        "merge": CuteTiling,
    }
    shares: ClassVar[tuple[int, ...]] = (1, 2)
    split_shares: ClassVar[tuple[int, ...]] = (2, 1)

    def room(self, cluster: int = 2) -> int:
        """CTAs that run at once, in clusters of two at most."""
        return self.target.sm_count // 2 * 2

    def exchanged(self, device: torch.device) -> dict[str, torch.Tensor]:
        """A place per CTA that may split keys, and signals, which are zero between launches."""
        import torch

        ctas = min(self.blocks(2, 2), self.room()) if self.may_split(1) else 1
        exchange = torch.zeros(ctas, PLACE, dtype=torch.float32, device=device)
        signals = torch.zeros(ctas, SIGNALS, dtype=torch.int32, device=device)
        return {"exchange": exchange, "signals": signals}
