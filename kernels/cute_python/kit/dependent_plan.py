"""Plan of a shared prefix whose launches overlap by programmatic dependent launch (PDL)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mla_var3.kernel.cute_python.kit.dependent import EarlyCombine, OwnTokens, Pieces
from mla_var3.kernel.cute_python.kit.head_items import GROUPS
from mla_var3.kernel.cute_python.kit.head_tiles import ROWS
from mla_var3.kernel.cute_python.kit.latent_tiling import PairTiling
from mla_var3.kernel.cute_python.kit.prefix_plan import (
    LN_2,
    MAX_SPLITS,
    PrefixTiling,
    SharedPrefixPlan,
)
from mla_var3.runtime.cute_kernel import CuteKernel

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class DependentPlan(SharedPrefixPlan):
    """Own tokens, prefix and combine, each beginning while the one before ends."""

    @property
    def together(self) -> bool:
        """Whether there are both parts; while ``prefix`` is open, as if."""
        return self.prefix not in (0, self.t)

    def latent_tiling(self) -> PairTiling:
        """With one tile of rows per head half of the SMs at most, so that both parts begin."""
        if self.row_tiles > 1 or not self.together:
            return super().latent_tiling()
        tiles = -(-self.h * self.s // ROWS)
        half = min(tiles * self.b, self.target.sm_count // 2)
        return PairTiling(share=2 if tiles > 1 else 1, blocks=max(half // 2 * 2, 2))

    def splits(self, tiling: PrefixTiling) -> int:
        """Pieces of the prefix: the fewest that give the SMs a block each, but for a rest."""
        if self.prefix_splits is not None or not self.together:
            return super().splits(tiling)
        parts = GROUPS if tiling.apart else 1
        items = self.h * self.groups * -(-self.row_tiles * parts // GROUPS)
        steps = -(-self.prefix_tokens // (tiling.keys * parts))
        return max(min(self.target.sm_count // items, steps, MAX_SPLITS), 1)

    # ---- kernels ---------------------------------------------------------------------------
    def latent(self, *inputs: torch.Tensor) -> CuteKernel:
        return self.instead_of(
            super().latent(*inputs),
            OwnTokens.attention,
            lambda x: OwnTokens(self.causal, x),
            (self.scale / LN_2,),
        )

    def decompressed(self, *inputs: torch.Tensor) -> CuteKernel:
        return self.instead_of(
            super().decompressed(*inputs),
            Pieces.pieces,
            lambda x: Pieces(self.shape(x), x.blocks, second=self.together),
            (self.scale / LN_2,),
        )

    def combine(self, parts: Any, wv: torch.Tensor) -> CuteKernel:
        partials = parts["o_new"].shape[0] // self.b if "o_new" in parts else 0
        # As many blocks per head as run at once: another wave would load Wv once more.
        blocks = max(self.target.sm_count // self.h, 1) * self.h
        return self.instead_of(
            super().combine(parts, wv),
            EarlyCombine.early_combine,
            lambda _: EarlyCombine(self.tile_s, "o_old" in parts, partials, blocks),
            (),
        )

    def instead_of(
        self,
        plain: CuteKernel,
        kernel_fn: Callable[..., Any],
        host_fn: Callable[[Any], Any],
        numbers: tuple[float, ...],
    ) -> CuteKernel:
        """Another kernel on the tensors of ``plain``; arguments as those of ``bind``."""
        inputs, outputs, cost = plain.input_tensors, plain.output_tensors, plain.cost
        return self.bind(kernel_fn, host_fn, inputs, outputs, numbers, cost, plain.name)
