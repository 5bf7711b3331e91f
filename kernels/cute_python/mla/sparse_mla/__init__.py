"""Sparse latent attention: each query token attends to its own list of tokens of an fp8 cache."""
