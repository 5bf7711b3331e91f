"""v10: two CTAs with the same rows meet through L2, and clusters share keys."""
