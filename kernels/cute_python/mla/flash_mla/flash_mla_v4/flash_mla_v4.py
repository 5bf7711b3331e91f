"""FlashMLA v4: persistent CTAs; pairs of row tiles share each key tile by TMA multicast.

Two CTAs of a cluster hold neighboring row tiles of one sequence. Each loads half of every slab of
the cache, and TMA writes it into the shared memory of both: keys cross L2 once per pair, which
saves power as much as time. A cluster takes item after item, so that the next item's queries and
keys arrive under the epilogue of the last.

Items are those of ``WholeSchedule`` in kit/schedule.py, and ``load_slab`` of kit/latent_kernel.py
multicasts.
"""

from __future__ import annotations

from dataclasses import dataclass

from mla_var3.kernel.cute_python.kit.latent_kernel import LatentKernel
from mla_var3.kernel.cute_python.kit.latent_plan import PersistentPlan
from mla_var3.kernel.cute_python.kit.schedule import WholeSchedule


class Kernel(LatentKernel):
    """Persistent clusters, whose CTAs share keys by multicast or split them."""

    schedule_type = WholeSchedule


@dataclass(frozen=True, kw_only=True)
class Plan(PersistentPlan):
    """Problem and launch."""

    kernel = Kernel
