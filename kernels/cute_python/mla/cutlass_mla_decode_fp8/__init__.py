"""CUTLASS's example mla_decode_fp8, run in place by a plan of ours."""
