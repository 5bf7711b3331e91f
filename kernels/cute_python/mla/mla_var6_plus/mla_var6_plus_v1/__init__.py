"""v1: kernels of other designs, and an n at one of its ends."""
