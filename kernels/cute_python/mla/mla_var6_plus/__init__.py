"""MLA-var6+ on Hopper: old tokens latent, the n newest decompressed, n chosen by a power model."""
