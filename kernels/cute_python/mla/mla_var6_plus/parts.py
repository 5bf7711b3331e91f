"""Stages of the base version, kernels and plans: attention over old and over newest tokens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr

from mla_var3.kernel.cute_python.kit.l2_kernel import L2PieceKernel
from mla_var3.kernel.cute_python.kit.l2_plan import L2Plan
from mla_var3.kernel.cute_python.kit.latent_tiling import L2Tiling
from mla_var3.kernel.cute_python.kit.piece_epilogue import L2PartPieceEpilogue
from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.rope_plan import RopePlan, RopeTiling
from mla_var3.kernel.cute_python.kit.schedule import Schedule
from mla_var3.runtime import Tiling
from mla_var3.runtime.cute_kernel import CuteTiling
from mla_var3.workloads import option
from mla_var3.workloads.mla import seen_pairs

if TYPE_CHECKING:
    pass


class Latent(L2PieceKernel):
    """The kernel of flash_mla v12."""

    epilogue_type = L2PartPieceEpilogue


def of_all_tokens(work, newer):
    """The extents of a launch with the ``newer`` keys that follow."""
    rows, queries, keys, sequences, parts = work
    return rows, queries, keys + newer, sequences, parts


@dataclass(frozen=True)
class OldSchedule(Schedule):
    """Tiles up to the end of the mask: those past the own keys load zeros, and are hidden."""

    newer: int = 0

    @cute.jit
    def place(self, work, item):
        """That of an item among all tokens."""
        return Schedule.place(self, of_all_tokens(work, self.newer), item)


class OldTokens(Latent):
    """The same under the mask of a longer context, of which ``newer`` tokens follow."""

    def __init__(self, causal, tiling, partial, newer):
        super().__init__(causal, tiling, partial)
        self.newer = newer
        self.schedule = OldSchedule(causal, tiling.splits, tiling.share, tiling.blocks, newer)

    @cute.jit
    def start(self, wg, storage, work, first, first_key, phase):
        """Limits of the whole context, cut off at the own keys."""
        extents = of_all_tokens(work, self.newer)
        Latent.start(self, wg, storage, extents, first, first_key, phase)
        for i in range_constexpr(3):
            wg.limit[i] = cutlass.min(wg.limit[i], work[2] - first_key)


@dataclass(frozen=True, kw_only=True)
class OldPlan(L2Plan):
    """flash_mla v12 over the first t of t + newer tokens; kpe may hold the others too."""

    stage = "old"
    kernel = Latent
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"old": L2Tiling, "merge": CuteTiling}

    newer: int = option(0, "tokens that follow, and that the mask counts", minimum=0)

    def pairs(self, first: int = 0, last: int | None = None) -> int:
        end = self.t if last is None else last
        return seen_pairs(self.s, self.t + self.newer, self.causal, first, end)

    def host(self, tiling: Any) -> Latent:
        if self.causal and self.newer:
            return OldTokens(self.causal, tiling, self.part_count > 1, self.newer)
        return super().host(tiling)


class NewestTokens(RopeKernel):
    """Attention by heads on keys whose position parts lie apart by sequence."""

    apart = (*RopeKernel.apart, "kpe")

    def views(self, q, qpe, key, value, kpe, o, lse):
        queries, keys, values, outputs = super().views(q, qpe, key, value, kpe, o, lse)
        sequences, tokens, width = kpe.shape
        apart = cute.make_layout((tokens, width, 1, sequences), stride=(width, 1, 0, kpe.stride[0]))
        return queries, (keys[0], cute.make_tensor(kpe.iterator, apart)), values, outputs


@dataclass(frozen=True, kw_only=True)
class NewestPlan(RopePlan):
    """Attention by heads over the newest tokens; kpe may be a view of a longer context's end."""

    kernel = NewestTokens
    stage = "newest"
    tiling_types: ClassVar[Mapping[str, type[Tiling]]] = {"newest": RopeTiling}
