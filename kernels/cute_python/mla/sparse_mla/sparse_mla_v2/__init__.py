"""v2: producers alternate, and two CTAs may convert for each other."""
