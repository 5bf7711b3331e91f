"""v2: split-KV on both paths, and head grouping on the latent one."""
