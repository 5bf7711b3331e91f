"""v3: blocks that stay."""
