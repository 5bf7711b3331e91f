"""v1: both parts at the same time."""
