"""v10: two CTAs with the same rows merge through L2, and clusters share keys."""
