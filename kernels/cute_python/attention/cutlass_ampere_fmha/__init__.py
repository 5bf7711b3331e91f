"""CUTLASS's example flash_attention_v2, driven in place."""
