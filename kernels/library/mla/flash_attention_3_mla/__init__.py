"""FlashAttention-3's latent decode on Hopper."""
