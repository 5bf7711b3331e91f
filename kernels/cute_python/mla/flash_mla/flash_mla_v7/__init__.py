"""v7: clusters of four share keys by multicast, and split them as well."""
