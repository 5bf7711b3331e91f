"""Base version: FlashAttention-3 on the latent cache: RoPE parts as keys, latents as values."""
