"""v13: pages, lengths in device memory, equal work."""
