"""GEMM for Hopper, from one warpgroup without a pipeline to multicast between blocks."""
