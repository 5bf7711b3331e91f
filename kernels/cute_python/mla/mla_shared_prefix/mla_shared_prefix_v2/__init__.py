"""v2: both parts in one launch."""
