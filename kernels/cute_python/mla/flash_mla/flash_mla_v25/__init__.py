"""v25: a pair of row tiles asks L2 for keys ahead."""
