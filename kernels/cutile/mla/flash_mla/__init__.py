"""FlashMLA: absorbed attention over the latent cache, keys and values from one load."""
