"""Proxy-fence check and hint texts for race findings in emulated shared and global memory.

``unfenced`` returns which writes by threads an asynchronous unit reads without a proxy fence.
``AFTER_WRITE`` and ``AFTER_READ`` name, by unit of the earlier access, the missing synchronization.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mla_var3.emulator.clocks import (
    BULK,
    CP_ASYNC,
    GENERIC,
    GRID,
    STORE,
    STORED,
    TENSOR,
    WGMMA,
    Vector,
)
from mla_var3.emulator.options import Model

#: What orders an access after one by each unit.
AFTER_WRITE = {
    GENERIC: "a barrier between the two",
    WGMMA: "wgmma.wait_group",
    BULK: "a wait on the mbarrier that the copy completes",
    CP_ASYNC: "cp.async.wait_group (or an mbarrier) and then a barrier",
    STORED: "cp.async.bulk.wait_group (not .read) by the storing thread, and then a release",
    GRID: "griddepcontrol.wait before memory of the grid before is touched",
}
AFTER_READ = {
    GENERIC: "a barrier, or an mbarrier that the reader arrives at and the writer waits for",
    WGMMA: "an arrival after wgmma.wait_group that the writer waits for",
    BULK: "a wait on the mbarrier that the copy completes",
    STORE: "cp.async.bulk.wait_group.read by the storing thread and then a barrier",
    CP_ASYNC: "cp.async.wait_group",
    TENSOR: "tcgen05.commit to an mbarrier, and a wait on it by the writer",
    GRID: "griddepcontrol.wait before memory of the grid before is touched",
}
#: What orders an access of a lane after one of another lane of its warp.
WITHIN = "sync_warp (or another barrier of both lanes) between the two"
AFTER_COPY = "sync_warp (or another barrier of both lanes) between cp.async.wait_group and this"
#: What orders accesses of lanes for whom another lane of their warp releases.
TOLD_FOR_OTHERS = "sync_warp before one lane tells for its warp"
#: What orders lanes after something for which another lane of their warp has waited.
WAITED_FOR_OTHERS = "a wait by all lanes, or sync_warp after one lane has waited for its warp"


def unfenced(
    seen: Vector,
    fenced: Vector,
    model: Model,
    writer: NDArray[Any],
    written: NDArray[np.int64],
    generic: NDArray[np.bool_],
    fences: list[list[int]],
) -> NDArray[np.bool_]:
    """Which of the ``generic`` writes an asynchronous unit reads without a proxy fence between.

    Args:
        seen: What the warp that the unit works for knows of the writers.
        fenced: What it knew at its own last proxy fence.
        model: Whether that fence counts.
        writer: Warps that wrote.
        written: Their numbers when they did.
        generic: Which of these to look at.
        fences: Each warp's numbers at its proxy fences, in order.
    """
    missing = np.zeros(len(writer), bool)
    for who in np.unique(writer[generic]).tolist():
        here = generic & (writer == who)
        # A fence by the writer after its write, which the reader knows.
        numbers = np.array([*fences[who], np.iinfo(np.int64).max])
        late = numbers[np.searchsorted(numbers, written[here])] >= seen[who]
        if model.reader_fences:
            late &= written[here] > fenced[who]
        missing[here] = late
    return missing
