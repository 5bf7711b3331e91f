"""CUTLASS's example dense_gemm, run in place by a plan of ours."""
