"""Bytes that L2 serves per block and step of hopper_gemm v4: its own A, and half of B."""

from mla_var3.kernel.cute_python.gemm.hopper_gemm.hopper_gemm_v4 import hopper_gemm_v4 as version

b_bytes = version.TILE_N * version.TILE_K * version.ELEMENT_BYTES
print(version.STEP_BYTES - b_bytes + b_bytes // version.CLUSTER)
