"""FlashMLA v5: split-KV over as many CTAs per row tile as there are SMs for, and a merge kernel.

A small batch with a long context has few row tiles. Here ``parts`` clusters share the keys of each,
in parts of equal length. Each writes its output in fp32 with its LSE, and a second kernel merges
them; with one part the output leaves as in v4.

Parts are those of ``ClusterSchedule`` in kit/schedule.py and ``PartsPlan`` in kit/latent_plan.py;
the second kernel is kit/merge.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_plan import PartsPlan


class Kernel(LatentKernel):
    """The schedule knows parts, and the epilogue stores them in fp32."""


@dataclass(frozen=True, kw_only=True)
class Plan(PartsPlan):
    """Problem and launches."""

    kernel = Kernel
