"""Tensor memory of dense_gemm_persistent for one tile: its own arithmetic, called here."""

import sys

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/dense_gemm/dense_gemm_persistent.py"
sys.path.insert(0, str(pin.tree(repo_root()).file(FILE).parent))
from dense_gemm_persistent import PersistentDenseGemmKernel  # noqa: E402

TILE, ACCUMULATORS, HALF = (128, 192, 64), 2, cutlass.Float16


@cute.jit
def measure():
    k_major = OperandMajorMode.K
    mma = blackwell.make_trivial_tiled_mma(
        HALF, HALF, k_major, k_major, cutlass.Float32, tcgen05.CtaGroup.ONE, TILE[:2]
    )
    columns = PersistentDenseGemmKernel._compute_num_tmem_alloc_cols(
        mma, TILE, ACCUMULATORS, "sm_100"
    )
    print(columns)


measure()
