"""Latent decode for Blackwell's tensor memory, over pages, and with fp8 products; emulated only."""
