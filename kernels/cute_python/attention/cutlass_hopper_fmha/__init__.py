"""CUTLASS's example fmha, driven in place."""
