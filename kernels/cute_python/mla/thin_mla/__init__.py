"""Latent attention for few rows per sequence: keys on the rows of the tensor core."""
