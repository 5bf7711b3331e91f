"""FlashAttention-3 on Hopper, a peer: dense attention of an installed library."""
