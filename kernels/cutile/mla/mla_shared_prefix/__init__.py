"""A prefix that sequences share, decompressed once for all of them; their own tokens latent."""
