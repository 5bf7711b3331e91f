"""v3: persistent CTAs take tiles in groups that share L2."""
