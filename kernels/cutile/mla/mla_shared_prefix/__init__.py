"""Shared prefix: decompressed once for all sequences of a group, their own tokens latent."""
