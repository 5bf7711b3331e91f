"""MLA-var6+ on Hopper: old tokens latent, the n newest decompressed; n by the device's power."""
