"""v9: scores begin with the first slab of the queries."""
