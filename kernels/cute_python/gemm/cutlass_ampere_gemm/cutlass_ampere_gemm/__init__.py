"""The base version: CUTLASS's example tensorop_gemm, run in place by a plan of ours."""
