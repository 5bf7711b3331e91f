"""Latent attention for few rows per sequence: operands swapped, keys as MMA rows."""
