"""FlashAttention: multi-head attention over decompressed keys and values."""
