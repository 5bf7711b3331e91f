"""Blocks of a launch whose tiles the hardware hands out: the DSL's own grid, asked here."""

import cutlass.cute as cute
import cutlass.utils as utils


@cute.jit
def measure():
    params = utils.ClcDynamicPersistentTileSchedulerParams((64, 64, 1), (2, 1, 1))
    grid = utils.ClcDynamicPersistentTileScheduler.get_grid_shape(params)
    print(grid[0] * grid[1] * grid[2])


measure()
