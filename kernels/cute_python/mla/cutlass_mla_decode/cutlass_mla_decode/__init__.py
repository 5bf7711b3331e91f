"""The base version: CUTLASS's example mla_decode_fp16, run in place by a plan of ours."""
