"""FlashAttention on Hopper, base: persistent ping-pong attention, RoPE apart (kit/rope_kernel.py).

The kernel is that of hopper_attention v3: the two warpgroups of a persistent CTA take turns at the
tensor cores. A head's own part and the rotary part of queries and keys land in one row of slabs.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.rope_kernel import RopeKernel
from mla_var3.kernel.cute_python.kit.rope_plan import RopePlan


class Kernel(RopeKernel):
    """Each warpgroup has 64 rows of its own."""


@dataclass(frozen=True, kw_only=True)
class Plan(RopePlan):
    """Problem and launch."""

    kernel = Kernel
