"""The base version: CUTLASS's example flash_attention_v2, run in place by a plan of ours."""
