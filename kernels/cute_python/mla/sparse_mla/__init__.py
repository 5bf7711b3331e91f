"""Sparse latent attention: each query token over its own list of tokens of a cache in fp8."""
