"""v4: tokens in registers a whole tile ahead, and consumers that leave room for them."""
