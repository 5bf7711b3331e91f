"""MLA-var6+: old tokens in the latent space, new tokens decompressed, one decompressing combine."""
