"""v3: blocks stay and take tile after tile."""
