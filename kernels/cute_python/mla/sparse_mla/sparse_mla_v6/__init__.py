"""v6: two CTAs of a list convert half of a tile's tokens each, for both, in whole rows."""
