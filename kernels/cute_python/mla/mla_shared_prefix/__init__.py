"""Shared prefix on Hopper: decompressed once for a group, the rest latent, merged by LSE."""
