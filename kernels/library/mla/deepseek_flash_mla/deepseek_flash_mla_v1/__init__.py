"""v1: pages in random order and sequences of unequal lengths, as servers have them."""
