"""Bytes that L2 serves per block and step of hopper_gemm v4: its own A, and half of B."""

from mla_var3.kernel.cute_python.gemm.hopper_gemm.hopper_gemm_v4 import hopper_gemm_v4 as version
from mla_var3.kernel.cute_python.kit.gemm_tiles import ELEMENT_BYTES, TILE_K, TILE_N

b_bytes = TILE_N * TILE_K * ELEMENT_BYTES
print(version.Kernel.step_bytes() - b_bytes + b_bytes // version.CLUSTER)
