"""v7: clusters of four CTAs share keys by TMA multicast, and split them as well."""
