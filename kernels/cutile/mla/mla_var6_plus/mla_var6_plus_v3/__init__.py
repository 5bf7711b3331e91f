"""v3: each path has tiles of its own."""
