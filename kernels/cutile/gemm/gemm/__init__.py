"""GEMM in cuTile: one block per tile, then a persistent grid with swizzled tiles."""
