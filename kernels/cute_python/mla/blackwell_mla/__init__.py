"""Latent decode for Blackwell's tensor memory, over pages, also with products in fp8; emulated only."""
