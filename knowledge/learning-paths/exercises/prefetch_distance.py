"""Steps that dense_gemm_persistent_prefetch runs ahead by default: its own stages, worked out."""

import sys

import cutlass
import cutlass.cute as cute
import cutlass.utils.blackwell_helpers as blackwell
from cutlass.cute.nvgpu import OperandMajorMode, tcgen05
from cutlass.memory import get_smem_capacity_in_bytes

from mla_var3.examples import pin
from mla_var3.paths import repo_root

FILE = "cute/blackwell/kernel/dense_gemm/dense_gemm_persistent_prefetch.py"
sys.path.insert(0, str(pin.tree(repo_root()).file(FILE).parent))
import dense_gemm_persistent_prefetch as example  # noqa: E402

TILE, HALF = (128, 256, 64), cutlass.Float16


@cute.jit
def measure():
    k_major = OperandMajorMode.K
    mma = blackwell.make_trivial_tiled_mma(
        HALF, HALF, k_major, k_major, cutlass.Float32, tcgen05.CtaGroup.ONE, TILE[:2]
    )
    capacity, slab = get_smem_capacity_in_bytes("sm_100"), cute.make_layout((128, 32))
    _, stages, _ = example._compute_stages(mma, TILE, HALF, HALF, HALF, capacity, 1, True, slab)
    print(stages)


measure()
