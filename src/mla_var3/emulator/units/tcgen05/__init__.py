"""Emulated ``tcgen05`` of sm_100: tensor memory, its matrix products and copies, and its races."""
