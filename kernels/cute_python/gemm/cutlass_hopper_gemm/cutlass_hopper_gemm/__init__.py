"""The base version: CUTLASS's example dense_gemm, driven in place."""
