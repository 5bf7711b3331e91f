"""FlashMLA v13: paged KV cache, lengths in device memory, equal work per SM (kit/paged.py).

Keys are loaded by page, sequences have lengths of their own, and all tiles of all sequences are cut
into as many equal parts as there are SMs. A contiguous cache is the case of one page per sequence.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.paged import PagedKernel
from mla_var3.kernel.cute_python.kit.paged_plan import PagedPlan


class Kernel(PagedKernel):
    """Pages under the even schedule."""


@dataclass(frozen=True, kw_only=True)
class Plan(PagedPlan):
    """Problem and launches."""

    kernel = Kernel
