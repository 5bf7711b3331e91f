"""v5: scales made fp16 after the wait for a tile, when all bytes have come."""
