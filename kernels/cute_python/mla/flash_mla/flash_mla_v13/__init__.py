"""v13: paged KV cache, lengths in device memory, equal work per SM."""
