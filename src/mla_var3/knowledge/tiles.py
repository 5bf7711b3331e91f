"""How full a kernel's tiles are, and how evenly blocks share them, from its tiling and counts."""

from __future__ import annotations

import math

from mla_var3.evidence import Passed, Record, Stage
from mla_var3.knowledge import losses
from mla_var3.runtime import costs
from mla_var3.workloads import workloads


def rounds(record: Record, stage: Stage) -> float | None:
    """Rounds of the busiest block over an even share, where blocks take tile after tile.

    None where the tiling does not say how many tiles the result has, or each has a block.
    """
    workload, blocks = workloads().get(record.kernel.layer), math.prod(losses.grid(record, stage))
    rows, columns = stage.tiling.get("tile_m"), stage.tiling.get("tile_n")
    if workload is None or not isinstance(rows, int) or not isinstance(columns, int):
        return None
    tiles = workload.tiles(record.problem, rows, columns)
    if tiles is None or not blocks or tiles <= blocks:
        return None
    return math.ceil(tiles / blocks) * blocks / tiles


def tile_fill(record: Record, stage: Stage) -> float | None:
    """Rows that fill a tile over those that could, on the problem that a CPU ran.

    Rows could fill a tile that share its keys, or the rows of the product.
    """
    outcome, rows = record.outcome, stage.tiling.get("tile_m")
    workload = workloads().get(record.kernel.layer)
    checked = outcome.correctness if isinstance(outcome, Passed) else None
    if checked is None or workload is None or not isinstance(rows, int):
        return None
    for case in checked.cases:
        least, sharing = costs.of_case(record, case), workload.sharing(case.problem)
        if case.mma_flops and least is not None and least.flops and sharing:
            return rows / (case.mma_flops / least.flops) / min(rows, sharing)
    return None


def unfilled(record: Record, stage: Stage) -> float | None:
    """Time with tiles that are filled as counted over time with full ones."""
    fill, found = tile_fill(record, stage), costs.bound(record, stage)
    if fill is None or found is None:
        return None
    whole = max(found.compute_us, found.memory_us)
    return max(found.compute_us / min(1.0, fill), found.memory_us) / whole if whole else None
