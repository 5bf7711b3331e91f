"""Attention over a latent cache in fp8, dequantized on the fly."""
