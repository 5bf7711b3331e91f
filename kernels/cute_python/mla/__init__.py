"""Multi-head Latent Attention designs."""
