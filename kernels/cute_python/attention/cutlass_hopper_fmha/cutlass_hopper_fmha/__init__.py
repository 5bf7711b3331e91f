"""The base version: CUTLASS's example fmha, driven in place."""
