"""The base version: CUTLASS's example mla_decode_fp8, driven in place."""
