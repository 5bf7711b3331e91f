"""v1: at up to 64 queries both warpgroups share the rows of a head."""
