"""Emulated ``tcgen05`` of sm_100: tensor memory, its products and copies, and who touched it."""
