"""v1: the heads of a sequence share the rows of a tile."""
