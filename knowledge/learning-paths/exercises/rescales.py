"""Rescales of a row whose maximum rises by one (log2) per key tile, with a lazy maximum."""

TILES, LAZY = 64, 8

held, rescales = 0, 0
for highest in range(1, TILES):
    if highest > held + LAZY:
        held, rescales = highest, rescales + 1
print(rescales)
