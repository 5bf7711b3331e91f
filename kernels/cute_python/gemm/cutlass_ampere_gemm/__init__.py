"""CUTLASS's example tensorop_gemm, driven in place."""
