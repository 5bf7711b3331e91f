"""Blocks that mla_helpers launches for one decode: its own grid function, called here."""

import sys

import cutlass.cute as cute
from cutlass import Int32

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/attention/mla/mla_helpers.py"
sys.path.insert(0, str(pin.tree(repo_root()).file(FILE).parent))
import mla_helpers  # noqa: E402

BATCH, QUERIES, SPLITS, CLUSTERS = 4, 1, 8, 74


@cute.jit
def measure():
    params = mla_helpers.create_mla_static_tile_scheduler_params(
        True, Int32(BATCH), Int32(QUERIES), (2, 1, 1), Int32(SPLITS)
    )
    grid = mla_helpers.MLAStaticTileScheduler.get_grid_shape(params, CLUSTERS)
    cute.printf("%d\n", grid[0])


measure()
