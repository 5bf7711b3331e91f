"""v4: one kernel per path, which run concurrently on two streams."""
