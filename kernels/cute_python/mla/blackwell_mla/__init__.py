"""Latent decode for Blackwell's tensor memory, over pages; run in the emulator only."""
