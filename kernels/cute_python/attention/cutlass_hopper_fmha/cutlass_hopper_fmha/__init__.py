"""The base version: CUTLASS's example fmha, run in place by a plan of ours."""
