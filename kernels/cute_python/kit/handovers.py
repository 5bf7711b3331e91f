"""Named barriers between the two consumer warpgroups, and the barrier of a cluster."""

from __future__ import annotations

import enum

import cutlass
import cutlass.cute as cute

#: Threads of the two consumer warpgroups.
CONSUMERS = 256


class Handover(enum.IntEnum):
    """Named barriers between the two warpgroups, in the order of a pair (0 is the CTA's own)."""

    EVEN_MAX = 1  # left has published the maximum after its even tile
    ODD_MAX = 2  # right has published the maximum after its odd tile
    EVEN_WEIGHTS = 3  # left's weights are in shared memory
    ODD_WEIGHTS = 4  # right's weights are too, and right has issued its use of left's
    SUMS = 5  # both have published their row sums
    LEFT_OUTPUT = 6  # left's output is in shared memory
    RIGHT_OUTPUT = 7  # right's is
    FIRST_PIECE = 8  # the first piece of the half to give away is written; the others follow


@cute.jit
def arrive(barrier: cutlass.Constexpr):
    """Tell the other warpgroup, and go on."""
    cute.arch.barrier_arrive(barrier_id=int(barrier), number_of_threads=CONSUMERS)


@cute.jit
def sync(barrier: cutlass.Constexpr):
    """Wait for the other warpgroup."""
    cute.arch.barrier(barrier_id=int(barrier), number_of_threads=CONSUMERS)


@cute.jit
def cluster_sync():
    """Wait for all threads of the cluster."""
    cute.arch.cluster_arrive()
    cute.arch.cluster_wait()
