"""v0: a row per block."""
