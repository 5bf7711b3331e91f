"""CUTLASS's example mla_decode_fp16, driven in place."""
