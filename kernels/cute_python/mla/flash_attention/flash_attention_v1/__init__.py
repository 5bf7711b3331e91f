"""v1: up to 64 queries of a head are one tile of both warpgroups."""
