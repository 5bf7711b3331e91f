"""FlashAttention-3 on Hopper."""
