"""Shared-prefix attention on Hopper: prefix decompressed per group, the rest latent, LSE merge."""
