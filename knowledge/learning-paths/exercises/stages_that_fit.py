"""Stages of A and B that dense_gemm_software_pipeline takes: its own heuristic, called here."""

import sys

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.memory import get_smem_capacity_in_bytes

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/dense_gemm/dense_gemm_software_pipeline.py"
sys.path.insert(0, str(pin.tree(repo_root()).file(FILE).parent))
from dense_gemm_software_pipeline import DenseGemmKernel  # noqa: E402

TILE, HALF = (256, 128, 64), cutlass.Float16


@cute.jit
def measure():
    k_major = OperandMajorMode.K
    mma = blackwell.make_trivial_tiled_mma(
        HALF, HALF, k_major, k_major, cutlass.Float32, tcgen05.CtaGroup.TWO, TILE[:2]
    )
    capacity = get_smem_capacity_in_bytes("sm_100")
    _, stages, _ = DenseGemmKernel._compute_stages(
        mma, TILE, HALF, HALF, None, HALF, None, capacity, 1, False
    )
    print(stages)


measure()
