"""v21: sequences are taken in an order in which few are cut."""
