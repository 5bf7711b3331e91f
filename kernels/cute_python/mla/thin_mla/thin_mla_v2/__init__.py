"""v2: one ring of key slabs feeds both warpgroups, in the order of the keys."""
