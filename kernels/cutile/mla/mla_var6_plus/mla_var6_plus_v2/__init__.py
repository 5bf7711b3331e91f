"""v2: split-KV on both paths, heads grouped on the latent one."""
