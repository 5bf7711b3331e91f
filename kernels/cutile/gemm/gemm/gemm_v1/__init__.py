"""v1: a persistent grid that walks over swizzled tiles."""
