"""MLA-var6+: attention over old tokens in latent space, new ones decompressed, and a combine."""
