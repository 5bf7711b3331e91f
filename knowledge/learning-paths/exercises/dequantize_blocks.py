"""Blocks of fp16_gemm_6's first kernel: its own grid function, called here without a GPU."""

import runpy

import cutlass.cute as cute
import cutlass.utils as utils

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/tutorial/tutorial_gemm/fp16_gemm_6.py"
M, N, K = 256, 8192, 128
example = runpy.run_path(str(pin.tree(repo_root()).file(FILE)))


@cute.jit
def measure():
    b = cute.make_identity_tensor((N, K))
    c = cute.make_identity_tensor((M, N))
    grid, _, _ = example["compute_grid"](
        b, c, example["mma_tiler_mnk"], example["cluster_shape_mnk"],
        utils.ClcDynamicPersistentTileScheduler, 74,
    )  # fmt: skip
    print(grid[0])


measure()
