"""v2: one ring of slabs feeds both warpgroups, in the order of the keys."""
