"""FlashMLA v6: the split-KV merge starts while attention ends, by programmatic dependent launch.

The second kernel is launched as a programmatic dependent of the first. Once the last keys of all
parts are on their way, attention lets it start: blocks of the merge take SMs that idle or come
free, and wait there until all parts are written. With one part nothing differs from v5.

The switch is ``early_merge`` of kit/latent_kernel.py, and the wait stands in kit/merge.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_plan import PartsPlan


class Kernel(LatentKernel):
    """Attention lets the merge start once its last keys are on their way."""

    early_merge = True


@dataclass(frozen=True, kw_only=True)
class Plan(PartsPlan):
    """Problem and launches."""

    kernel = Kernel
