"""v4: pairs of row tiles share keys by multicast, and CTAs stay."""
