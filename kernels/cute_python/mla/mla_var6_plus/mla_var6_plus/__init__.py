"""Base version: kernels of other designs, and an n at one of its ends."""
