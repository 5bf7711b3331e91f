"""Base version: split-KV; each latent tile is dequantized once, for K and V."""
