"""v1: pages and lengths as servers have them."""
