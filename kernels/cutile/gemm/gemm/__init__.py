"""One matrix product, and what a persistent grid with swizzled tiles adds to it."""
