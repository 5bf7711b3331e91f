"""The two parts of a mix: kernels of other designs, on a context that is not theirs alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import cutlass
import cutlass.cute as cute
from cutlass import range_constexpr

from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.rope_plan import RopePlan, RopeTiling
from mla_var3.kernel.cute_python.mla.flash_mla.flash_mla_v12.flash_mla_v12 import (
    FlashMlaV12,
    FlashMlaV12Plan,
)
from mla_var3.runtime import RuntimeObject, Tiling
from mla_var3.runtime.cute_kernel import CuteKernel
from mla_var3.workloads import option
from mla_var3.workloads.mla import seen_pairs

if TYPE_CHECKING:
    import torch


def with_host(kernel: RuntimeObject, change: Callable[[Any], Any]) -> RuntimeObject:
    """The kernel, launched with the same arguments by another host function."""
    assert isinstance(kernel, CuteKernel)
    launch = kernel.launch_fn

    def changed(tiling: Any) -> tuple[Any, tuple[Any, ...]]:
        host, arguments = launch(tiling)
        return change(host), arguments

    kernel.launch_fn = changed
    return kernel


@dataclass(frozen=True, kw_only=True)
class OldPlan(FlashMlaV12Plan):
    """flash_mla v12 over the first t of t + newer tokens; kpe may hold the others too."""

    newer: int = option(0, "tokens that follow, and that the mask counts", minimum=0)

    def pairs(self, first: int = 0, last: int | None = None) -> int:
        end = self.t if last is None else last
        return seen_pairs(self.s, self.t + self.newer, self.causal, first, end)

    def attend(
        self, inputs: tuple[torch.Tensor, ...], outputs: tuple[torch.Tensor, ...]
    ) -> RuntimeObject:
        kernel = super().attend(inputs, outputs)
        kernel.name = "old"
        masked = self.causal and self.newer
        return with_host(kernel, lambda x: OldTokens(x, self.newer)) if masked else kernel


class OldTokens(FlashMlaV12):
    """The kernel of flash_mla v12 under the mask of a longer context.

    Args:
        like: What else it is compiled for.
        newer: Tokens that follow.
    """

    def __init__(self, like: FlashMlaV12, newer: int):
        super().__init__(like.causal, like.lazy, like.splits, like.share, like.blocks, like.partial)
        self.newer = newer

    def of_all_tokens(self, work):
        """The extents with the keys that follow."""
        rows, queries, keys, sequences, parts = work
        return rows, queries, keys + self.newer, sequences, parts

    @cute.jit
    def place(self, work, item):
        """Tiles up to the end of the mask: those past the own keys load zeros, and are hidden."""
        return FlashMlaV12.place(self, self.of_all_tokens(work), item)

    @cute.jit
    def start(self, wg, storage, work, first, first_key, phase):
        """Limits of the whole context, cut off at the own keys."""
        FlashMlaV12.start(self, wg, storage, self.of_all_tokens(work), first, first_key, phase)
        for i in range_constexpr(3):
            wg.limit[i] = cutlass.min(wg.limit[i], work[2] - first_key)


class NewestTokens(RopeKernel):
    """Attention by heads on keys whose position parts lie apart by sequence."""

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
