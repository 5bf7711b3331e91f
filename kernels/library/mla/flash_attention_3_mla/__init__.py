"""FlashAttention-3's decode over the latent cache on Hopper, a peer."""
